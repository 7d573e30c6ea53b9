"""Peaks: what is measured, and how often a curve without a peak is said to pass one."""

import numpy as np
import pytest
from pytest import approx

from benchmarks import coverage
from reproduce.analysis import peaks
from reproduce.analysis.stats import Array

LOOKS = np.arange(12.0)
PARABOLA = -((LOOKS - 5) ** 2)  # windows of two looks


def units_like(curve_L: Array, noise: float = 0.0) -> Array:
    """Return five units that differ from a curve by a little noise."""
    rng = np.random.default_rng(0)
    looks = len(curve_L)
    noise_UL = rng.standard_normal((5, looks))
    return curve_L + noise * noise_UL


def test_a_peak_is_compared_with_both_ends() -> None:
    peak = peaks.measure(units_like(PARABOLA))
    at_peak = (0 - 1) / 2
    beginning = (-25 - 16) / 2
    end = (-25 - 36) / 2
    assert peak.rise.delta == approx(at_peak - beginning)
    assert peak.fall.delta == approx(at_peak - end)


def test_the_side_with_the_weaker_evidence_decides() -> None:
    peak = peaks.measure(units_like(PARABOLA, noise=0.5))
    assert peak.weaker in (peak.rise, peak.fall)
    assert peak.weaker.p == max(peak.rise.p, peak.fall.p)


def test_a_unit_is_measured_where_the_others_have_their_peak() -> None:
    curves_UL = units_like(0.001 * PARABOLA)
    curves_UL[0, 8] = 100.0  # the other units are highest at looks 4 to 6
    peak = peaks.measure(curves_UL)
    assert peak.rise.delta < 1


def test_a_plain_rise_ends_above_every_peak() -> None:
    peak = peaks.measure(units_like(LOOKS, noise=0.1))
    assert peak.weaker is peak.fall
    assert peak.weaker_side == "fall"
    assert peak.weaker.delta < 0


REPLICATES = 1000
NULLS = [curve for curve in coverage.CURVES if not curve.has_peak]
PLATEAU = NULLS[-1]
CLEAR_PEAK = coverage.CURVES[-1]
MOST = 0.025  # as rise and fall both have to be positive at a two-sided level of 5 %
STANDARD_ERROR = (MOST * (1 - MOST) / REPLICATES) ** 0.5


@pytest.mark.thorough
@pytest.mark.parametrize("curve", NULLS, ids=lambda curve: curve.name)
def test_a_curve_without_a_peak_is_seldom_said_to_pass_one(
    curve: coverage.Curve,
) -> None:
    found = coverage.found_peaks(curve, REPLICATES, seed=100)
    assert found["ledger"] <= MOST + 3 * STANDARD_ERROR


def test_a_parabola_alone_would_take_a_plateau_for_a_peak() -> None:
    found = coverage.found_peaks(PLATEAU, 50, seed=100)
    assert found["parabola"] > 0.9


def test_a_clear_peak_is_found() -> None:
    found = coverage.found_peaks(CLEAR_PEAK, 100, seed=100)
    assert found["ledger"] > 0.8
