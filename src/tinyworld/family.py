"""What a family of tasks is: how to draw a question, its exact answer, its level and its misconception.

Families are listed in arithmetic, symbols and facts; tiny puts them together.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Family:
    """One kind of question with an exact oracle. Every function takes the match of `pattern` on a question."""

    name: str
    pattern: re.Pattern[str]
    draw: Callable[[Random, int], str]  # (rng, level 1..3) -> question
    answer: Callable[[re.Match[str]], str | None]  # None: matches the pattern but is ill-formed
    level: Callable[[re.Match[str]], int]
    misconception: Callable[[re.Match[str]], str]  # the systematic wrong answer taught in the warm start
    plan: str  # what the Planner should say about it
    answer_type: str = "Integer"  # SPICE's answer types
    seeded: bool = True  # in-distribution: occurs in the seed questions; False: out-of-distribution
    in_documents: bool = True  # short enough for the backbone to copy out of a document
    equal: Callable[[re.Match[str], str], bool] | None = None  # more ways to be right than the oracle's own text

    def read(self, question: str) -> re.Match[str] | None:
        """Match a well-formed question of this family, or return None."""
        match = self.pattern.fullmatch(question)
        return match if match and self.answer(match) is not None else None

    def right(self, match: re.Match[str], answer: str) -> bool:
        """Tell whether `answer` solves the question, exactly or by `equal`."""
        return answer == self.answer(match) or bool(self.equal and self.equal(match, answer))


def ints(match: re.Match[str]) -> list[int]:
    """All whole numbers of the matched question, in order."""
    return [int(digits) for digits in re.findall(r"\d+", match[0])]


def band(value: int, *limits: int) -> int:
    """Level 1, 2 or 3 by how many of the limits `value` exceeds."""
    return 1 + sum(value > limit for limit in limits)
