"""Statistics as pure functions on arrays; axes are S seeds, I items, B benchmarks.

Knows no table, no benchmark name and no paper. A score is any finite number, most often 0 or 1 for one item.
Everything random takes a seed and repeats exactly.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

REPLICATES = 10_000


class Interval(NamedTuple):
    """An estimate with its confidence limits; unpacks as `delta, low, high`."""

    delta: float
    low: float
    high: float


def wilson(k: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Return the Wilson score limits of k successes in n >= 1 trials."""
    limits = scipy.stats.binomtest(int(k), int(n)).proportion_ci(level, method="wilson")
    return float(limits.low), float(limits.high)


def mcnemar_midp(a: ArrayLike, b: ArrayLike) -> float:
    """Return the two-sided exact mid-p of McNemar's test on two 0/1 vectors over the same I items."""
    a_I, b_I = np.asarray(a), np.asarray(b)
    lost, won = int((a_I > b_I).sum()), int((b_I > a_I).sum())
    count = lost + won
    outcomes = np.arange(count + 1)
    chance = scipy.stats.binom.pmf(outcomes, count, 0.5)
    distance, seen = abs(2 * outcomes - count), abs(won - lost)
    return float(chance[distance > seen].sum() + chance[distance == seen].sum() / 2) if count else 1.0


def bootstrap(
    strata: Sequence[ArrayLike], level: float = 0.95, replicates: int = REPLICATES, seed: int = 0
) -> Interval:
    """Return the mean over strata of the mean score of each S x I array, with bootstrap limits.

    One draw of seeds serves all strata, items are drawn within each (multinomial weights); a single seed
    is kept and only items are drawn. A bootstrap over few seeds is too narrow, so the limits reach at
    least as far as Student's t over the S seed means.
    """
    strata_SI = [_scores(scores) for scores in strata]
    seeds = {scores_SI.shape[0] for scores_SI in strata_SI}
    if len(seeds) != 1:
        raise ValueError(f"every stratum needs the same number of seeds, at least one; got {sorted(seeds)}")
    size = seeds.pop()
    rng = np.random.default_rng(seed)
    weights_RS = rng.multinomial(size, np.full(size, 1 / size), replicates) / size
    means_R = sum(_reweighted(scores_SI, weights_RS, rng) for scores_SI in strata_SI) / len(strata_SI)
    low, high = np.quantile(means_R, [(1 - level) / 2, (1 + level) / 2])
    means_S = np.mean([scores_SI.mean(axis=1) for scores_SI in strata_SI], axis=0)
    delta, far = means_S.mean(), reach(means_S, level)
    return Interval(float(delta), float(min(low, delta - far)), float(max(high, delta + far)))


def reach(means_S: NDArray[np.float64], level: float) -> float:
    """Return how far Student's t reaches to either side of the mean of S seeds; 0.0 for a single one."""
    if len(means_S) < 2:
        return 0.0
    return scipy.stats.t.ppf((1 + level) / 2, len(means_S) - 1) * means_S.std(ddof=1) / np.sqrt(len(means_S))


def _reweighted(
    scores_SI: NDArray[np.float64], weights_RS: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    # Items with equal columns are interchangeable, so drawing their counts is the same draw, only cheaper.
    distinct_SU, counts_U = np.unique(scores_SI, axis=1, return_counts=True)
    items = scores_SI.shape[1]
    drawn_RU = rng.multinomial(items, counts_U / items, len(weights_RS)) / items
    return np.einsum("rs,su,ru->r", weights_RS, distinct_SU, drawn_RU, optimize=True)


def stratified_bootstrap(
    a_BSI: Sequence[ArrayLike],
    b_BSI: Sequence[ArrayLike],
    level: float = 0.95,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> Interval:
    """Return the gain of b over a averaged over B benchmarks of equal weight, each a pair of S x I arrays.

    The arrays of a pair hold the same seeds and items; a single row pairs with every seed.
    """
    return bootstrap([_gain(a, b) for a, b in zip(a_BSI, b_BSI, strict=True)], level, replicates, seed)


def paired_p(a_SI: ArrayLike, b_SI: ArrayLike) -> float:
    """Return the two-sided p of b against a on the same S seeds x I items.

    Several seeds: paired t over the seed means. One seed: mid-p McNemar, or paired t over the items when
    scores are fractions (items answered more than once).
    """
    gain_SI = _gain(a_SI, b_SI)
    if len(gain_SI) == 1 and np.isin(np.concatenate([a_SI, b_SI]), (0, 1)).all():
        return mcnemar_midp(np.asarray(a_SI)[0], np.asarray(b_SI)[0])
    gains = gain_SI.mean(axis=1) if len(gain_SI) > 1 else gain_SI[0]
    if np.ptp(gains) < 1e-12:
        return 1.0 if abs(gains[0]) < 1e-12 else 0.0
    return float(scipy.stats.ttest_1samp(gains, 0).pvalue)


def holm(p: ArrayLike) -> NDArray[np.float64]:
    """Return Holm's adjusted p-values in the order given; NaN stays NaN and does not count as a test."""
    raw = np.asarray(p, dtype=float)
    adjusted, tested = np.full(raw.shape, np.nan), np.flatnonzero(~np.isnan(raw))
    order = tested[np.argsort(raw[tested], kind="stable")]
    adjusted[order] = np.minimum(1, np.maximum.accumulate(raw[order] * np.arange(len(order), 0, -1)))
    return adjusted


def verdict(delta: float, low: float, high: float, paper_sign: int) -> str:
    """Judge the sign the paper claims (-1, 0 or 1) by our gain: "agrees", "disagrees" or "undecided".

    Undecided while the interval holds zero. A clear gain disagrees with a claim of no difference (0).
    """
    if np.isnan([delta, low, high]).any() or low <= 0 <= high:
        return "undecided"
    return "agrees" if np.sign(delta) == paper_sign else "disagrees"


def _scores(scores: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(scores, dtype=float)
    if array.ndim != 2 or not array.size or not np.isfinite(array).all():
        raise ValueError(f"scores must be finite, not empty and have 2 axes, got shape {array.shape}")
    return array


def _gain(a_SI: ArrayLike, b_SI: ArrayLike) -> NDArray[np.float64]:
    a, b = _scores(a_SI), _scores(b_SI)
    if a.shape[1] != b.shape[1] or (len(a) != len(b) and 1 not in (len(a), len(b))):
        raise ValueError(f"a and b must hold the same seeds x items, got {a.shape} and {b.shape}")
    return b - a
