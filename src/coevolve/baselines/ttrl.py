"""TTRL as CoMAS's Table 1 uses it: the majority of a model's own answers is the label that its answers are paid by.

On CoMAS's training questions, with REINFORCE++ (section 4.1). Where answers cannot be voted on, dummy rewards.
"""

from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Any, ClassVar

from coevolve.checks import at_least
from coevolve.method import Method
from coevolve.papers.comas.method import CoMAS
from coevolve.parse import boxed
from coevolve.setups import majority
from coevolve.shares import mean, number
from coevolve.types import Episode, Outcome
from coevolve.worlds import World
from tinyworld.oracle import TinyWorld

DUMMY = 0.0  # pays everybody the same within a baseline of its own, so it teaches nothing


@dataclass(kw_only=True)
class TTRL(Method):
    """Test-time reinforcement learning: reward 1 for the majority's answer. No labels are read."""

    PROMPTS: ClassVar[str] = "comas"
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
        at_least(self, votes=1)
        if not 1 <= self.samples <= self.votes:
            raise ValueError(f"samples must be 1 to {self.votes} (the votes), got {self.samples}")
        known = sorted(self.world.domains)
        for domain in self.voting:
            if domain not in known:
                raise ValueError(f"voting must be some of {', '.join(known)}, got {domain!r}")
        self.solver = self._role("solver")

    @cached_property
    def rows(self) -> list[tuple[str, str]]:
        """The training questions with their domains."""
        return self.world.training()

    read = staticmethod(boxed)

    def episode(self, rng: Random) -> Episode:
        """Ask one question many times, and pay the first `samples` answers by the vote of all."""
        domain, question = rng.choice(self.rows)
        votes = domain in self.voting
        replies = yield [self.solver(question=question)] * (self.votes if votes else self.samples)
        answers = [boxed(reply.text) for reply in replies]
        label, _ = majority(answers)
        trained = list(zip(replies, answers, strict=True))[: self.samples]
        if votes:
            samples = [reply.earns(float(answer is not None and answer == label)) for reply, answer in trained]
        else:
            samples = [reply.earns(DUMMY, "dummy") for reply, _ in trained]
        truths = [self.world.right(question, answer) for answer in answers]
        right = self.world.right(question, label) if votes else None
        facts = {
            "question": question,
            "right": mean(truths),
            "voted": float(votes),
            "majority_right": number(right),
            "interactions": len(replies),
            "tokens_out": sum(len(reply.ids) for reply in replies),
        }
        return Outcome(samples, facts)
