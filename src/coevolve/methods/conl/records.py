"""The records of CoNL: comparisons, critiques, conversations and the rewards of an agent."""

from dataclasses import dataclass

from coevolve.types import Reply

Span = tuple[int, int]  # first character, and one past the last


@dataclass(frozen=True)
class Comparison:
    """One agent's solution preferred over another's.

    A tie is two comparisons of weight 0.5, one each way.
    """

    winner: int
    loser: int
    weight: float = 1.0

    @property
    def is_tie(self) -> bool:
        """Whether the comparison is half of a tie."""
        return self.weight != 1


Ranking = list[Comparison]  # by one agent, each pair of agents at most once
Rankings = list[Ranking]  # by author


@dataclass(frozen=True)
class Critique:
    """A critique of one agent's solution; `span` includes the tags."""

    target: int
    text: str
    span: Span


@dataclass(frozen=True)
class ConversationTrace:
    """The four rounds (section 3.1) and what was read in them.

    Every list has an entry per agent.
    """

    question: str
    proposals: list[Reply]  # round 0
    reviews: list[Reply]  # round 1
    initial_rankings: Rankings
    critiques: list[list[Critique]]  # by author
    revisions: list[Reply]  # round 2
    revised: list[str]  # the solutions that the final rankings compare
    verdicts: list[Reply]  # round 3
    final_rankings: Rankings
    initial_scores: list[float]  # V_init
    final_scores: list[float]  # V_final

    @property
    def rounds(self) -> list[list[Reply]]:
        """The replies of each round."""
        return [self.proposals, self.reviews, self.revisions, self.verdicts]


@dataclass(frozen=True)
class AgentRewards:
    """The weighted rewards of one agent; None masks the segments that would earn them."""

    solution: float | None  # w1 r_sol
    diagnostic: float | None  # w2 r_diag
    consensus: float | None  # w3 r_meta
