"""Simulated runs, of which the truth is known: who answers which question correctly.

A run is correct on a question if a normal variable is positive. It is the sum of the effects in
`Noise`; every one of them is drawn anew in each replicate, but for the questions of a census.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import ndtr, ndtri

from reproduce.analysis.crossed import Side, Stratum
from reproduce.analysis.stats import Array

QUESTIONS = np.linspace(60, 160, 22).astype(int)  # of the 22 stand-ins
ENDS = np.cumsum(QUESTIONS)[:-1]  # of each stand-in's questions but the last one's


@dataclass(frozen=True)
class Noise:
    """Standard deviations of the effects behind an answer; `own` ones differ between arms."""

    question: float = 1.0
    own_question: float = 0.5
    unit: float = 0.15
    own_unit: float = 0.05
    unit_on_question: float = 0.5
    own_unit_on_question: float = 0.6
    run: float = 1.0

    @property
    def of_runs(self) -> float:
        """The standard deviation of all that a given question leaves open."""
        deviations = (
            self.unit,
            self.own_unit,
            self.unit_on_question,
            self.own_unit_on_question,
            self.run,
        )
        return float(np.linalg.norm(deviations))

    @property
    def of_all(self) -> float:
        """The standard deviation of the whole sum."""
        deviations = (self.of_runs, self.question, self.own_question)
        return float(np.linalg.norm(deviations))


UNTRAINED = Noise(own_question=0, own_unit=0, own_unit_on_question=0, run=0)


@dataclass(frozen=True)
class Arm:
    """A method, by its true accuracy over all questions that could be asked."""

    accuracy: float
    noise: Noise = field(default_factory=Noise)

    @property
    def mean(self) -> float:
        """The mean of the normal variable."""
        return float(self.noise.of_all * ndtri(self.accuracy))


@dataclass(frozen=True)
class Design:
    """Which runs there are, and how many stand-ins are asked whole."""

    arms: Sequence[Arm]
    units: int = 5
    runs: int = 2  # of each unit
    census: int = 0  # of the 22 stand-ins
    paired: bool = True  # the arms have the same units


@dataclass(frozen=True)
class Questions:
    """The effects of all questions, of each stand-in in turn: shared, and own of each arm."""

    shared_I: Array
    own_AI: Array
    is_census_I: Array

    def redrawn(self, rng: np.random.Generator) -> "Questions":
        """Return other questions, where they are not a census."""
        shared_I = rng.standard_normal(self.shared_I.shape)
        own_AI = rng.standard_normal(self.own_AI.shape)
        is_census_I = self.is_census_I
        return Questions(
            shared_I=np.where(is_census_I, self.shared_I, shared_I),
            own_AI=np.where(is_census_I, self.own_AI, own_AI),
            is_census_I=is_census_I,
        )


def first_questions(rng: np.random.Generator, design: Design) -> Questions:
    """Draw the questions, a census among them for good."""
    total = int(QUESTIONS.sum())
    arms = len(design.arms)
    stand_ins = np.arange(len(QUESTIONS))
    is_census_K = stand_ins < design.census
    return Questions(
        shared_I=rng.standard_normal(total),
        own_AI=rng.standard_normal((arms, total)),
        is_census_I=np.repeat(is_census_K, QUESTIONS),
    )


def expected(design: Design, questions: Questions, arm: int) -> float:
    """Return an arm's true accuracy in percent: of its census, and of all other questions."""
    one = design.arms[arm]
    noise = one.noise
    own_I = questions.own_AI[arm]
    mean_I = one.mean + noise.question * questions.shared_I
    mean_I = mean_I + noise.own_question * own_I
    of_question_I = ndtr(mean_I / noise.of_runs)
    accuracy_I = np.where(questions.is_census_I, of_question_I, one.accuracy)
    by_stand_in = np.split(accuracy_I, ENDS)
    means = [part.mean() for part in by_stand_in]
    return 100 * float(np.mean(means))


def played(
    rng: np.random.Generator, design: Design, questions: Questions
) -> list[Side]:
    """Simulate all runs; return a side per arm, in percent."""
    units = design.units
    total = len(questions.shared_I)
    shared_U1 = rng.standard_normal((units, 1))
    shared_UI = rng.standard_normal((units, total))
    prefix = ""
    sides = []
    for number, arm in enumerate(design.arms):
        own_I = questions.own_AI[number]
        if not design.paired:
            shared_U1 = rng.standard_normal((units, 1))
            shared_UI = rng.standard_normal((units, total))
            prefix = f"{number}-"
        own_U1 = rng.standard_normal((units, 1))
        own_UI = rng.standard_normal((units, total))
        run_RUI = rng.standard_normal((design.runs, units, total))

        noise = arm.noise
        sum_UI = arm.mean + noise.question * questions.shared_I
        sum_UI = sum_UI + noise.own_question * own_I
        sum_UI = sum_UI + noise.unit * shared_U1
        sum_UI = sum_UI + noise.own_unit * own_U1
        sum_UI = sum_UI + noise.unit_on_question * shared_UI
        sum_UI = sum_UI + noise.own_unit_on_question * own_UI
        is_correct_RUI = sum_UI + noise.run * run_RUI > 0

        correct_UI = 100 * is_correct_RUI.mean(axis=0)
        names = tuple(f"{prefix}{unit}" for unit in range(units))
        strata = _by_stand_in(correct_UI, design.census)
        sides.append(Side(names, strata, is_trained=noise.run > 0))
    return sides


def _by_stand_in(correct_UI: Array, census: int) -> tuple[Stratum, ...]:
    strata = []
    for k, part_UI in enumerate(np.split(correct_UI, ENDS, axis=1)):
        asked_share = 1.0 if k < census else 0.0
        strata.append(Stratum(part_UI, asked_share))
    return tuple(strata)


def replicates(
    design: Design, number: int, seed: int
) -> Iterator[tuple[list[Side], list[float]]]:
    """Yield the sides of one replicate after the other, and the true accuracies."""
    rng = np.random.default_rng(seed)
    questions = first_questions(rng, design)
    arms = range(len(design.arms))
    truths = [expected(design, questions, arm) for arm in arms]
    for _ in range(number):
        yield played(rng, design, questions.redrawn(rng)), truths
