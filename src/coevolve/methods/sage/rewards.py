"""Rewards of SAGE (section 4, equations 2 to 11) as pure, total functions.

Scores, correctness and formats lie in [0, 1]. Knows neither prompts nor who may enter the dataset.
"""

from collections.abc import Sequence

from coevolve.methods.facts import complement, mean_known
from coevolve.methods.format_reward import format_reward as tag_reward

NEUTRAL = 0.5


def norm(score: float | None, literal: bool = False) -> float:
    """Map the Critic's score to [0, 1] (equation 2): (s - 1) / 9 from 1 to 10, s below 1, else 0.5.

    As printed (`literal`), the branch "s itself" reaches up to 1 inclusive, so the worst grade of the 1 to 10
    scale becomes the best value. None is an unreadable score: 0.5.
    """
    if score is None:
        return NEUTRAL
    if 0 <= score < 1 or (literal and score == 1):
        return score
    return (score - 1) / 9 if 1 <= score <= 10 else NEUTRAL


def format_reward(text: str, tags: Sequence[str], empty: float = NEUTRAL) -> float:
    """Return r_f of section 4.1: the mean of what `papers.format` pays for each of the required tags.

    An output without any text earns `empty`, 0.5 in the paper.
    """
    if not text.strip():
        return empty
    return sum(tag_reward(text, tag) for tag in tags) / len(tags)


def difficulty(verified: Sequence[float | None]) -> float | None:
    """Return r_d = 1 - the mean verified success of the attempts (equation 4); None when none was scored."""
    return complement(mean_known(verified))


def challenger_reward(quality: float, difficulty: float | None, format: float) -> float:
    """Return a third of each term (equation 5), or half of quality and format (6) when `difficulty` is None.

    The difficulty is suppressed for a question that the quality gate or the verifier check keeps out.
    """
    if difficulty is None:
        return (quality + format) / 2
    return (quality + difficulty + format) / 3


def planner_reward(plan: float, format: float, weights: Sequence[float]) -> float:
    """Return lambda_plan * s_p + lambda_f * r_f (equation 8)."""
    return weights[0] * plan + weights[1] * format


def gated(plan: float, threshold: float) -> float:
    """Return the plan score that the Solver is paid: itself from the threshold up, else 0 (equation 10)."""
    return plan if plan >= threshold else 0.0


def solver_reward(plan: float | None, correct: float, format: float, weights: Sequence[float]) -> float:
    """Return w_p * gated plan score + w_c * correctness + w_f * format (equation 11).

    Without a planning module (`plan` None): half correctness, half format (section 4.4).
    """
    if plan is None:
        return (correct + format) / 2
    return weights[0] * plan + weights[1] * correct + weights[2] * format
