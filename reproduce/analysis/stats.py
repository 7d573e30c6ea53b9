"""Statistics as pure functions on arrays; axes are S seeds, I items, B benchmarks.

Knows no table, no benchmark name and no paper. A score is any finite number, most often 0 or 1 for one item.
Everything random takes a seed and repeats exactly.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

REPLICATES = 10_000
LEVEL = 0.95
Side = Sequence[NDArray[np.float64]]  # of each stratum S seeds x I items


def wilson(k: int, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Return the Wilson score limits of k successes in n >= 1 trials."""
    limits = scipy.stats.binomtest(int(k), int(n)).proportion_ci(level, method="wilson")
    return float(limits.low), float(limits.high)


@dataclass(frozen=True)
class Effect:
    """A difference with its standard error and degrees of freedom; nan where seeds are too few to know."""

    delta: float
    error: float
    freedom: float

    @property
    def p(self) -> float:
        """Two-sided p of no difference."""
        if self.error == 0:
            return float(self.delta == 0)
        return float(2 * scipy.stats.t.sf(abs(self.delta) / self.error, self.freedom))

    @property
    def limits(self) -> tuple[float, float]:
        """The interval that holds the true difference in 95 of 100 cases."""
        return self.delta - self.reach(), self.delta + self.reach()

    def reach(self, power: float = 0.5) -> float:
        """How far an effect has to be from 0 to be seen with this probability; at one half, half the interval."""
        ask = scipy.stats.t.ppf((1 + LEVEL) / 2, self.freedom) + scipy.stats.t.ppf(power, self.freedom)
        return float(ask * self.error)


def difference(a: Side, b: Side | None = None, fixed: tuple[bool, bool] = (False, False)) -> Effect:
    """Return side a less side b, or side a itself; strata weigh alike.

    The error holds the seed noise of both sides and the noise of the items, which both sides answered; the degrees of
    freedom weigh all of these by their size (Welch and Satterthwaite). `fixed` sides were not trained, so one seed is
    all there is; a trained side with one seed leaves the error nan.
    """
    sides = [a] if b is None else [a, b]
    means = [np.mean([part_SI.mean(axis=1) for part_SI in side], axis=0) for side in sides]
    delta = float(means[0].mean() - (means[1].mean() if b is not None else 0.0))
    trained = [mean_S for mean_S, still in zip(means, fixed, strict=False) if not still]
    if any(len(mean_S) < 2 for mean_S in trained):
        return Effect(delta, np.nan, np.nan)
    noise = [(mean_S.var(ddof=1) / len(mean_S), len(mean_S) - 1) for mean_S in trained]
    items = zip(a, b or [np.zeros_like(part_SI) for part_SI in a], strict=True)
    pairs = [a_SI.mean(axis=0) - b_SI.mean(axis=0) for a_SI, b_SI in items]
    noise += [
        (gain_I.var(ddof=1) / len(gain_I) / len(pairs) ** 2, len(gain_I) - 1) for gain_I in pairs if len(gain_I) > 1
    ]
    variance, spread = sum(v for v, _ in noise), sum(v**2 / freedom for v, freedom in noise)
    return Effect(delta, float(np.sqrt(variance)), float(variance**2 / spread) if spread else np.inf)


def bootstrap(
    strata: Sequence[ArrayLike], level: float = LEVEL, replicates: int = REPLICATES, seed: int = 0
) -> tuple[float, float, float]:
    """Return the mean over strata of the mean score of each S x I array, and its bootstrap limits.

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
    return float(delta), float(min(low, delta - far)), float(max(high, delta + far))


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


def holm(p: ArrayLike) -> NDArray[np.float64]:
    """Return Holm's adjusted p-values in the order given; NaN stays NaN and does not count as a test."""
    raw = np.asarray(p, dtype=float)
    adjusted, tested = np.full(raw.shape, np.nan), np.flatnonzero(~np.isnan(raw))
    order = tested[np.argsort(raw[tested], kind="stable")]
    adjusted[order] = np.minimum(1, np.maximum.accumulate(raw[order] * np.arange(len(order), 0, -1)))
    return adjusted


def verdict(low: float, high: float, paper_sign: int | None) -> str:
    """Judge the sign (1 or -1) that a paper claims by the limits of our difference; no claim gives no verdict.

    "One seed" without limits, "undecided" while they hold zero, else "same sign" or "other sign". One comparison by
    itself: only the ledger of claims corrects for their number, and only the ledger calls a claim found.
    """
    if paper_sign is None:
        return ""
    if np.isnan([low, high]).any():
        return "one seed"
    if low <= 0 <= high:
        return "undecided"
    return "same sign" if low * paper_sign > 0 else "other sign"


def _scores(scores: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(scores, dtype=float)
    if array.ndim != 2 or not array.size or not np.isfinite(array).all():
        raise ValueError(f"scores must be finite, not empty and have 2 axes, got shape {array.shape}")
    return array
