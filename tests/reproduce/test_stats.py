"""Every statistic against values by hand, from scipy or by brute force, and by simulation."""

import itertools
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


ITEMS = 80
REPLICATIONS = 400
TRUE_DIFFERENCE = 0.1
# Seeds of both sides, and the standard deviation of the effect of a seed.
SIMULATIONS = [
    ((3, 3), 0.0),
    ((3, 5), 0.3),
    ((5, 3), 0.01),
]


@pytest.mark.parametrize(("seeds", "seed_deviation"), SIMULATIONS)
def test_the_95_percent_interval_of_a_difference_covers_the_truth_as_often_as_it_says(
    seeds: tuple[int, int], seed_deviation: float
) -> None:
    rng = np.random.default_rng(7)

    def scores_RSI(seed_count: int) -> np.ndarray:
        seed_effects = rng.standard_normal((REPLICATIONS, seed_count, 1))
        noise = rng.standard_normal((REPLICATIONS, seed_count, ITEMS))
        return seed_deviation * seed_effects + 0.3 * noise

    item_effects = rng.standard_normal((REPLICATIONS, 1, ITEMS))
    true_gain_RSI = TRUE_DIFFERENCE + 0.5 * item_effects
    a_RSI = scores_RSI(seeds[0]) + true_gain_RSI
    b_RSI = scores_RSI(seeds[1])

    covered = 0
    for a_SI, b_SI in zip(a_RSI, b_RSI, strict=True):
        low, high = stats.difference([a_SI], [b_SI]).limits
        covered += low <= TRUE_DIFFERENCE <= high
    assert 0.92 <= covered / REPLICATIONS <= 0.985


def test_the_interval_over_two_strata_and_an_untrained_side_covers_the_truth() -> None:
    rng = np.random.default_rng(11)
    seed_effects = 0.2 * rng.standard_normal((REPLICATIONS, 4, 1))
    # Of two strata of unequal size; their mean is the truth.
    gains = (
        0.0,
        2 * TRUE_DIFFERENCE,
    )
    covered = 0
    for effect_SI in seed_effects:
        trained = []
        untrained = []
        for gain, items in zip(gains, (40, 90), strict=True):
            gain_I = gain + 0.5 * rng.standard_normal(items)
            untrained.append(np.zeros((1, items)))
            trained.append(effect_SI + gain_I)
        effect = stats.difference(trained, untrained, fixed=(False, True))
        low, high = effect.limits
        covered += low <= TRUE_DIFFERENCE <= high
    assert 0.92 <= covered / REPLICATIONS <= 0.985


A_SI = np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
B_SI = np.array([[0.0, 1.0], [0.0, 0.0]])
SEED_VARIANCE_A = np.var([1, 0.5, 0], ddof=1) / 3
SEED_VARIANCE_B = np.var([0.5, 0], ddof=1) / 2


def test_a_difference_adds_up_the_noise_of_both_sides_seeds_and_of_the_items() -> None:
    effect = stats.difference([A_SI], [B_SI])
    item_variance = np.var([2 / 3 - 0, 1 / 3 - 1 / 2], ddof=1) / 2
    variance = SEED_VARIANCE_A + SEED_VARIANCE_B + item_variance
    assert effect.delta == approx(0.25)
    assert effect.standard_error == approx(variance**0.5)
    denominator = SEED_VARIANCE_A**2 / 2
    denominator += SEED_VARIANCE_B**2 / 1
    denominator += item_variance**2 / 1
    assert effect.dof == approx(variance**2 / denominator), "Welch and Satterthwaite"


def test_a_side_without_seed_noise_adds_that_of_the_items_alone() -> None:
    effect = stats.difference([A_SI], [B_SI[:1]], (False, True))
    item_variance = np.var([2 / 3, 1 / 3 - 1], ddof=1) / 2
    variance = SEED_VARIANCE_A + item_variance
    assert effect.standard_error == approx(variance**0.5)


def test_one_seed_of_a_trained_side_leaves_its_noise_unknown() -> None:
    effect = stats.difference([A_SI], [B_SI[:1]])
    assert np.isnan(effect.standard_error)


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
    low, high = effect.limits
    at_even_odds = effect.detectable(0.5)
    assert at_even_odds == approx((high - low) / 2)
    assert at_even_odds < effect.detectable(0.8)


def test_welch_satterthwaite_of_equal_components_adds_their_degrees_of_freedom() -> (
    None
):
    component = stats.VarianceComponent(variance=0.2, dof=4)
    assert stats.welch_satterthwaite([component, component]) == approx(8)
    silent = stats.VarianceComponent(variance=0.0, dof=4)
    assert stats.welch_satterthwaite([silent]) == np.inf


def test_holm_by_hand() -> None:
    # sorted .005 .01 .03 .04, times 4 3 2 1: .02 .03 .06 .04, as a running maximum: .02 .03 .06 .06
    adjusted = stats.holm([0.01, 0.04, 0.03, 0.005])
    assert adjusted == approx([0.03, 0.06, 0.06, 0.02])
    assert stats.holm([0.9, 0.8]) == approx([1, 1])


def test_holm_does_not_count_a_missing_p_as_a_test() -> None:
    adjusted = stats.holm([0.01, np.nan, 0.04])
    assert np.isnan(adjusted[1])
    assert adjusted[[0, 2]] == approx([0.02, 0.04])


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
        verdict="same sign",
    ),
    Judged(
        low=-0.3,
        high=-0.1,
        paper_sign=-1,
        verdict="same sign",
    ),
    Judged(
        low=-0.3,
        high=-0.1,
        paper_sign=1,
        verdict="other sign",
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
