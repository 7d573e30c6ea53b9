"""Majority votes over the answers of several rollouts."""

from collections import Counter
from collections.abc import Iterable


def majority(answers: Iterable[str | None]) -> tuple[str | None, int]:
    """Return the answer given most often and its votes; ties go to the one seen first, None does not vote."""
    votes = Counter(answer for answer in answers if answer is not None)
    return max(votes.items(), key=lambda item: item[1], default=(None, 0))
