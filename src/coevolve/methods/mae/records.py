"""What an episode of MAE leaves behind, for its rewards and metrics."""

from dataclasses import dataclass
from typing import NamedTuple


class Pair(NamedTuple):
    """A question and an answer, as the pair dataset P and its checkpoints hold them."""

    question: str
    answer: str | None  # None: the reply holds no answer; P has no such pairs


@dataclass(frozen=True)
class JudgedAnswer:
    """An answer of the Solver and the Judge's score of it."""

    question: str
    answer: str | None
    # In [0, 1]; 0.0 without an answer; None: an unreadable judgement.
    score: float | None


@dataclass(frozen=True)
class Assessment:
    """A proposed question, judged by the Judge and by attempts to solve it (lines 10 and 11).

    The defaults are those of a proposal that does not parse.
    """

    question: str | None = None  # None: the proposal does not parse
    quality: float = 0.0  # the quality reward (section 4.1)
    difficulty: float = 0.0  # the difficulty reward (section 4.1)
    accepted: bool = False  # by the quality filter
    score: float | None = None  # the Judge's score of the question; None: unreadable
    attempts: tuple[JudgedAnswer, ...] = ()


@dataclass(frozen=True)
class EpisodeTrace:
    """One pass of the loop, for `MAE.observe`."""

    reference: str | None  # the question shown to the Proposer
    assessment: Assessment
    solutions: list[JudgedAnswer]  # of lines 17 to 19
