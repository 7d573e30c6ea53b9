"""Every statistic against hand-computed, scipy or brute-force values, and intervals against simulations."""

import itertools
from math import comb

import numpy as np
import pytest
from scipy.stats import ttest_rel

from reproduce.analysis import stats


def test_wilson_by_its_closed_form() -> None:
    z, k, n = 1.959963984540054, 7, 20
    p = k / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    reach = z * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5 / (1 + z * z / n)
    assert stats.wilson(k, n) == pytest.approx((centre - reach, centre + reach))
    assert stats.wilson(0, 10) == pytest.approx((0.0, z * z / (10 + z * z)))


@pytest.mark.parametrize(("lost", "won", "same"), [(0, 0, 5), (1, 0, 3), (2, 2, 0), (1, 6, 4), (10, 3, 1)])
def test_mcnemar_midp_by_enumeration(lost: int, won: int, same: int) -> None:
    a, b = [1] * lost + [0] * won + [1] * same, [0] * lost + [1] * won + [1] * same
    count, distance = lost + won, abs(won - lost)
    halves = [1 + (abs(2 * x - count) > distance) for x in range(count + 1)]  # what lies as far counts one half
    expected = sum(comb(count, x) * halves[x] for x in range(count + 1) if abs(2 * x - count) >= distance)
    assert stats.mcnemar_midp(a, b) == pytest.approx(expected / 2 ** (count + 1) if count else 1.0)
    assert stats.mcnemar_midp(a, b) == stats.mcnemar_midp(b, a)
    assert stats.mcnemar_midp([0, 0, 0, 0], [1, 1, 1, 1]) == pytest.approx(1 / 16)  # 2 * (1/16) / 2


def test_one_seed_bootstrap_equals_every_possible_resample() -> None:
    gain = np.array([1.0, 0.0, -1.0, 1.0, 1.0])
    every = sorted(np.mean(draw) for draw in itertools.product(gain, repeat=5))
    got = stats.bootstrap([gain[None]], level=0.8, replicates=40_000)
    assert got.delta == pytest.approx(0.4)
    assert (got.low, got.high) == pytest.approx(tuple(np.quantile(every, [0.1, 0.9])), abs=1e-9)


def test_bootstrap_spread_of_items_and_seeds() -> None:
    rng = np.random.default_rng(0)
    items_1I = rng.integers(0, 2, (1, 400)).astype(float)
    _, low, high = stats.bootstrap([items_1I], replicates=20_000)
    error = items_1I.std() / 400**0.5
    assert (high - low) / 2 == pytest.approx(1.96 * error, rel=0.05)
    constant_SI = np.repeat([[0.1], [0.2], [0.6]], 50, axis=1)  # only seeds differ: Student's t rules
    half = 4.302652729696142 * np.std([0.1, 0.2, 0.6], ddof=1) / 3**0.5
    assert stats.bootstrap([constant_SI]) == pytest.approx((0.3, 0.3 - half, 0.3 + half))


def test_single_base_row_pairs_with_every_seed() -> None:
    base, runs = np.array([[0, 1, 0, 1.0]]), np.array([[1, 1, 0, 1], [1, 1, 1, 1.0]])
    repeated = np.repeat(base, 2, 0)
    assert stats.stratified_bootstrap([base], [runs]) == stats.stratified_bootstrap([repeated], [runs])
    with pytest.raises(ValueError, match="same seeds x items"):
        stats.stratified_bootstrap([np.zeros((2, 4))], [np.zeros((3, 4))])


def test_stratified_weighs_benchmarks_equally_and_shares_seeds() -> None:
    small, large = np.ones((1, 2)), np.zeros((1, 98))
    assert stats.stratified_bootstrap([0 * small, large], [small, large]) == (0.5, 0.5, 0.5)
    up = np.repeat([[1.0], [0.0], [0.5]], 4, axis=1)  # seed effects cancel between the two benchmarks
    assert stats.bootstrap([up, 1 - up]) == pytest.approx((0.5, 0.5, 0.5))
    with pytest.raises(ValueError, match="same number of seeds"):
        stats.bootstrap([np.zeros((1, 3)), np.zeros((2, 3))])
    with pytest.raises(ValueError, match="finite"):
        stats.bootstrap([np.array([[np.nan]])])


@pytest.mark.parametrize(("seeds", "spread"), [(1, 0.0), (3, 0.0), (3, 0.3), (5, 0.15)])
def test_paired_interval_covers_the_truth(seeds: int, spread: float) -> None:
    rng, hits = np.random.default_rng(7), []
    for _ in range(250):
        a = rng.integers(0, 2, (seeds, 80))
        b = a + 0.1 + spread * rng.standard_normal((seeds, 1)) + 0.3 * rng.standard_normal((seeds, 80))
        _, low, high = stats.stratified_bootstrap([a], [b], replicates=600)
        hits.append(low <= 0.1 <= high)
    assert np.mean(hits) >= 0.91


def test_paired_p_takes_the_test_that_fits() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, 2, (4, 60)), rng.integers(0, 2, (4, 60))
    assert stats.paired_p(a[:1], b[:1]) == stats.mcnemar_midp(a[0], b[0])
    assert stats.paired_p(a, b) == pytest.approx(ttest_rel(b.mean(1), a.mean(1)).pvalue)
    parts_a, parts_b = rng.random((1, 30)), rng.random((1, 30))
    assert stats.paired_p(parts_a, parts_b) == pytest.approx(ttest_rel(parts_b[0], parts_a[0]).pvalue)
    assert stats.paired_p(a, a) == 1.0
    assert stats.paired_p(np.zeros((2, 3)), np.ones((2, 3))) == 0.0


def test_holm_by_hand() -> None:
    # sorted .005 .01 .03 .04 -> *4 *3 *2 *1 = .02 .03 .06 .04 -> running maximum .02 .03 .06 .06
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert stats.holm([0.9, 0.8]) == pytest.approx([1, 1])
    with_gap = stats.holm([0.01, np.nan, 0.04])
    assert np.isnan(with_gap[1]) and with_gap[[0, 2]] == pytest.approx([0.02, 0.04])


UP, DOWN, UNKNOWN = (0.2, 0.1, 0.3), (-0.2, -0.3, -0.1), (float("nan"),) * 3
VERDICTS = [(UP, 1, "agrees"), (DOWN, -1, "agrees"), (DOWN, 1, "disagrees"), (UP, 0, "disagrees")]
VERDICTS += [((0.2, 0.0, 0.3), 1, "undecided"), ((0.0, 0.0, 0.0), 0, "undecided"), (UNKNOWN, 1, "undecided")]


@pytest.mark.parametrize(("interval", "sign", "expected"), VERDICTS)
def test_verdict(interval: tuple[float, float, float], sign: int, expected: str) -> None:
    assert stats.verdict(*interval, sign) == expected
