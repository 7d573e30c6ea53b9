"""Corrections for many tests, by hand, beside scipy's, and the level that decides the same."""

import numpy as np
import pytest
import scipy
from pytest import approx

from reproduce.analysis import corrections
from reproduce.analysis.corrections import BENJAMINI_HOCHBERG, HOLM, Correction

BOTH = {"holm": HOLM, "benjamini": BENJAMINI_HOCHBERG}
each_correction = pytest.mark.parametrize("correction", BOTH.values(), ids=BOTH)


def test_holm_by_hand() -> None:
    # sorted .005 .01 .03 .04, times 4 3 2 1: .02 .03 .06 .04, as a running maximum: .02 .03 .06 .06
    adjusted = corrections.holm([0.01, 0.04, 0.03, 0.005])
    assert adjusted == approx([0.03, 0.06, 0.06, 0.02])
    assert corrections.holm([0.9, 0.8]) == approx([1, 1])


def test_benjamini_and_hochberg_as_in_scipy() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(20) ** 3
    expected = scipy.stats.false_discovery_control(p, method="bh")
    assert corrections.benjamini_hochberg(p) == approx(expected)


@each_correction
def test_a_missing_p_is_no_test(correction: Correction) -> None:
    with_gap = [0.01, np.nan, 0.04]
    without = [0.01, 0.04]
    for function in (correction.adjusted, correction.levels):
        first, gap, last = function(with_gap)
        assert np.isnan(gap)
        assert [first, last] == approx(list(function(without)))


@each_correction
def test_no_tests_have_no_levels(correction: Correction) -> None:
    assert len(correction.levels([])) == 0


@each_correction
def test_a_p_value_reaches_its_level_where_its_adjusted_one_reaches_5_percent(
    correction: Correction,
) -> None:
    rng = np.random.default_rng(1)
    significant = 0
    for _ in range(300):
        tests = rng.integers(1, 15)
        p = rng.random(tests) ** 4
        by_adjusted = correction.adjusted(p) <= 0.05
        by_level = p <= correction.levels(p)
        assert (by_adjusted == by_level).all()
        significant += by_level.sum()
    assert significant > 300


def test_levels_of_holm_by_hand() -> None:
    # The first of four passes .05 / 4, so that the next one needs .05 / 3, and stops there.
    levels = corrections.holm_levels([0.01, 0.02, 0.03, 0.9])
    assert levels == approx([0.05 / 4, 0.05 / 3, 0.05 / 3, 0.05 / 3])


def test_levels_of_benjamini_and_hochberg_by_hand() -> None:
    # Two others stay below 3 / 4 of .05, so that a third one may reach it.
    levels = corrections.benjamini_hochberg_levels([0.01, 0.02, 0.5, 0.9])
    assert levels == approx([0.025, 0.025, 0.0375, 0.0375])
