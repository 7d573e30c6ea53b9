"""Rewards of MAE (sections 4.1 to 4.3) as pure, total functions of scores in [0, 1].

A score of None is an unreadable judgement. A format reward of None is ablated. The functions see
scores only: callers decide when a question or an answer counts as parsed.
"""

from collections.abc import Sequence

from coevolve.methods.facts import mean_known

NEUTRAL = 0.5
QUALITY_THRESHOLD = 0.7


def score_or_neutral(score: float | None) -> float:
    """Return the score, or 0.5 for an unreadable judgement (section 5.3.2)."""
    return NEUTRAL if score is None else score


def difficulty(scores: Sequence[float | None]) -> float:
    """Return R_difficulty = 1 - the mean judged score of the attempts (section 4.1).

    Unreadable judgements are left out of the mean; 0.5 if none is readable (section 5.3.2).
    """
    return 1 - score_or_neutral(mean_known(scores))


def proposer_reward(
    quality: float | None, difficulty: float, format: float | None
) -> float:
    """Return (R_quality + R_difficulty + R_format) / 3 (section 4.1, Algorithm 1 line 15).

    A question that does not parse has neither quality nor difficulty: pass 0.0 for both.
    """
    return _equally_weighted_sum(score_or_neutral(quality), difficulty, format)


def official_proposer_reward(
    quality: float | None,
    difficulty: float,
    format: float | None,
    *,
    parsed: bool,
    threshold: float = QUALITY_THRESHOLD,
) -> float:
    """Return the Proposer's reward in the authors' released code, which differs from section 4.1.

    It is 0 for a question that does not parse. Below the quality threshold the difficulty counts
    as 0, with its weight unchanged.
    """
    if not parsed:
        return 0.0
    is_good = score_or_neutral(quality) >= threshold
    return proposer_reward(quality, difficulty if is_good else 0.0, format)


def solver_reward(judged: float | None, format: float | None) -> float:
    """Return (V_J + R_format) / 2, where V_J is the Judge's score (section 4.2).

    An answer that does not parse is not judged: pass 0.0.
    """
    return _equally_weighted_sum(score_or_neutral(judged), format)


def _equally_weighted_sum(*terms: float | None) -> float:
    """Return the sum of the terms with equal weights, which add up to 1.

    The weight of an ablated term (None) is redistributed over the other terms.
    """
    weight = 1 / len(terms)
    weighted_terms = [weight * term for term in terms if term is not None]
    redistribution = 1 / (weight * len(weighted_terms))
    return redistribution * sum(weighted_terms)
