"""What a family of tasks is: how to draw a question, its exact answer, its level and its misconception.

Families are listed in arithmetic, symbols and facts; tasks puts them together.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

Draw = Callable[[Random, int], str]  # (rng, level 1..3) -> question
Values = tuple[int | str | None, ...]


@dataclass(frozen=True)
class Family:
    """One kind of question with an exact oracle.

    `answer`, `level` and `misconception` take one argument for each group of `pattern` (see `values`).
    """

    name: str
    pattern: str  # of the whole question
    draw: Draw
    answer: Callable[..., int | str | None]  # None: the question is ill-formed although it matches the pattern
    level: Callable[..., int]  # 1 to 3
    misconception: Callable[..., int | str]  # the systematic wrong answer taught in the warm start
    plan: str  # what the Planner should say about it
    answer_type: str = "Integer"  # SPICE's answer types

    def values(self, match: re.Match[str]) -> Values:
        """What the groups hold: whole numbers as int, other text as str, None for an optional group that is absent."""
        return tuple(int(text) if text and text.isdigit() else text for text in match.groups())

    def read(self, question: str) -> Values | None:
        """The values of a well-formed question of this family, or None."""
        match = re.fullmatch(self.pattern, question)
        values = self.values(match) if match else None
        return values if values is not None and self.answer(*values) is not None else None


class TextFamily(Family):
    """A family whose digits are symbols, not numbers."""

    def values(self, match: re.Match[str]) -> Values:
        """What the groups hold, as it is written."""
        return match.groups()


def band(value: int, *limits: int) -> int:
    """Level 1, 2 or 3 by how many of the limits `value` exceeds."""
    return 1 + sum(value > limit for limit in limits)
