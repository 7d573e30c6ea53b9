"""Every statistic against hand-computed, scipy or brute-force values, and intervals against simulations."""

import itertools

import numpy as np
import pytest

from reproduce.analysis import stats


def test_one_seed_bootstrap_equals_every_possible_resample() -> None:
    gain = np.array([1.0, 0.0, -1.0, 1.0, 1.0])
    every = sorted(np.mean(draw) for draw in itertools.product(gain, repeat=5))
    delta, *limits = stats.bootstrap([gain[None]], level=0.8, replicates=40_000)
    assert delta == pytest.approx(0.4)
    assert tuple(limits) == pytest.approx(tuple(np.quantile(every, [0.1, 0.9])), abs=1e-9)


def test_bootstrap_spread_of_items_and_seeds() -> None:
    rng = np.random.default_rng(0)
    items_1I = rng.integers(0, 2, (1, 400)).astype(float)
    _, low, high = stats.bootstrap([items_1I], replicates=20_000)
    error = items_1I.std() / 400**0.5
    assert (high - low) / 2 == pytest.approx(1.96 * error, rel=0.05)
    constant_SI = np.repeat([[0.1], [0.2], [0.6]], 50, axis=1)  # only seeds differ: Student's t rules
    half = 4.302652729696142 * np.std([0.1, 0.2, 0.6], ddof=1) / 3**0.5
    assert stats.bootstrap([constant_SI]) == pytest.approx((0.3, 0.3 - half, 0.3 + half))


def test_stratified_weighs_benchmarks_equally_and_shares_seeds() -> None:
    assert stats.bootstrap([np.ones((1, 2)), np.zeros((1, 98))]) == (0.5, 0.5, 0.5)
    up = np.repeat([[1.0], [0.0], [0.5]], 4, axis=1)  # seed effects cancel between the two benchmarks
    assert stats.bootstrap([up, 1 - up]) == pytest.approx((0.5, 0.5, 0.5))
    with pytest.raises(ValueError, match="same number of seeds"):
        stats.bootstrap([np.zeros((1, 3)), np.zeros((2, 3))])
    with pytest.raises(ValueError, match="finite"):
        stats.bootstrap([np.array([[np.nan]])])


@pytest.mark.parametrize(("seeds", "spread"), [((3, 3), 0.0), ((3, 5), 0.3), ((5, 3), 0.01)])
def test_the_interval_of_a_difference_is_neither_too_narrow_nor_too_wide(seeds: tuple[int, int], spread: float) -> None:
    rng, hits = np.random.default_rng(7), []
    for _ in range(400):
        gain_I = 0.1 + 0.5 * rng.standard_normal(80)
        a, b = (spread * rng.standard_normal((n, 1)) + 0.3 * rng.standard_normal((n, 80)) for n in seeds)
        low, high = stats.difference([a + gain_I], [b]).limits
        hits.append(low <= 0.1 <= high)
    assert 0.92 <= np.mean(hits) <= 0.985


def test_a_difference_holds_the_noise_of_the_seeds_of_both_arms_and_of_the_items() -> None:
    a, b = np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0]]), np.array([[0.0, 1.0], [0.0, 0.0]])
    found = stats.difference([a], [b])
    seeds = [np.var([1, 0.5, 0], ddof=1) / 3, np.var([0.5, 0], ddof=1) / 2]
    items = np.var([2 / 3 - 0, 1 / 3 - 1 / 2], ddof=1) / 2
    assert (found.delta, found.error) == pytest.approx((0.25, (sum(seeds) + items) ** 0.5))
    parts = (*zip(seeds, (2, 1), strict=True), (items, 1))  # Welch and Satterthwaite
    assert found.freedom == pytest.approx(found.error**4 / sum(part**2 / freedom for part, freedom in parts))
    assert found.reach() < found.reach(0.8)
    alone = stats.difference([a], [b[:1]], (False, True))
    assert alone.error == pytest.approx((seeds[0] + np.var([2 / 3, 1 / 3 - 1], ddof=1) / 2) ** 0.5)
    assert np.isnan(stats.difference([a], [b[:1]]).error), "one seed of a trained arm: nobody knows its noise"


def test_holm_by_hand() -> None:
    # sorted .005 .01 .03 .04 -> *4 *3 *2 *1 = .02 .03 .06 .04 -> running maximum .02 .03 .06 .06
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert stats.holm([0.9, 0.8]) == pytest.approx([1, 1])
    with_gap = stats.holm([0.01, np.nan, 0.04])
    assert np.isnan(with_gap[1]) and with_gap[[0, 2]] == pytest.approx([0.02, 0.04])


VERDICTS = [(0.1, 0.3, 1, "same sign"), (-0.3, -0.1, -1, "same sign"), (-0.3, -0.1, 1, "other sign")]
VERDICTS += [(0.0, 0.3, 1, "undecided"), (0.0, 0.0, 1, "undecided")]
VERDICTS += [(0.1, 0.3, None, ""), (float("nan"), float("nan"), 1, "one seed")]


@pytest.mark.parametrize(("low", "high", "sign", "expected"), VERDICTS)
def test_verdict(low: float, high: float, sign: int | None, expected: str) -> None:
    assert stats.verdict(low, high, sign) == expected
