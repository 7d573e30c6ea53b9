"""Verifiable rewards for a model that keeps to no answer form yet: the last number counts.

docs/real-model.md has the command.
"""

import re
from random import Random

from coevolve.advantages.estimators import Estimator
from coevolve.methods.base import Method
from coevolve.types import Episode, Outcome, Role


class Answers(Method):
    """Several answers to one question share a baseline; a right one earns 1."""

    answers: int = 8
    """Answers to each question."""

    estimator: Estimator = "group_mean"
    """Centred over the answers to one question."""

    def define_roles(self) -> None:
        """Make the solver."""
        self.solver = Role("solver", "{question}\nReply with the answer only.")

    def read_answer(self, text: str) -> str | None:
        """Return the last number of a reply, or None."""
        numbers = re.findall(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?|-?\d+(?:\.\d+)?", text)
        return numbers[-1] if numbers else None

    def episode(self, rng: Random) -> Episode:
        """Ask one question of the world and pay by its verifier."""
        question = rng.choice(self.world.seed_questions())
        replies = yield [self.solver(question=question)] * self.answers
        rights = [
            float(self.world.is_correct(question, self.read_answer(reply.text)) or 0)
            for reply in replies
        ]
        return Outcome(
            [
                reply.earns(right, reply.group_id)
                for reply, right in zip(replies, rights, strict=True)
            ]
        )
