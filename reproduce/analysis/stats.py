"""Effects, intervals and degrees of freedom as pure functions; no table, benchmark or paper.

Axes are S seeds, I items, R bootstrap replicates. A score is any finite number, most often 0 or
1 for one item. Everything random takes a seed and repeats exactly. `crossed` computes the effects.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

REPLICATES = 10_000
LEVEL = 0.95
Array = NDArray[np.float64]


def wilson(k: int, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Return the Wilson score limits of k successes in n >= 1 trials."""
    test = scipy.stats.binomtest(int(k), int(n))
    limits = test.proportion_ci(level, method="wilson")
    low = float(limits.low)
    high = float(limits.high)
    return low, high


def student_quantile(probability: float, dof: float) -> float:
    """Return the quantile of Student's t distribution."""
    return scipy.stats.t.ppf(probability, dof)


@dataclass(frozen=True)
class VarianceComponent:
    """One independent part of a squared standard error, with its degrees of freedom."""

    variance: float
    dof: float


@dataclass(frozen=True)
class Effect:
    """A difference, its standard error and its degrees of freedom.

    The last two are nan where a trained side has one unit, so that its noise is unknown.
    """

    delta: float
    standard_error: float
    dof: float

    @property
    def p(self) -> float:
        """Two-sided p-value of Student's t test that the true difference is zero."""
        if self.standard_error == 0:
            return float(self.delta == 0)
        t = abs(self.delta) / self.standard_error
        one_sided = scipy.stats.t.sf(t, self.dof)
        return float(2 * one_sided)

    @property
    def variance(self) -> float:
        """The square of the standard error."""
        return self.standard_error**2

    @property
    def evidence(self) -> float:
        """How surely the true difference is positive: minus the logarithm of the one-sided p-value.

        Minus infinity where the standard error is unknown.
        """
        unit = self.standard_error or 1e-9
        t = self.delta / unit
        if np.isnan(t):
            return -np.inf
        return -float(scipy.stats.t.logsf(t, self.dof))

    @property
    def limits(self) -> tuple[float, float]:
        """Lower and upper 95 % confidence limit."""
        return self.interval(LEVEL)

    def interval(self, level: float) -> tuple[float, float]:
        """Return the lower and upper confidence limit of a level such as 0.9."""
        critical = student_quantile((1 + level) / 2, self.dof)
        half_width = critical * self.standard_error
        return float(self.delta - half_width), float(self.delta + half_width)

    def detectable(self, power: float, alpha: float = 1 - LEVEL) -> float:
        """Return the smallest true difference that has p <= alpha with probability `power`."""
        critical = student_quantile(1 - alpha / 2, self.dof)
        if np.isinf(self.dof):
            in_units = critical + scipy.stats.norm.ppf(power)
        else:
            in_units = scipy.special.nctdtrinc(self.dof, 1 - power, critical)
        return float(in_units * self.standard_error)


def total(components: Sequence[VarianceComponent]) -> VarianceComponent:
    """Return the sum of variances, with Welch and Satterthwaite's degrees of freedom.

    dof = (sum of v_i)^2 / (sum of v_i^2 / dof_i), infinite if all variances are zero
    """
    variance = sum(part.variance for part in components)
    denominator = sum(part.variance**2 / part.dof for part in components)
    dof = variance**2 / denominator if denominator else np.inf
    return VarianceComponent(float(variance), float(dof))


def cautious_total(components: Sequence[VarianceComponent]) -> VarianceComponent:
    """Return the sum of variances, with the mean of the reciprocal degrees of freedom.

    1 / dof = sum of (v_i / v) / dof_i, where v is the sum; infinite dof if v is zero. Welch and
    Satterthwaite square the shares v_i / v. That suits components of much the same dof. If one of
    four dof meets one of hundreds, their rule errs too often at strict levels, and this one does
    not (`benchmarks/coverage.py`).
    """
    variance = sum(part.variance for part in components)
    reciprocals = sum(part.variance / part.dof for part in components)
    dof = variance / reciprocals if reciprocals else np.inf
    return VarianceComponent(float(variance), float(dof))


class Estimate(NamedTuple):
    """A mean with its confidence limits."""

    value: float
    low: float
    high: float


def bootstrap(
    strata: Sequence[ArrayLike],
    level: float = LEVEL,
    replicates: int = REPLICATES,
    seed: int = 0,
    weights: Sequence[float] | None = None,
) -> Estimate:
    """Return the mean over strata of the mean score of each S x I array, with bootstrap limits.

    `weights` of the strata add up to 1 and are equal by default. One draw of seeds serves all
    strata; items are drawn within each stratum, by multinomial weights. A single seed is kept,
    and only items are drawn. A bootstrap over few seeds is too narrow, so the limits reach at
    least as far as Student's t over the S seed means.
    """
    weights_K = np.full(len(strata), 1 / len(strata))
    if weights is not None:
        weights_K = np.asarray(weights, dtype=float)
    strata_SI = [_checked(scores) for scores in strata]
    seeds = _common_seed_count(strata_SI)
    rng = np.random.default_rng(seed)
    equal_chances = np.full(seeds, 1 / seeds)
    weights_RS = rng.multinomial(seeds, equal_chances, replicates) / seeds
    means_R = np.zeros(replicates)
    means_S = np.zeros(seeds)
    for weight, scores_SI in zip(weights_K, strata_SI, strict=True):
        means_R += weight * _resampled_means(scores_SI, weights_RS, rng)
        means_S += weight * scores_SI.mean(axis=1)
    tails = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.quantile(means_R, tails)

    value = means_S.mean()
    half_width = student_half_width(means_S, level)
    low = min(low, value - half_width)
    high = max(high, value + half_width)
    return Estimate(float(value), float(low), float(high))


def _common_seed_count(strata_SI: Sequence[Array]) -> int:
    counts = {scores_SI.shape[0] for scores_SI in strata_SI}
    if len(counts) == 1:
        return counts.pop()
    raise ValueError(
        f"every stratum needs the same number of seeds, at least one; got {sorted(counts)}"
    )


def student_half_width(means_S: Array, level: float) -> float:
    """Return half the width of Student's interval for the mean of S seeds; 0.0 for one seed."""
    seeds = len(means_S)
    if seeds < 2:
        return 0.0
    critical = student_quantile((1 + level) / 2, seeds - 1)
    deviation = means_S.std(ddof=1)
    return critical * deviation / np.sqrt(seeds)


def _resampled_means(
    scores_SI: Array, weights_RS: Array, rng: np.random.Generator
) -> Array:
    """Return the mean score of each replicate, for given seed weights and newly drawn items."""
    # Items with equal columns are interchangeable: drawing how often each distinct column occurs
    # is the same draw, only cheaper.
    distinct_SU, counts_U = np.unique(scores_SI, axis=1, return_counts=True)
    items = scores_SI.shape[1]
    replicates = len(weights_RS)
    draws_RU = rng.multinomial(items, counts_U / items, replicates)
    item_weights_RU = draws_RU / items
    factors = (weights_RS, distinct_SU, item_weights_RU)
    return np.einsum("rs,su,ru->r", *factors, optimize=True)


def verdict(low: float, high: float, paper_sign: int | None) -> str:
    """Judge the sign (1 or -1) that a paper claims by the limits of a reproduced difference.

    Returns "one seed" without limits, "undecided" if they contain zero, else "as printed" or
    "against print", and an empty string without a claim. This is one uncorrected comparison: only
    the ledger of claims corrects for multiple comparisons and calls a claim found.
    """
    if paper_sign is None:
        return ""
    if np.isnan([low, high]).any():
        return "one seed"
    if low <= 0 <= high:
        return "undecided"
    return "as printed" if low * paper_sign > 0 else "against print"


def _checked(scores: ArrayLike) -> Array:
    """Return scores as a float array; ValueError unless it is finite, not empty and 2-D."""
    array = np.asarray(scores, dtype=float)
    if array.ndim != 2 or not array.size or not np.isfinite(array).all():
        raise ValueError(
            f"scores must be finite, not empty and have 2 axes, got shape {array.shape}"
        )
    return array
