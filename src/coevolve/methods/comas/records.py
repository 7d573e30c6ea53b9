"""What an episode of CoMAS leaves behind, for its samples and metrics."""

from collections.abc import Sequence
from dataclasses import dataclass

from coevolve.types import Reply


@dataclass(frozen=True)
class RewardedReply:
    """A reply and its reward; a reply with reward None is not trained on."""

    reply: Reply
    reward: float | None


@dataclass(frozen=True)
class Round:
    """A solution, its evaluations, and their scorings."""

    solution: RewardedReply
    evaluations: list[RewardedReply]
    scorings: list[RewardedReply]
    # Of each scoring, or without scoring the verdict of each evaluation; None: unreadable.
    scores: Sequence[int | None]

    @property
    def game(self) -> list[RewardedReply]:
        """The two sides of the zero-sum game: the solution and its evaluations."""
        return [self.solution, *self.evaluations]

    @property
    def replies(self) -> list[RewardedReply]:
        """All replies of the round, in the order of their roles."""
        return [*self.game, *self.scorings]


@dataclass(frozen=True)
class EpisodeTrace:
    """All discussions of one question, for `CoMAS.observe`."""

    question: str
    # The first round of every discussion, then the second, and so on.
    rounds: list[Round]
    discussions: int
