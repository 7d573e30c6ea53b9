"""Majority votes over the answers of several rollouts."""

from collections import Counter
from collections.abc import Iterable


def majority(answers: Iterable[str | None]) -> tuple[str | None, int]:
    """Return the most frequent answer and its number of votes, (None, 0) without any vote.

    None is not a vote. Ties go to the answer that was seen first.
    """
    votes = Counter(answer for answer in answers if answer is not None)
    if not votes:
        return None, 0
    winner = max(votes, key=votes.__getitem__)
    return winner, votes[winner]
