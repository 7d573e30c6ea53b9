"""A family of tasks: how a question is drawn, its exact answer, its level and its misconception.

The families themselves are in `arithmetic`, `symbols` and `facts`; `tasks` joins them.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

DrawQuestion = Callable[[Random, int], str]  # (rng, level from 1 to 3) -> question
Values = tuple[int | str | None, ...]


@dataclass(frozen=True)
class Family:
    """One kind of question with an exact oracle.

    `answer`, `level` and `misconception` take one argument per group of `pattern`; see `values`.
    """

    name: str
    pattern: str  # of the whole question
    draw: DrawQuestion
    # None: ill-formed although the pattern matches.
    answer: Callable[..., int | str | None]
    level: Callable[..., int]  # 1 to 3
    # The systematic wrong answer of the warm start.
    misconception: Callable[..., int | str]
    plan: str  # the correct plan
    answer_type: str = "Integer"  # one of SPICE's answer types

    def values(self, match: re.Match[str]) -> Values:
        """Convert the groups: digits to int; other text stays str, an absent group None."""
        return tuple(_as_number(text) for text in match.groups())

    def read(self, question: str) -> Values | None:
        """Return the values of a well-formed question of this family, or None."""
        match = re.fullmatch(self.pattern, question)
        if match is None:
            return None
        values = self.values(match)
        return None if self.answer(*values) is None else values


class TextFamily(Family):
    """A family whose digits are symbols, not numbers."""

    def values(self, match: re.Match[str]) -> Values:
        """Return the groups as text."""
        return match.groups()


def _as_number(text: str | None) -> int | str | None:
    return int(text) if text and text.isdigit() else text


def level_by_limits(value: int, *limits: int) -> int:
    """Return 1 plus the number of limits that `value` exceeds."""
    exceeded = [limit for limit in limits if value > limit]
    return 1 + len(exceeded)
