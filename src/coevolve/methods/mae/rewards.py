"""Rewards of MAE (sections 4.1 to 4.3) as pure, total functions of scores in [0, 1].

A score of None is an unreadable judgement. A format of None means that the format reward is ablated.
Knows neither texts nor when a question or an answer counts as parsed.
"""

from collections.abc import Sequence

from coevolve.methods.facts import mean_known

NEUTRAL = 0.5


def neutral(score: float | None) -> float:
    """Return the score, or 0.5 for an unreadable judgement (section 5.3.2)."""
    return NEUTRAL if score is None else score


def difficulty(scores: Sequence[float | None]) -> float:
    """Return 1 - the mean judged score of the attempts (section 4.1).

    Unreadable judgements are left out of the mean; 0.5 when none is readable (section 5.3.2).
    """
    return 1 - neutral(mean_known(scores))


def proposer_reward(quality: float | None, difficulty: float, format: float | None) -> float:
    """Return a third each of quality, difficulty and format (section 4.1, Algorithm 1 line 15).

    A question that does not parse has neither quality nor difficulty: pass 0.0 for both.
    """
    return _shared(neutral(quality), difficulty, format)


def official_proposer_reward(
    quality: float | None, difficulty: float, format: float | None, *, parsed: bool, threshold: float = 0.7
) -> float:
    """Return what the authors' released code pays instead of section 4.1's unconditional sum.

    Nothing for a question that does not parse; difficulty counts as 0, its weight kept, below the threshold.
    """
    if not parsed:
        return 0.0
    return proposer_reward(quality, difficulty if neutral(quality) >= threshold else 0.0, format)


def solver_reward(judged: float | None, format: float | None) -> float:
    """Return half of the judge's score and half of the format reward (section 4.2).

    An answer that does not parse was not judged: pass 0.0.
    """
    return _shared(neutral(judged), format)


def _shared(*terms: float | None) -> float:
    """Sum the terms in equal parts; the part of an ablated term (None) is shared out over the others."""
    part = 1 / len(terms)
    kept = [part * term for term in terms if term is not None]
    return 1 / (part * len(kept)) * sum(kept)
