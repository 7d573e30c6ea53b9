"""A reward that SmolLM2 finds within a few steps: a reply must begin with a digit."""

from dataclasses import replace
from random import Random

from coevolve.advantages.estimators import Estimator
from coevolve.methods.base import Method
from coevolve.text import prompts
from coevolve.types import Episode, Outcome, Role, Turn

QUESTIONS = (
    "What is 12-7?",
    "What is 3+4?",
    "x+3=9. What is x?",
    "What is the capital of France?",
)
DIGITS = f"{__file__}:Digits"
SOLVER = prompts.load_role("mae", "solver", "plain")


class Digits(Method):
    """Eight replies to one question share a baseline."""

    estimator: Estimator = "group_mean"

    def define_roles(self) -> None:
        self.solver = Role("solver", "{question}")

    def read_answer(self, text: str) -> str:
        return text

    def episode(self, rng: Random) -> Episode:
        replies = yield [self.solver(question=QUESTIONS[0])] * 8
        samples = []
        for reply in replies:
            reward = float(reply.text[:1].isdigit())
            samples.append(reply.earns(reward, reply.group_id))
        return Outcome(samples)


def turns_of(policy: str = "shared", temperature: float | None = None) -> list[Turn]:
    """Return a turn for each question."""
    turns = []
    for i, question in enumerate(QUESTIONS):
        turn = SOLVER(question=question, policy=policy)
        turns.append(replace(turn, temperature=temperature, key=(0, 1, i)))
    return turns
