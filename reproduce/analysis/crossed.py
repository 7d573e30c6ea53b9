"""Differences of arms that several units of replication play on shared questions.

Units and questions are crossed random effects: every unit answers every question. A unit is a
backbone, or a seed where all runs speak one backbone. Axes are R runs, U units, I questions.
Knows no table and no paper. docs/ledger.md states the formulas.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from reproduce.analysis import stats
from reproduce.analysis.stats import Array, Effect, Estimate, VarianceComponent


@dataclass(frozen=True)
class Stratum:
    """The scores of U units on the I questions of one stand-in."""

    scores_UI: Array
    asked_share: float = 0.0  # of all questions that the stand-in has; 1 is a census

    @property
    def questions(self) -> int:
        """The number I of questions."""
        return self.scores_UI.shape[1]

    @property
    def unit_means_U(self) -> Array:
        """The mean score of each unit."""
        return self.scores_UI.mean(axis=1)

    @property
    def question_means_I(self) -> Array:
        """The mean score on each question."""
        return self.scores_UI.mean(axis=0)

    @property
    def interaction(self) -> float:
        """The mean square of what the means of units and questions leave unexplained."""
        scores_UI = self.scores_UI
        units, questions = scores_UI.shape
        residual_UI = scores_UI - self.question_means_I
        residual_UI = residual_UI - self.unit_means_U[:, None]
        residual_UI = residual_UI + scores_UI.mean()
        sum_of_squares = (residual_UI**2).sum()
        dof = (units - 1) * (questions - 1)
        return float(sum_of_squares / dof)

    def minus(self, other: "Stratum") -> "Stratum":
        """Return the differences within units and questions."""
        return Stratum(self.scores_UI - other.scores_UI, self.asked_share)


@dataclass(frozen=True)
class Side:
    """One arm of a comparison: a stratum per stand-in, with the same units in all."""

    units: tuple[str, ...]
    strata: tuple[Stratum, ...]
    is_trained: bool = True

    @property
    def is_constant(self) -> bool:
        """Whether it is a single untrained model, which another run would only repeat."""
        return len(self.units) == 1 and not self.is_trained

    @property
    def weights(self) -> Array:
        """The weights of its strata."""
        return strata_weights([stratum.questions for stratum in self.strata])

    @property
    def means_U(self) -> Array:
        """The weighted mean over strata of each unit's mean score."""
        means_KU = [stratum.unit_means_U for stratum in self.strata]
        return self.weights @ np.array(means_KU)

    def only(self, places: Sequence[int]) -> "Side":
        """Return the side with the strata at these places."""
        strata = tuple(self.strata[place] for place in places)
        return replace(self, strata=strata)

    def minus(self, other: "Side") -> "Side":
        """Return the differences from a side with the same units and questions."""
        strata = []
        for own, others in zip(self.strata, other.strata, strict=True):
            strata.append(own.minus(others))
        return Side(self.units, tuple(strata))


FULL_WEIGHT = 60  # questions


def strata_weights(questions: Sequence[int]) -> Array:
    """Return the weights of strata with these numbers of questions; they add up to 1.

    Strata weigh alike, as stand-ins do in the papers' averages. A stratum of fewer than 60
    questions weighs less in proportion, so that no average hangs on twenty questions.
    """
    counted_K = np.minimum(questions, FULL_WEIGHT)
    return counted_K / counted_K.sum()


def side(
    strata_RI: Sequence[ArrayLike],
    units: Sequence[str],
    asked_shares: Sequence[float] | None = None,
    is_trained: bool = True,
) -> Side:
    """Return a side from scores with a row per run; runs of one unit are averaged.

    `units` names the unit of each row. `asked_shares` has a number per stratum, 0 by default.
    """
    if asked_shares is None:
        asked_shares = [0.0] * len(strata_RI)
    strata = []
    for scores_RI, asked_share in zip(strata_RI, asked_shares, strict=True):
        scores_UI = mean_by_unit(scores_RI, units)
        strata.append(Stratum(scores_UI, asked_share))
    names = sorted(set(units))
    return Side(tuple(names), tuple(strata), is_trained)


def side_of_values(values_R: ArrayLike, units: Sequence[str]) -> Side:
    """Return a side from one value per run, such as a change over training."""
    values = np.asarray(values_R, dtype=float)
    return side([values[:, None]], units)


def mean_of_runs(values_R: ArrayLike, units: Sequence[str]) -> Effect:
    """Return the mean over units of one value per run, with the noise of the units."""
    return difference(side_of_values(values_R, units))


def mean_of_units(values_U: ArrayLike) -> Effect:
    """Return the mean of one value per unit, with the noise of the units."""
    values = np.asarray(values_U, dtype=float)
    numbers = range(len(values))
    units = [str(number) for number in numbers]
    return mean_of_runs(values, units)


def mean_by_unit(scores_RI: ArrayLike, units: Sequence[str]) -> Array:
    """Return the mean over the runs of each unit, shape U x I; units are sorted by name."""
    scores = np.asarray(scores_RI, dtype=float)
    unit_of_row = np.asarray(units)
    means = []
    for unit in sorted(set(units)):
        of_unit = scores[unit_of_row == unit]
        means.append(of_unit.mean(axis=0))
    return np.array(means)


def units_of(backbones: Sequence[str], seeds: Sequence[int]) -> list[str]:
    """Return the unit of each run: its backbone if these differ, else its seed."""
    if len(set(backbones)) > 1:
        return list(backbones)
    return [str(seed) for seed in seeds]


def difference(a: Side, b: Side | None = None) -> Effect:
    """Return side a minus side b on shared questions, or side a itself without b.

    Sides with the same units are subtracted within unit and question; other sides are
    independent in their units. A trained side of one unit leaves the standard error nan.
    """
    if b is not None and is_paired(a, b):
        return difference(a.minus(b))
    sides = [a]
    delta = float(a.means_U.mean())
    if b is not None:
        sides.append(b)
        delta -= float(b.means_U.mean())
    varying = [side for side in sides if not side.is_constant]
    if any(len(side.units) < 2 for side in varying):
        return Effect(delta, standard_error=np.nan, dof=np.nan)

    unit_parts = [_unit_component(side) for side in varying]
    of_units = stats.total(unit_parts)
    question_parts = _question_components(a, b, varying)
    of_questions = stats.total(question_parts)
    both = stats.cautious_total([of_units, of_questions])
    standard_error = float(np.sqrt(both.variance))
    return Effect(delta, standard_error, both.dof)


def is_paired(a: Side, b: Side) -> bool:
    """Whether two sides consist of the same two or more units."""
    return a.units == b.units and len(a.units) > 1


def _unit_component(side: Side) -> VarianceComponent:
    """Return s^2/U of the units' means: the noise of units, and of units on questions."""
    units = len(side.units)
    variance = side.means_U.var(ddof=1) / units
    return VarianceComponent(variance, dof=units - 1)


def _question_components(
    a: Side, b: Side | None, varying: Sequence[Side]
) -> list[VarianceComponent]:
    """Return what the choice of questions adds, a component per stratum."""
    components = []
    for k, weight in enumerate(a.weights):
        stratum = a.strata[k]
        questions = stratum.questions
        if questions < 2:
            continue
        gain_I = stratum.question_means_I
        if b is not None:
            gain_I = gain_I - b.strata[k].question_means_I
        # The mean over units still holds noise of units on questions, counted with the units.
        variance = gain_I.var(ddof=1)
        for side in varying:
            interaction = side.strata[k].interaction
            variance -= interaction / len(side.units)
        not_asked = 1 - stratum.asked_share
        of_mean = max(0.0, variance) * not_asked / questions
        component = VarianceComponent(weight**2 * of_mean, dof=questions - 1)
        components.append(component)
    return components


def ratio(a: Side, b: Side, base: Side | None = None) -> Estimate:
    """Return a over b, or the gain of a over `base` relative to that of b, with 95 % limits.

    The limits are Fieller's. Both gains share questions, units and base; their covariance
    follows from the variances of the gains and of a minus b. The value is nan where b is 0, the
    limits are infinite where b is not clear of 0, and nan where a side has one unit.
    """
    numerator = difference(a, base)
    denominator = difference(b, base)
    between = difference(a, b)
    sum_of_variances = numerator.variance + denominator.variance
    covariance = (sum_of_variances - between.variance) / 2
    dof = min(numerator.dof, denominator.dof)
    critical = stats.student_quantile((1 + stats.LEVEL) / 2, dof)
    low, high = fieller(numerator, denominator, covariance, critical)
    value = numerator.delta / (denominator.delta or np.nan)
    return Estimate(value, low, high)


def fieller(
    numerator: Effect, denominator: Effect, covariance: float, critical: float
) -> tuple[float, float]:
    """Return the limits of all r with |n - r d| <= critical * (standard error of n - r d).

    They solve a r^2 - 2 h r + c = 0.
    """
    n = numerator.delta
    d = denominator.delta
    squared = critical**2
    a = d**2 - squared * denominator.variance
    h = n * d - squared * covariance
    c = n**2 - squared * numerator.variance
    if np.isnan([a, h, c]).any():
        return np.nan, np.nan
    if a <= 0:
        return -np.inf, np.inf
    discriminant = max(0.0, h**2 - a * c)
    root = float(np.sqrt(discriminant))
    low = (h - root) / a
    high = (h + root) / a
    return low, high
