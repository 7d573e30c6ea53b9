"""Rewards of CoMAS (section 3.2) and of its two ablations (section 4.3.1), as total functions.

A score of None is a scoring that cannot be read. A reward of None masks a reply: it is not trained
on.
"""

from collections.abc import Sequence

from coevolve.methods.facts import mean_known
from coevolve.text import parse

SCORES = {"1": 1, "2": 2, "3": 3}
VERDICTS = {"correct": True, "incorrect": False}
WHITESPACE = " \t\r\n"
NEUTRAL = 0.5
PENALTY = -1.0
# (whether the reward predicts a correct solution, whether it is correct): cell of the table
CONFUSION_CELLS = {
    (True, True): "tp",
    (True, False): "fp",
    (False, True): "fn",
    (False, False): "tn",
}


def extract_score(text: str) -> int | None:
    """Return the score of a scoring (Eq. 6): 1, 2 or 3 in its one <score> pair, else None."""
    content = parse.only(text, "score").strip(WHITESPACE)
    return SCORES.get(content)


def extract_verdict(text: str) -> bool | None:
    """Return whether an evaluation calls its solution correct, in the ablation without scoring.

    None unless exactly one <judgment> pair holds "correct" or "incorrect", in any case of letters.
    """
    content = parse.only(text, "judgment").strip(WHITESPACE)
    return VERDICTS.get(content.lower())


def solution_reward(
    scores: Sequence[int | None], neutral: bool = False
) -> float | None:
    """Return r(s) of Eq. 7: the mean of (score - 1) / 2 over the solution's evaluations.

    Unreadable scores are left out, or count as 0.5 if `neutral`; None if no score is left.
    """
    terms = []
    for score in scores:
        if score is not None:
            terms.append((score - 1) / 2)
        elif neutral:
            terms.append(NEUTRAL)
    return mean_known(terms)


def evaluation_reward(score: int | None, neutral: bool = False) -> float | None:
    """Return r(e) of Eq. 7: (3 - score) / 2, which is what the solution loses.

    For an unreadable score None, or 0.5 if `neutral`.
    """
    if score is None:
        return NEUTRAL if neutral else None
    return (3 - score) / 2


def scoring_reward(score: int | None) -> float:
    """Return Eq. 8: 0 for any readable score, else -1."""
    return PENALTY if score is None else 0.0


def agreement(verdicts: Sequence[bool | None], index: int) -> float | None:
    """Return the fraction of the other readable verdicts that equal verdict `index`.

    0 if that one is unreadable, because it agrees with no other; None if no other is readable.
    """
    verdict = verdicts[index]
    if verdict is None:
        return 0.0
    others = [*verdicts[:index], *verdicts[index + 1 :]]
    return mean_known(other == verdict for other in others if other is not None)


def confusion(
    rewards: Sequence[float | None], truths: Sequence[bool | None]
) -> dict[str, float]:
    """Count how the rewards of solutions compare with the verifier (Table 6).

    A reward above 0.5 predicts a correct solution. Pairs with a None do not count. Precision is
    tp / (tp + fp), recall tp / (tp + fn).
    """
    counts = {"tp": 0.0, "fp": 0.0, "fn": 0.0, "tn": 0.0}
    for reward, correct in zip(rewards, truths, strict=True):
        if reward is not None and correct is not None:
            predicted = reward > NEUTRAL
            cell = CONFUSION_CELLS[predicted, correct]
            counts[cell] += 1
    return counts
