"""Rewards of MAE (sections 4.1 to 4.3) as pure, total functions of scores in [0, 1].

A score of None is an unreadable judgement. A format of None means that the format reward is ablated.
Knows neither texts nor when a question or an answer counts as parsed.
"""

from collections.abc import Sequence

NEUTRAL = 0.5
THIRDS = (1 / 3, 1 / 3, 1 / 3)
HALVES = (1 / 2, 1 / 2)


def neutral(score: float | None) -> float:
    """Return the score, or 0.5 for an unreadable judgement (section 5.3.2)."""
    return NEUTRAL if score is None else score


def difficulty(scores: Sequence[float | None]) -> float:
    """Return 1 - the mean judged score of the attempts (section 4.1).

    Unreadable judgements are left out of the mean; 0.5 when none is readable (section 5.3.2).
    """
    readable = [score for score in scores if score is not None]
    return 1 - sum(readable) / len(readable) if readable else NEUTRAL


def proposer_reward(
    quality: float | None,
    difficulty: float,
    format: float | None,
    weights: tuple[float, float, float] = THIRDS,
) -> float:
    """Return the weighted sum of quality, difficulty and format (section 4.1, Algorithm 1 line 15).

    A question that does not parse has neither quality nor difficulty: pass 0.0 for both.
    """
    return _weighted((neutral(quality), difficulty, format), weights)


def official_proposer_reward(
    quality: float | None,
    difficulty: float,
    format: float | None,
    *,
    parsed: bool,
    threshold: float = 0.7,
    weights: tuple[float, float, float] = THIRDS,
) -> float:
    """Return what the authors' released code pays instead of section 4.1's unconditional sum.

    Nothing for a question that does not parse; difficulty counts as 0, its weight kept, below the threshold.
    """
    if not parsed:
        return 0.0
    return proposer_reward(quality, difficulty if neutral(quality) >= threshold else 0.0, format, weights)


def solver_reward(judged: float | None, format: float | None, weights: tuple[float, float] = HALVES) -> float:
    """Return the weighted sum of the judge's score and the format reward (section 4.2).

    An answer that does not parse was not judged: pass 0.0.
    """
    return _weighted((neutral(judged), format), weights)


def judge_reward(format: float | None) -> float:
    """Return the Judge's only reward, its format (section 4.3); 0.0 when the format reward is ablated."""
    return 0.0 if format is None else format


def _weighted(terms: Sequence[float | None], weights: Sequence[float]) -> float:
    """Sum weight * term; the weight of an ablated term (None) is shared out over the others in proportion."""
    kept = [(weight, term) for weight, term in zip(weights, terms, strict=True) if term is not None]
    total, left = sum(weights), sum(weight for weight, _ in kept)
    if left == 0:
        return 0.0
    return total / left * sum(weight * term for weight, term in kept)
