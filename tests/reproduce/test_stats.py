"""Every statistic against values by hand, from scipy or by brute force, and by simulation."""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
import scipy
from pytest import approx

from reproduce.analysis import stats

NAN = float("nan")


def test_a_one_seed_bootstrap_equals_every_possible_resample() -> None:
    gain_I = np.array([1.0, 0.0, -1.0, 1.0, 1.0])
    resamples = list(itertools.product(gain_I, repeat=5))
    means = np.mean(resamples, axis=1)
    low, high = np.quantile(means, [0.1, 0.9])
    estimate = stats.bootstrap(
        [gain_I[None]],
        level=0.8,
        replicates=40_000,
    )
    assert estimate.value == approx(0.4)
    assert estimate.low == approx(low, abs=1e-9)
    assert estimate.high == approx(high, abs=1e-9)


def test_the_bootstrap_over_items_has_the_normal_width() -> None:
    rng = np.random.default_rng(0)
    items_1I = rng.integers(0, 2, (1, 400)).astype(float)
    estimate = stats.bootstrap([items_1I], replicates=20_000)
    standard_error = items_1I.std() / 20
    width = estimate.high - estimate.low
    half_width = width / 2
    assert half_width == approx(1.96 * standard_error, rel=0.05)


def test_the_bootstrap_over_few_seeds_is_as_wide_as_student_s_t() -> None:
    only_seeds_differ_SI = np.repeat([[0.1], [0.2], [0.6]], 50, axis=1)
    t_quantile = 4.302652729696142  # 97.5 %, two degrees of freedom
    deviation = np.std([0.1, 0.2, 0.6], ddof=1)
    half_width = t_quantile * deviation / 3**0.5
    estimate = stats.bootstrap([only_seeds_differ_SI])
    assert estimate.value == approx(0.3)
    assert estimate.low == approx(0.3 - half_width)
    assert estimate.high == approx(0.3 + half_width)


def test_strata_have_equal_weight_and_share_seeds() -> None:
    few_items = np.ones((1, 2))
    many_items = np.zeros((1, 98))
    assert stats.bootstrap([few_items, many_items]) == (0.5, 0.5, 0.5)
    up_SI = np.repeat([[1.0], [0.0], [0.5]], 4, axis=1)
    down_SI = 1 - up_SI  # the effects of the seeds cancel between the two strata
    assert stats.bootstrap([up_SI, down_SI]) == approx((0.5, 0.5, 0.5))


def test_the_bootstrap_refuses_unequal_seeds_and_missing_scores() -> None:
    one_seed = np.zeros((1, 3))
    two_seeds = np.zeros((2, 3))
    missing = np.full((1, 1), np.nan)
    with pytest.raises(ValueError, match="same number of seeds"):
        stats.bootstrap([one_seed, two_seeds])
    with pytest.raises(ValueError, match="finite"):
        stats.bootstrap([missing])


def test_p_and_limits_are_student_s() -> None:
    effect = stats.Effect(delta=2.0, standard_error=0.5, dof=3.0)
    student = scipy.stats.t(3)
    half_width = student.ppf(0.975) * 0.5
    low, high = effect.limits
    assert low == approx(2 - half_width)
    assert high == approx(2 + half_width)
    one_sided_p = student.sf(4)
    assert effect.p == approx(2 * one_sided_p)


def test_a_larger_effect_is_detected_more_often() -> None:
    effect = stats.Effect(delta=2.0, standard_error=0.5, dof=3.0)
    assert effect.detectable(0.5) < effect.detectable(0.8) < effect.detectable(0.9)


@pytest.mark.parametrize("dof", [3.0, 40.0, math.inf])
@pytest.mark.parametrize("alpha", [0.05, 0.004])
def test_a_detectable_effect_is_detected_as_often_as_asked(
    dof: float, alpha: float
) -> None:
    rng = np.random.default_rng(0)
    draws = 200_000
    smallest = stats.Effect(delta=0.0, standard_error=1.0, dof=dof).detectable(
        0.8, alpha
    )
    spread = 1.0 if math.isinf(dof) else np.sqrt(rng.chisquare(dof, draws) / dof)
    t = rng.normal(smallest, 1.0, draws) / spread
    critical = scipy.stats.t.ppf(1 - alpha / 2, dof)
    assert (t > critical).mean() == approx(0.8, abs=0.005)


def test_the_evidence_counts_degrees_of_freedom() -> None:
    few = stats.Effect(delta=2.6, standard_error=1.0, dof=4.0)
    many = stats.Effect(delta=2.45, standard_error=1.0, dof=60.0)
    assert few.evidence < many.evidence
    assert few.evidence == approx(-math.log(few.p / 2))


def test_the_weights_of_strata_can_differ() -> None:
    zeros = np.zeros((2, 5))
    ones = np.ones((2, 5))
    estimate = stats.bootstrap([zeros, ones], weights=[0.25, 0.75])
    assert estimate == approx((0.75, 0.75, 0.75))


def test_a_stricter_level_needs_a_larger_effect() -> None:
    effect = stats.Effect(delta=2.0, standard_error=0.5, dof=3.0)
    assert effect.detectable(0.8, alpha=0.01) > effect.detectable(0.8)


def test_welch_satterthwaite_of_equal_components_adds_their_degrees_of_freedom() -> (
    None
):
    component = stats.VarianceComponent(variance=0.2, dof=4)
    total = stats.total([component, component])
    assert total.variance == approx(0.4)
    assert total.dof == approx(8)
    silent = stats.VarianceComponent(variance=0.0, dof=4)
    assert stats.total([silent]).dof == np.inf


def test_a_cautious_total_averages_the_reciprocal_degrees_of_freedom() -> None:
    few = stats.VarianceComponent(variance=0.3, dof=4)
    many = stats.VarianceComponent(variance=0.1, dof=np.inf)
    total = stats.cautious_total([few, many])
    assert total.variance == approx(0.4)
    assert total.dof == approx(1 / (0.75 / 4))
    silent = stats.VarianceComponent(variance=0.0, dof=np.inf)
    assert stats.cautious_total([silent]).dof == np.inf


@dataclass(frozen=True)
class Judged:
    low: float
    high: float
    paper_sign: int | None
    verdict: str


VERDICTS = [
    Judged(
        low=0.1,
        high=0.3,
        paper_sign=1,
        verdict="as printed",
    ),
    Judged(
        low=-0.3,
        high=-0.1,
        paper_sign=-1,
        verdict="as printed",
    ),
    Judged(
        low=-0.3,
        high=-0.1,
        paper_sign=1,
        verdict="against print",
    ),
    Judged(
        low=0.0,
        high=0.3,
        paper_sign=1,
        verdict="undecided",
    ),
    Judged(
        low=0.0,
        high=0.0,
        paper_sign=1,
        verdict="undecided",
    ),
    Judged(
        low=0.1,
        high=0.3,
        paper_sign=None,
        verdict="",
    ),
    Judged(
        low=NAN,
        high=NAN,
        paper_sign=1,
        verdict="one seed",
    ),
]


@pytest.mark.parametrize("case", VERDICTS)
def test_a_verdict_follows_from_the_limits_and_the_claimed_sign(
    case: Judged,
) -> None:
    verdict = stats.verdict(case.low, case.high, case.paper_sign)
    assert verdict == case.verdict
