"""TTRL as CoMAS's Table 1 uses it: the majority of a model's own answers is the label that its answers are paid by.

On CoMAS's training questions, with REINFORCE++ (section 4.1). Where answers cannot be voted on, dummy rewards.
"""

from dataclasses import dataclass
from random import Random
from typing import Any

from coevolve.checks import at_least
from coevolve.papers.comas.method import Table1
from coevolve.parse import boxed
from coevolve.setups import majority
from coevolve.shares import mean, number
from coevolve.types import Episode, Outcome
from coevolve.worlds import World

DUMMY = 0.0  # pays everybody the same within a baseline of its own, so it teaches nothing


@dataclass(kw_only=True)
class TTRL(Table1):
    """Test-time reinforcement learning: reward 1 for the majority's answer. No labels are read."""

    votes: int = 64  # answers that vote (TTRL's setting)
    samples: int = 32  # of them are trained on (TTRL's setting)
    voting: tuple[str, ...] = ("MATH",)  # domains whose answers can be voted on; code and science cannot (4.1.2)

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, votes=1)
        if not 1 <= self.samples <= self.votes:
            raise ValueError(f"samples must be 1 to {self.votes} (the votes), got {self.samples}")
        known = sorted(self.world.domains)
        for domain in self.voting:
            if domain not in known:
                raise ValueError(f"voting must be some of {', '.join(known)}, got {domain!r}")
        self.solver = self.role("solver")

    def episode(self, rng: Random) -> Episode:
        """Ask one question many times, and pay the first `samples` answers by the vote of all."""
        domain, question = rng.choice(self.training)
        votes = domain in self.voting
        replies = yield [self.solver(question=question)] * (self.votes if votes else self.samples)
        answers = [boxed(reply.text) for reply in replies]
        label, _ = majority(answers)
        samples = []
        for reply, answer in list(zip(replies, answers, strict=True))[: self.samples]:
            if votes:
                samples.append(reply.earns(float(answer is not None and answer == label)))
            else:
                samples.append(reply.earns(DUMMY, "dummy"))
        return Outcome(samples, trace=(domain, question, replies, answers))

    def observe(self, outcome: Outcome, world: World) -> dict[str, Any]:
        """How right the answers and their majority were, and what they cost."""
        domain, question, replies, answers = outcome.trace
        voted, (label, _) = domain in self.voting, majority(answers)
        return {
            "question": question,
            "right": mean([world.right(question, answer) for answer in answers]),
            "voted": float(voted),
            "majority_right": number(world.right(question, label)) if voted else None,
            "interactions": len(replies),
            "tokens_out": sum(len(reply.ids) for reply in replies),
        }
