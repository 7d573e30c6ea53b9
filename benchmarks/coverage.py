"""Do the ledger's statistics keep their promises? Simulated runs in which the truth is known.

`python -m benchmarks.coverage [REPLICATES]` writes coverage.json beside this file: how often 95 %
intervals cover the truth, and how often each test errs. `--table` prints that file.

A run is correct on a question if a normal variable is positive. It is the sum of the effects in
`Noise`; every one of them is drawn anew in each replicate, but for the questions of a census.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from reproduce.analysis import crossed, peaks, stats, verdicts
from reproduce.analysis.crossed import Side, Stratum
from reproduce.analysis.stats import Array, Effect

RESULT = Path(__file__).with_suffix(".json")
REPLICATES = 10_000
QUESTIONS = np.linspace(60, 160, 22).astype(int)  # of the 22 stand-ins
ENDS = np.cumsum(QUESTIONS)[:-1]  # of each stand-in's questions but the last one's
STRICT = 0.01  # a level about as strict as Holm's first step among five claims


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


def is_within(truth: float, limits: tuple[float, float]) -> bool:
    """Whether limits cover the truth."""
    low, high = limits
    return low <= truth <= high


def coverage(design: Design, number: int, seed: int = 0) -> dict[str, float]:
    """Return how often the interval of the first arm minus the second covers the truth.

    Also the share of false "found" and "opposite" at the level 1 %, if the truth were zero, the
    mean standard error and the median share of the units in the variance.
    """
    covered = []
    errors = []
    standard_errors = []
    shares = []
    for (a, b), (of_a, of_b) in replicates(design, number, seed):
        effect = crossed.difference(a, b)
        truth = of_a - of_b
        wide_limits = effect.interval(1 - STRICT)
        covered.append(is_within(truth, effect.limits))
        errors.append(not is_within(truth, wide_limits))
        standard_errors.append(effect.standard_error)
        shares.append(_unit_share(a, b, effect))
    return {
        "covered": float(np.mean(covered)),
        "errors at 1 %": float(np.mean(errors)),
        "standard error, points": float(np.mean(standard_errors)),
        "units' share of the variance": float(np.median(shares)),
    }


def _unit_share(a: Side, b: Side, effect: Effect) -> float:
    if crossed.is_paired(a, b):
        gain_U = a.means_U - b.means_U
        variance = gain_U.var(ddof=1)
    else:
        variance = a.means_U.var(ddof=1) + b.means_U.var(ddof=1)
    of_units = variance / len(a.units)
    return float(of_units / effect.variance)


def equivalence(true_effect: float, number: int, seed: int = 0) -> float:
    """Return how often a true effect, in points, is called no effect."""
    b = Arm(accuracy=0.5)
    a = Arm(accuracy=0.5 + true_effect / 100)
    called = []
    for (first, second), _ in replicates(Design([a, b]), number, seed):
        effect = crossed.difference(first, second)
        verdict = verdicts.of_difference(
            effect,
            p=1.0,
            alpha=0.0,
            printed=np.nan,
            margin=verdicts.MARGIN,
        )
        called.append(verdict == verdicts.NO_EFFECT)
    return float(np.mean(called))


def ratio_coverage(number: int, seed: int = 0) -> float:
    """Return how often Fieller's interval covers a ratio of gains, 9 over 10 points."""
    base = Arm(accuracy=0.45, noise=UNTRAINED)
    design = Design([Arm(accuracy=0.54), Arm(accuracy=0.55), base])
    covered = []
    for (a, b, untrained), (of_a, of_b, of_base) in replicates(design, number, seed):
        ratio = crossed.ratio(a, b, untrained)
        limits = (ratio.low, ratio.high)
        gain_of_a = of_a - of_base
        gain_of_b = of_b - of_base
        covered.append(is_within(gain_of_a / gain_of_b, limits))
    return float(np.mean(covered))


def satterthwaite(share: float, number: int, seed: int = 0) -> dict[str, float]:
    """Return the errors at 1 % of two rules for the degrees of freedom.

    A variance of known size and one of four degrees of freedom, which has this share of the
    total, make up that of a normal variable.
    """
    rng = np.random.default_rng(seed)
    estimates = share * rng.chisquare(4, number) / 4
    deviations = rng.standard_normal(number)
    of_questions = stats.VarianceComponent(1 - share, dof=np.inf)
    rules = {"Welch and Satterthwaite": stats.total, "ours": stats.cautious_total}
    errors = dict.fromkeys(rules, 0)
    for estimate, deviation in zip(estimates, deviations, strict=True):
        of_units = stats.VarianceComponent(estimate, dof=4)
        for name, rule in rules.items():
            both = rule([of_units, of_questions])
            standard_error = float(np.sqrt(both.variance))
            effect = Effect(deviation, standard_error, both.dof)
            if effect.p <= STRICT:
                errors[name] += 1
    return {name: count / number for name, count in errors.items()}


# Peaks


@dataclass(frozen=True)
class Curve:
    """A true course of validation accuracy, in points, at parts of the training from 0 to 1."""

    name: str
    parts: Sequence[float]
    points: Sequence[float]
    has_peak: bool = False


CURVES = (
    Curve("flat", [0, 1], [0, 0]),
    Curve("steady rise", [0, 1], [0, 30]),
    Curve("steady fall", [0, 1], [0, -20]),
    Curve("rise that levels off slowly", [0, 0.2, 0.4, 0.6, 1], [0, 16, 24, 28, 30]),
    Curve("rise that levels off at once", [0, 0.3, 1], [0, 30, 30]),
    Curve("peak, then 4 points down", [0, 0.5, 1], [0, 15, 11], has_peak=True),
    Curve("peak, then 8 points down", [0, 0.5, 1], [0, 15, 7], has_peak=True),
)
LOOK = 2.0  # points: standard deviation of one look of one unit
UNIT_SLOPE = 3.0  # points by the end: how much units differ in what they gain


def found_peaks(
    curve: Curve, number: int, units: int = 5, looks: int = 11, seed: int = 0
) -> dict[str, float]:
    """Return how often a peak is found, by the ledger's test and by a parabola alone."""
    rng = np.random.default_rng(seed)
    parts_L = np.linspace(0, 1, looks)
    true_L = np.interp(parts_L, curve.parts, curve.points)
    by_ledger = []
    by_parabola = []
    for _ in range(number):
        noise_UL = LOOK * rng.standard_normal((units, looks))
        slope_U1 = UNIT_SLOPE * rng.standard_normal((units, 1))
        curves_UL = true_L + noise_UL + slope_U1 * parts_L
        peak = peaks.measure(curves_UL)
        of_parabola = _parabola(parts_L, curves_UL)
        by_ledger.append(_is_positive(peak.weaker))
        by_parabola.append(_is_positive(of_parabola))
    return {
        "ledger": float(np.mean(by_ledger)),
        "parabola": float(np.mean(by_parabola)),
    }


def _is_positive(effect: Effect) -> bool:
    return effect.delta > 0 and effect.p <= 1 - stats.LEVEL


def _parabola(parts_L: Array, curves_UL: Array) -> Effect:
    """Return the weaker of two slopes: up at the beginning, and down at the end."""
    square_U, line_U, _ = np.polyfit(parts_L, curves_UL.T, deg=2)
    units = len(curves_UL)
    names = [str(unit) for unit in range(units)]
    down_U = -line_U - 2 * square_U
    peak = peaks.Peak(
        rise=crossed.mean_of_runs(line_U, names),
        fall=crossed.mean_of_runs(down_U, names),
    )
    return peak.weaker


# The benchmark

NOISES = {
    "units differ": Noise(),
    "units hardly differ": Noise(own_unit=0.0),
    "questions differ": Noise(own_question=1.0),
    "arms gain alike on all questions": Noise(own_question=0.0),
}


def designs() -> Iterator[tuple[dict[str, Any], Design]]:
    """Yield descriptions and designs: four kinds of noise, two comparisons, three censuses."""
    for name, noise in NOISES.items():
        trained = Arm(accuracy=0.55, noise=noise)
        better = replace(trained, accuracy=0.6)
        untrained = Arm(accuracy=0.45, noise=UNTRAINED)
        others = {"trained": trained, "untrained": untrained}
        for other, arm in others.items():
            for census in (0, 7, 22):
                about = {
                    "noise": name,
                    "against": other,
                    "stand-ins asked whole": census,
                }
                yield about, Design([better, arm], census=census)
    trained = Arm(accuracy=0.55)
    better = replace(trained, accuracy=0.6)
    about = {"against": "trained", "stand-ins asked whole": 7}
    ten_seeds = Design([better, trained], units=10, runs=1, census=7)
    yield {"noise": "ten seeds of one backbone", **about}, ten_seeds
    other_units = Design([better, trained], census=7, paired=False)
    yield {"noise": "arms with other units", **about}, other_units


def measure(number: int) -> dict[str, Any]:
    """Return everything that is simulated."""
    intervals = []
    for seed, (about, design) in enumerate(designs()):
        intervals.append(about | coverage(design, number, seed))
        print(intervals[-1])
    curves = []
    for seed, curve in enumerate(CURVES):
        row = {"curve": curve.name, "has a peak": curve.has_peak}
        curves.append(row | found_peaks(curve, number, seed=seed))
        print(curves[-1])
    shares = (0.5, 0.7, 0.8, 0.9, 0.95)
    return {
        "replicates": number,
        "noise": {name: asdict(noise) for name, noise in NOISES.items()},
        "intervals": intervals,
        "errors at 1 % by units' share of the variance": {
            str(share): satterthwaite(share, 10 * number) for share in shares
        },
        "called no effect, by true effect in points": {
            str(points): equivalence(points, number) for points in (0, 2.5, 5, 6)
        },
        "intervals of a ratio of gains that cover": ratio_coverage(number),
        "peaks found": curves,
    }


def table(result: dict[str, Any]) -> str:
    """Return the intervals and the peaks as Markdown."""
    lines = [
        "| noise | against | stand-ins asked whole | covered | errors at 1 % |",
        "|---|---|---|---|---|",
    ]
    for row in result["intervals"]:
        cells = [
            row["noise"],
            row["against"],
            str(row["stand-ins asked whole"]),
            f"{row['covered']:.1%}",
            f"{row['errors at 1 %']:.2%}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines.append("")
    lines.append("| curve | found | found by a parabola alone |")
    lines.append("|---|---|---|")
    for row in result["peaks found"]:
        cells = [
            row["curve"],
            f"{row['ledger']:.1%}",
            f"{row['parabola']:.1%}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    """Simulate and write the result, or print it."""
    if arguments != ["--table"]:
        number = int(arguments[0]) if arguments else REPLICATES
        text = json.dumps(measure(number), indent=1) + "\n"
        RESULT.write_text(text, encoding="utf-8")
    print(table(json.loads(RESULT.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main(sys.argv[1:])
