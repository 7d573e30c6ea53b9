"""Majority votes over the answers of several rollouts."""

from collections import Counter
from collections.abc import Callable, Iterable


def majority(
    answers: Iterable[str | None], spelling: Callable[[str], str] = str
) -> tuple[str | None, int]:
    """Return the most frequent answer, as it was first written, and its number of votes.

    Answers of the same spelling vote together. None is not a vote; (None, 0) without any vote. Ties
    go to the answer that was seen first.
    """
    votes: Counter[str] = Counter()
    first_written: dict[str, str] = {}
    for answer in answers:
        if answer is not None:
            vote = spelling(answer)
            votes[vote] += 1
            first_written.setdefault(vote, answer)
    if not votes:
        return None, 0
    winner = max(votes, key=votes.__getitem__)
    return first_written[winner], votes[winner]
