"""Rewards of SAGE (section 4, equations 2 to 11) as pure, total functions.

Scores, correctness and format rewards lie in [0, 1]. The functions know neither the prompts nor
which tasks may enter the dataset.
"""

from collections.abc import Sequence

from coevolve.methods.facts import complement, mean_known
from coevolve.methods.format_reward import format_reward as tag_reward

NEUTRAL = 0.5


def norm(score: float | None, literal: bool = False) -> float:
    """Map the Critic's score s to [0, 1] (equation 2).

    (s - 1) / 9 for s from 1 to 10, s itself for s in [0, 1), and 0.5 for any other or unreadable
    score (None). As printed (`literal`), the second branch includes s = 1, so that the worst
    grade of the scale becomes the best value.
    """
    if score is None:
        return NEUTRAL
    if literal and score == 1:
        return score
    if 0 <= score < 1:
        return score
    if 1 <= score <= 10:
        return (score - 1) / 9
    return NEUTRAL


def format_reward(text: str, tags: Sequence[str], empty: float = NEUTRAL) -> float:
    """Return r_f of section 4.1: the mean format reward of the required tags.

    An output without any text earns `empty`, 0.5 in the paper.
    """
    if not text.strip():
        return empty
    return sum(tag_reward(text, tag) for tag in tags) / len(tags)


def difficulty(verified: Sequence[float | None]) -> float | None:
    """Return r_d = 1 - the mean verified success of the attempts (equation 4).

    Attempts that could not be scored (None) are left out; None if no attempt was scored.
    """
    return complement(mean_known(verified))


def challenger_reward(quality: float, difficulty: float | None, format: float) -> float:
    """Return (s_q + r_d + r_f) / 3 (equation 5), or (s_q + r_f) / 2 without difficulty (6).

    The difficulty is None for a question that the quality gate or the verifier check rejects, and
    where no attempt could be scored.
    """
    if difficulty is None:
        return (quality + format) / 2
    return (quality + difficulty + format) / 3


def planner_reward(plan: float, format: float, weights: Sequence[float]) -> float:
    """Return lambda_plan * s_p + lambda_f * r_f (equation 8)."""
    lambda_plan, lambda_f = weights
    return lambda_plan * plan + lambda_f * format


def gated(plan: float, threshold: float) -> float:
    """Return the Solver's plan term: s_p from the threshold beta up, else 0 (equation 10)."""
    return plan if plan >= threshold else 0.0


def solver_reward(
    plan: float | None, correct: float, format: float, weights: Sequence[float]
) -> float:
    """Return w_p * gated s_p + w_c * s_gt + w_f * r_f (equation 11).

    Without a planning module (`plan` None) it is (s_gt + r_f) / 2 (section 4.4).
    """
    if plan is None:
        return (correct + format) / 2
    w_p, w_c, w_f = weights
    return w_p * plan + w_c * correct + w_f * format
