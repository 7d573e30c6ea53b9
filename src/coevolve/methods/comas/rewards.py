"""Rewards of CoMAS (section 3.2) and of its two ablations (section 4.3.1), as total functions.

A score of None is a scoring that cannot be read. A reward of None means masked: the reply is not trained on.
"""

from collections.abc import Sequence

from coevolve.methods.facts import complement, mean_known
from coevolve.text import parse

SCORES = {"1": 1, "2": 2, "3": 3}
VERDICTS = {"correct": True, "incorrect": False}
BLANKS = " \t\r\n"
NEUTRAL = 0.5
PENALTY = -1.0


def extract_score(text: str) -> int | None:
    """Return the score of a scoring (Eq. 6): 1, 2 or 3 inside its one <score> pair, else None."""
    return SCORES.get(parse.only(text, "score").strip(BLANKS))


def extract_verdict(text: str) -> bool | None:
    """Return whether an evaluation of the ablation without scoring ends in <judgment>correct</judgment>.

    None without exactly one pair that holds "correct" or "incorrect" (in any case of letters).
    """
    return VERDICTS.get(parse.only(text, "judgment").strip(BLANKS).lower())


def solution_reward(scores: Sequence[int | None], neutral: bool = False) -> float | None:
    """Return r(s) of Eq. 7, (score - 1) / 2, averaged over the solution's evaluations.

    Unreadable scores are left out, or count as 0.5 when `neutral`; None when nothing is left.
    """
    return mean_known(NEUTRAL if score is None else (score - 1) / 2 for score in scores if neutral or score is not None)


def evaluation_reward(score: int | None, neutral: bool = False) -> float | None:
    """Return r(e) of Eq. 7, (3 - score) / 2: what the solution loses. Unreadable: None, or 0.5 when `neutral`."""
    return complement(solution_reward([score], neutral))


def scoring_reward(score: int | None) -> float:
    """Return Eq. 8: 0 for a readable score, whatever it is, and -1 otherwise."""
    return PENALTY if score is None else 0.0


def agreement(verdicts: Sequence[bool | None], index: int) -> float | None:
    """Return the share of the other readable verdicts that equal verdict `index`.

    0 when that one is unreadable, since it agrees with nobody; None when no other is readable.
    """
    if verdicts[index] is None:
        return 0.0
    others = [verdict for i, verdict in enumerate(verdicts) if i != index and verdict is not None]
    return mean_known([verdict == verdicts[index] for verdict in others])


def confusion(rewards: Sequence[float | None], truths: Sequence[bool | None]) -> dict[str, float]:
    """Count rewards against the verifier (Table 6): a reward above 0.5 predicts that the solution is right.

    Pairs with a None on either side do not count. Precision is tp / (tp + fp), recall tp / (tp + fn).
    """
    counts = {"tp": 0.0, "fp": 0.0, "fn": 0.0, "tn": 0.0}
    for reward, truth in zip(rewards, truths, strict=True):
        if reward is not None and truth is not None:
            counts[("t" if (reward > NEUTRAL) == truth else "f") + ("p" if reward > NEUTRAL else "n")] += 1
    return counts
