"""Statistics as pure functions on arrays; axes are S seeds, I items, R bootstrap replicates.

Knows no table, no benchmark name and no paper. A score is any finite number, most often 0 or 1
for one item. Everything random takes a seed and repeats exactly.
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
Side = Sequence[Array]  # one array of S seeds x I items per stratum


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
    dof: int


@dataclass(frozen=True)
class Effect:
    """A difference, its standard error and its degrees of freedom.

    The last two are nan where a trained side has one seed, so that its seed noise is unknown.
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
    def limits(self) -> tuple[float, float]:
        """Lower and upper 95 % confidence limit."""
        half_width = self.detectable(power=0.5)  # the margin for this power is 0
        low = self.delta - half_width
        high = self.delta + half_width
        return low, high

    def detectable(self, power: float) -> float:
        """Return the smallest true difference that is significant with probability `power`."""
        critical = student_quantile((1 + LEVEL) / 2, self.dof)
        margin = student_quantile(power, self.dof)
        return float((critical + margin) * self.standard_error)


def difference(
    a: Side,
    b: Side | None = None,
    fixed: tuple[bool, bool] = (False, False),
) -> Effect:
    """Return side a minus side b, or side a itself without b; strata have equal weight.

    The standard error adds up the seed noise of each side and the noise of the items, which both
    sides answered. The flags in `fixed` mark sides without seed noise, such as untrained models.
    Any other side with a single seed leaves the standard error nan.
    """
    a_means_S = _seed_means(a)
    delta = a_means_S.mean()
    a_is_fixed, b_is_fixed = fixed
    noisy_sides = [] if a_is_fixed else [a_means_S]
    if b is not None:
        b_means_S = _seed_means(b)
        delta = delta - b_means_S.mean()
        if not b_is_fixed:
            noisy_sides.append(b_means_S)
    if any(len(means_S) < 2 for means_S in noisy_sides):
        return Effect(float(delta), standard_error=np.nan, dof=np.nan)

    components = [_seed_component(means_S) for means_S in noisy_sides]
    gains = _item_gains(a, b)
    for gain_I in gains:
        if len(gain_I) > 1:
            components.append(_item_component(gain_I, strata=len(gains)))
    variance = _total_variance(components)
    standard_error = float(np.sqrt(variance))
    return Effect(float(delta), standard_error, dof=welch_satterthwaite(components))


def welch_satterthwaite(components: Sequence[VarianceComponent]) -> float:
    """Return the effective degrees of freedom of a sum of variances; infinite if all are zero.

    dof = (sum of v_i)^2 / (sum of v_i^2 / dof_i)
    """
    variance = _total_variance(components)
    denominator = sum(part.variance**2 / part.dof for part in components)
    if denominator == 0:
        return np.inf
    return float(variance**2 / denominator)


def _total_variance(components: Sequence[VarianceComponent]) -> float:
    return sum(part.variance for part in components)


def _seed_means(side: Side) -> Array:
    """Return the mean score of each seed, shape S, over items and then over strata."""
    means_by_stratum = [scores_SI.mean(axis=1) for scores_SI in side]
    return np.mean(means_by_stratum, axis=0)


def _item_gains(a: Side, b: Side | None) -> list[Array]:
    """Return, per stratum, the difference on each item, averaged over seeds; shape I."""
    if b is None:
        b = [np.zeros_like(a_SI) for a_SI in a]
    gains = []
    for a_SI, b_SI in zip(a, b, strict=True):
        a_mean_I = a_SI.mean(axis=0)
        b_mean_I = b_SI.mean(axis=0)
        gains.append(a_mean_I - b_mean_I)
    return gains


def _seed_component(means_S: Array) -> VarianceComponent:
    """Return the squared standard error of a mean over S seeds."""
    seeds = len(means_S)
    sample_variance = means_S.var(ddof=1)
    return VarianceComponent(sample_variance / seeds, dof=seeds - 1)


def _item_component(gain_I: Array, strata: int) -> VarianceComponent:
    """Return the squared standard error that the I items of one of several strata contribute."""
    items = len(gain_I)
    sample_variance = gain_I.var(ddof=1)
    return VarianceComponent(sample_variance / items / strata**2, dof=items - 1)


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
) -> Estimate:
    """Return the mean over strata of the mean score of each S x I array, with bootstrap limits.

    One draw of seeds serves all strata; items are drawn within each stratum, by multinomial
    weights. A single seed is kept, and only items are drawn. A bootstrap over few seeds is too
    narrow, so the limits reach at least as far as Student's t over the S seed means.
    """
    strata_SI = [_checked(scores) for scores in strata]
    seeds = _common_seed_count(strata_SI)
    rng = np.random.default_rng(seed)
    equal_chances = np.full(seeds, 1 / seeds)
    weights_RS = rng.multinomial(seeds, equal_chances, replicates) / seeds
    sums_R = sum(
        _resampled_means(scores_SI, weights_RS, rng) for scores_SI in strata_SI
    )
    means_R = sums_R / len(strata_SI)
    tails = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.quantile(means_R, tails)

    means_S = _seed_means(strata_SI)
    value = means_S.mean()
    half_width = student_half_width(means_S, level)
    low = min(low, value - half_width)
    high = max(high, value + half_width)
    return Estimate(float(value), float(low), float(high))


def _common_seed_count(strata_SI: Side) -> int:
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


def holm(p: ArrayLike) -> Array:
    """Return Holm's adjusted p-values in the order given; nan stays nan and is no test."""
    raw = np.asarray(p, dtype=float)
    adjusted = np.full(raw.shape, np.nan)
    is_test = ~np.isnan(raw)
    tested = np.flatnonzero(is_test)
    by_p = np.argsort(raw[tested], kind="stable")
    hypotheses_left = len(tested)
    largest = 0.0  # an adjusted p-value is never below that of a smaller p-value
    for index in tested[by_p]:
        largest = max(largest, raw[index] * hypotheses_left)
        adjusted[index] = min(1.0, largest)
        hypotheses_left -= 1
    return adjusted


def verdict(low: float, high: float, paper_sign: int | None) -> str:
    """Judge the sign (1 or -1) that a paper claims by the limits of a reproduced difference.

    Returns "one seed" without limits, "undecided" if they contain zero, else "same sign" or
    "other sign", and an empty string without a claim. This is one uncorrected comparison: only
    the ledger of claims corrects for multiple comparisons and calls a claim found.
    """
    if paper_sign is None:
        return ""
    if np.isnan([low, high]).any():
        return "one seed"
    if low <= 0 <= high:
        return "undecided"
    return "same sign" if low * paper_sign > 0 else "other sign"


def _checked(scores: ArrayLike) -> Array:
    """Return scores as a float array; ValueError unless it is finite, not empty and 2-D."""
    array = np.asarray(scores, dtype=float)
    if array.ndim != 2 or not array.size or not np.isfinite(array).all():
        raise ValueError(
            f"scores must be finite, not empty and have 2 axes, got shape {array.shape}"
        )
    return array
