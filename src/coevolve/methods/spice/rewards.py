"""Rewards of SPICE (sections 2.2 and 4.3, Appendices 8 and 10) as pure, total functions.

`p` is the Reasoner's pass rate on a task, a number in [0, 1].
"""

import math
from collections.abc import Callable
from typing import Literal

PENALTY = -0.1  # rho, for an invalid task (section 3.1)


def gaussian(p: float, optimum: float = 0.25, tau: float = 0.01) -> float:
    """Return exp(-(p(1 - p) - optimum)^2 / (2 tau)), which is 1 at p = 1/2 (Equations 1 and 5).

    p(1 - p) is the population variance of 0/1 verdicts with mean p; `tau` sets the width.
    """
    variance = p * (1 - p)
    return math.exp(-((variance - optimum) ** 2) / (2 * tau))


def one_minus(p: float) -> float:
    """Return 1 - p, but 0 for a task that is always or never solved (Absolute Zero, Appendix 8)."""
    if p in (0.0, 1.0):
        return 0.0
    return 1 - p


def threshold(p: float) -> float:
    """Return 1 for a task that is sometimes solved and sometimes not, else 0 (section 4.3)."""
    return float(0 < p < 1)


def uncertainty(p: float) -> float:
    """Return 1 - 2|p - 1/2| (R-Zero, Appendix 8 and Figure 7)."""
    return 1 - 2 * abs(p - 0.5)


ChallengerReward = Literal["variance", "absolute_zero", "threshold", "rzero"]
CHALLENGER: dict[ChallengerReward, Callable[[float], float]] = {  # the rows of Table 4
    "variance": gaussian,
    "absolute_zero": one_minus,
    "threshold": threshold,
    "rzero": uncertainty,
}


def challenger_reward(
    kind: ChallengerReward, p: float | None, penalty: float = PENALTY
) -> float:
    """Return the Challenger's reward for a task (Equation 1).

    A `p` of None stands for an invalid task, whose reward is the penalty.
    """
    if p is None:
        return penalty
    reward = CHALLENGER[kind]
    return reward(p)
