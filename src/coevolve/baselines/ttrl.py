"""TTRL as CoMAS's Table 1 uses it: the majority of a model's own answers is the label that its answers are paid by.

On CoMAS's training questions, with REINFORCE++ (section 4.1). Where answers cannot be voted on, dummy rewards.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Any, ClassVar

from coevolve import prompts
from coevolve.parse import boxed
from coevolve.pools import Pool
from coevolve.protocols.comas import CoMAS
from coevolve.types import Episode, Outcome
from coevolve.worlds.oracle import TinyWorld, World

DUMMY = 0.0  # pays everybody the same within a baseline of its own, so it teaches nothing


@dataclass(kw_only=True)
class TTRL:
    """Test-time reinforcement learning: reward 1 for the majority's answer. No labels are read."""

    TRAINING: ClassVar[dict[str, Any]] = CoMAS.TRAINING  # "performed exclusively with REINFORCE++" (section 4.1.1)

    estimator: str = "reinforce_pp"
    votes: int = 64  # answers that vote (TTRL's setting)
    samples: int = 32  # of them are trained on (TTRL's setting)
    voting: tuple[str, ...] = ("MATH",)  # domains whose answers can be voted on; code and science cannot (4.1.2)
    setups: tuple[str, ...] = ("vanilla", "consistency", "autogen", "debate")
    prompt: str = "compact"
    prompt_folder: str | None = None
    world: World = field(default_factory=TinyWorld, repr=False)

    def __post_init__(self) -> None:
        if self.votes < 1:
            raise ValueError(f"votes must be at least 1, got {self.votes}")
        if not 1 <= self.samples <= self.votes:
            raise ValueError(f"samples must be 1 to {self.votes} (the votes), got {self.samples}")
        known = sorted(self.world.domains)
        for domain in self.voting:
            if domain not in known:
                raise ValueError(f"voting must be some of {', '.join(known)}, got {domain!r}")
        self.solver = prompts.load("comas", "solver", self.prompt, folder=self.prompt_folder)

    @cached_property
    def rows(self) -> list[tuple[str, str]]:
        """The training questions with their domains."""
        return self.world.training()

    @property
    def pools(self) -> dict[str, Pool]:
        """No pools."""
        return {}

    read = staticmethod(boxed)

    def episode(self, rng: Random) -> Episode:
        """Ask one question many times, and pay the first `samples` answers by the vote of all."""
        domain, question = rng.choice(self.rows)
        votes = domain in self.voting
        replies = yield [self.solver(question=question)] * (self.votes if votes else self.samples)
        answers = [boxed(reply.text) for reply in replies]
        label = majority(answers)
        trained = list(zip(replies, answers, strict=True))[: self.samples]
        if votes:
            samples = [reply.earns(float(answer is not None and answer == label)) for reply, answer in trained]
        else:
            samples = [reply.earns(DUMMY, "dummy") for reply, _ in trained]
        truths = [self.world.right(question, answer) for answer in answers]
        known = [float(truth) for truth in truths if truth is not None]
        right = self.world.right(question, label) if votes else None
        facts = {"question": question, "right": sum(known) / len(known) if known else None, "voted": float(votes),
                 "majority_right": None if right is None else float(right), "interactions": len(replies),
                 "tokens_out": sum(len(reply.ids) for reply in replies)}  # fmt: skip
        return Outcome(samples, facts)


def majority(answers: Sequence[str | None]) -> str | None:
    """The answer given most often, the earliest of equals; answers that do not parse have no vote."""
    votes = Counter(answer for answer in answers if answer is not None)
    return max(votes, key=votes.get, default=None)
