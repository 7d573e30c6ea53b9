"""Differences over crossed units and questions: by hand, by definition, and by simulation."""

import numpy as np
import pytest
from pytest import approx
from scipy.stats import sem

from benchmarks import coverage
from benchmarks.simulated_runs import UNTRAINED, Arm, Design
from reproduce.analysis.crossed import (
    Side,
    difference,
    ratio,
    side,
    strata_weights,
    units_of,
)
from reproduce.analysis.stats import Array, Effect, student_quantile

UNITS = ["a", "b", "c", "d"]
QUESTIONS = 30


def drawn(seed: int, units: int = 4) -> Array:
    """Return random scores in which questions differ more than anything else."""
    rng = np.random.default_rng(seed)
    of_questions = rng.standard_normal(QUESTIONS)
    noise = rng.standard_normal((units, QUESTIONS))
    return noise + 3 * of_questions


def side_of(scores_UI: Array, asked_share: float = 0.0) -> Side:
    """Return a side of one stratum."""
    units = len(scores_UI)
    return side(
        [scores_UI],
        UNITS[:units],
        asked_shares=[asked_share],
    )


def sum_of_squares(values: Array) -> float:
    return values.size * np.var(values)


def interaction(scores_UI: Array) -> float:
    """Return the mean square of units on questions, by two-way analysis of variance."""
    units, questions = scores_UI.shape
    unit_means = np.mean(scores_UI, axis=1)
    question_means = np.mean(scores_UI, axis=0)
    rest = sum_of_squares(scores_UI)
    rest -= questions * sum_of_squares(unit_means)
    rest -= units * sum_of_squares(question_means)
    dof = (units - 1) * (questions - 1)
    return rest / dof


def of_units(scores_UI: Array) -> float:
    """Return the squared standard error of the mean over units."""
    unit_means = np.mean(scores_UI, axis=1)
    return sem(unit_means) ** 2


def of_questions(scores_UI: Array) -> float:
    """Return the variance over questions of the mean over units."""
    question_means = np.mean(scores_UI, axis=0)
    return np.var(question_means, ddof=1)


def check_equal(effect: Effect, other: Effect) -> None:
    assert effect.delta == approx(other.delta)
    assert effect.variance == approx(other.variance)
    assert effect.dof == approx(other.dof)


def test_a_paired_difference_adds_units_and_questions() -> None:
    gain_UI = drawn(seed=0)
    base_UI = drawn(seed=1)
    a = side_of(base_UI + gain_UI, asked_share=0.25)
    b = side_of(base_UI, asked_share=0.25)
    effect = difference(a, b)

    noise_in_means = interaction(gain_UI) / 4
    of_a_question = of_questions(gain_UI) - noise_in_means
    not_asked = 1 - 0.25
    from_questions = of_a_question * not_asked / QUESTIONS
    from_units = of_units(gain_UI)
    variance = from_units + from_questions
    assert effect.delta == approx(np.mean(gain_UI))
    assert effect.variance == approx(variance)
    weighted = from_units / 3
    weighted += from_questions / (QUESTIONS - 1)
    assert effect.dof == approx(variance / weighted)


def test_sides_of_other_units_are_independent_in_them_and_share_questions() -> None:
    a_UI = drawn(seed=0)
    b_UI = drawn(seed=1, units=3)
    other_units = side([b_UI], ["e", "f", "g"])
    effect = difference(side_of(a_UI), other_units)

    b_mean_1I = np.mean(b_UI, axis=0, keepdims=True)
    of_a_question = of_questions(a_UI - b_mean_1I)
    of_a_question -= interaction(a_UI) / 4
    of_a_question -= interaction(b_UI) / 3
    from_units = of_units(a_UI) + of_units(b_UI)
    from_questions = of_a_question / QUESTIONS
    assert effect.delta == approx(np.mean(a_UI) - np.mean(b_UI))
    assert effect.variance == approx(from_units + from_questions)


def test_a_single_untrained_model_is_a_constant() -> None:
    a_UI = drawn(seed=0)
    base_1I = drawn(seed=1, units=1)
    constant = side([base_1I], ["0"], is_trained=False)
    effect = difference(side_of(a_UI), constant)
    gain = side_of(a_UI - base_1I)
    check_equal(effect, difference(gain))


def test_untrained_models_of_several_units_are_rows_like_others() -> None:
    trained = side_of(drawn(seed=0))
    others_UI = drawn(seed=1)
    untrained = side([others_UI], UNITS, is_trained=False)
    effect = difference(trained, untrained)
    check_equal(effect, difference(trained, side_of(others_UI)))


def test_one_trained_unit_leaves_the_noise_unknown() -> None:
    scores_RI = drawn(seed=0, units=2)
    two_runs = side([scores_RI], ["a", "a"])
    others = side_of(drawn(seed=1))
    effect = difference(two_runs, others)
    assert np.isfinite(effect.delta)
    assert np.isnan(effect.standard_error)


def test_runs_of_one_unit_are_averaged() -> None:
    first = drawn(seed=0, units=1)
    second = drawn(seed=1, units=1)
    third = drawn(seed=2, units=1)
    runs = np.concatenate([first, second, third])
    averaged = side([runs], ["b", "a", "b"])
    (stratum,) = averaged.strata
    of_a, of_b = stratum.scores_UI
    assert averaged.units == ("a", "b")
    assert of_a == approx(second[0])
    assert of_b == approx((first[0] + third[0]) / 2)


def test_a_unit_is_a_backbone_or_else_a_seed() -> None:
    backbones = ["tiny", "tiny-1", "tiny"]
    assert units_of(backbones, [0, 1, 5]) == backbones
    one = ["tiny", "tiny"]
    assert units_of(one, [0, 1]) == ["0", "1"]


def test_questions_that_are_all_asked_add_no_noise() -> None:
    gain_UI = drawn(seed=0)
    census = difference(side_of(gain_UI, asked_share=1.0))
    sample = difference(side_of(gain_UI))
    assert census.variance == approx(of_units(gain_UI))
    assert census.variance < sample.variance


def test_a_stratum_of_few_questions_weighs_less() -> None:
    weights = strata_weights([20, 60, 160])
    assert weights[1] == approx(3 * weights[0])
    assert weights[2] == approx(weights[1])
    assert weights.sum() == approx(1)


def test_a_mean_over_strata_has_their_weights() -> None:
    few = np.zeros((4, 20))
    many = np.ones((4, 80))
    effect = difference(side([few, many], UNITS))
    assert effect.delta == approx(0.75)


@pytest.fixture
def arms() -> list[Side]:
    """Two arms that gain about as much over a base, and the base."""
    base_UI = drawn(seed=0)
    gain_I = drawn(seed=1, units=1) + 10
    sides = []
    for seed, share in ((2, 0.8), (3, 1.0)):
        own_UI = drawn(seed)
        scores_UI = base_UI + share * gain_I + own_UI
        sides.append(side_of(scores_UI))
    return [*sides, side_of(base_UI)]


def scores_of(one: Side) -> Array:
    (stratum,) = one.strata
    return stratum.scores_UI


def test_the_limits_of_a_ratio_surround_it(arms: list[Side]) -> None:
    a, b, base = arms
    estimate = ratio(a, b, base)
    numerator = difference(a, base)
    denominator = difference(b, base)
    assert estimate.value == approx(numerator.delta / denominator.delta)
    assert estimate.low < estimate.value < estimate.high


def test_fieller_s_limits_are_where_the_contrast_is_just_significant(
    arms: list[Side],
) -> None:
    a, b, base = arms
    estimate = ratio(a, b, base)
    numerator = difference(a, base)
    denominator = difference(b, base)
    dof = min(numerator.dof, denominator.dof)
    critical = student_quantile(0.975, dof)
    base_UI = scores_of(base)
    gain_of_a = scores_of(a) - base_UI
    gain_of_b = scores_of(b) - base_UI
    for limit in (estimate.low, estimate.high):
        contrast = difference(side_of(gain_of_a - limit * gain_of_b))
        distance = critical * contrast.standard_error
        assert abs(contrast.delta) == approx(distance)


def test_a_ratio_over_an_uncertain_gain_has_no_limits(arms: list[Side]) -> None:
    a, b, _ = arms
    noise_UI = drawn(seed=4)
    noise_UI -= np.mean(noise_UI, axis=0)
    like_b = side_of(scores_of(b) + 0.1 + noise_UI)
    estimate = ratio(a, like_b, b)
    assert estimate.low == -np.inf
    assert estimate.high == np.inf


def test_a_ratio_over_no_gain_is_not_defined(arms: list[Side]) -> None:
    a, b, _ = arms
    estimate = ratio(a, b, b)
    assert np.isnan(estimate.value)


REPLICATES = 500
TRAINED = Arm(accuracy=0.6)
OTHER = Arm(accuracy=0.55)
BASE = Arm(accuracy=0.45, noise=UNTRAINED)
DESIGNS = {
    "trained": Design([TRAINED, OTHER], census=7),
    "untrained": Design([TRAINED, BASE]),
}


def tolerance(share: float) -> float:
    """Return three standard errors of a share of all replicates."""
    variance = share * (1 - share) / REPLICATES
    return 3 * variance**0.5


@pytest.mark.parametrize("other", DESIGNS)
def test_the_95_percent_interval_covers_the_truth_as_often_as_it_says(
    other: str,
) -> None:
    result = coverage.coverage(DESIGNS[other], REPLICATES, seed=100)
    assert result["covered"] == approx(0.95, abs=tolerance(0.95))


def test_5_points_are_seldom_called_no_effect() -> None:
    called = coverage.equivalence(5, REPLICATES, seed=100)
    assert called <= 0.05 + tolerance(0.05)


def test_no_effect_is_called_so_where_the_noise_is_small() -> None:
    assert coverage.equivalence(0, 50, seed=100) > 0.9
