"""Do the ledger's statistics keep their promises? Simulations of which the truth is known.

`python -m benchmarks.coverage [REPLICATES]` writes coverage.json beside this file: how often 95 %
intervals cover the truth, and how often each test errs. `--table` prints that file.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.simulated_runs import UNTRAINED, Arm, Design, Noise, replicates
from reproduce.analysis import crossed, peaks, stats, verdicts
from reproduce.analysis.crossed import Side
from reproduce.analysis.stats import Array, Effect

RESULT = Path(__file__).with_suffix(".json")
REPLICATES = 10_000
STRICT = 0.01  # a level about as strict as Holm's first step among five claims


def is_within(truth: float, limits: tuple[float, float]) -> bool:
    """Whether limits cover the truth."""
    low, high = limits
    return low <= truth <= high


def coverage(design: Design, number: int, seed: int = 0) -> dict[str, float]:
    """Return how often the interval of the first arm minus the second covers the truth.

    Also how often a test of the truth at the level 1 % rejects it, the mean standard error and
    the median share of the units in the variance.
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
    difference = true_effect / 100
    a = Arm(accuracy=0.5 + difference)
    called = []
    design = Design([a, b])
    for (first, second), _ in replicates(design, number, seed):
        effect = crossed.difference(first, second)
        step = verdicts.Step(
            effect,
            printed=np.nan,
            margin=verdicts.MARGIN,
        )
        verdict = verdicts.of_size([step])
        is_none = verdict == verdicts.NO_EFFECT
        called.append(is_none)
    share = np.mean(called)
    return float(share)


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


Cells = Sequence[object]


def markdown(head: Cells, rows: Iterable[Cells]) -> str:
    """Return a table."""
    rule = ["---"] * len(head)
    lines = []
    for cells in (head, rule, *rows):
        texts = map(str, cells)
        lines.append(f"| {' | '.join(texts)} |")
    return "\n".join(lines)


def percent(share: float) -> str:
    """Format a share in percent, with two digits where it is small."""
    return f"{share:.2%}" if share < 0.1 else f"{share:.1%}"


def interval_rows(intervals: Iterable[dict[str, Any]]) -> Iterator[Cells]:
    """Yield how often the intervals of each design cover, and tests at 1 % err."""
    for row in intervals:
        yield (
            row["noise"],
            row["against"],
            row["stand-ins asked whole"],
            percent(row["covered"]),
            percent(row["errors at 1 %"]),
        )


def peak_rows(curves: Iterable[dict[str, Any]]) -> Iterator[Cells]:
    """Yield how often each curve is said to pass a peak."""
    for row in curves:
        yield (
            row["curve"],
            percent(row["ledger"]),
            percent(row["parabola"]),
        )


def dof_rows(errors: dict[str, dict[str, float]]) -> Iterator[Cells]:
    """Yield the errors at 1 % of both rules for the degrees of freedom."""
    for share, by_rule in errors.items():
        yield (
            percent(float(share)),
            percent(by_rule["Welch and Satterthwaite"]),
            percent(by_rule["ours"]),
        )


def table(result: dict[str, Any]) -> str:
    """Return everything as Markdown."""
    called = result["called no effect, by true effect in points"]
    covered = percent(result["intervals of a ratio of gains that cover"])
    parts = [
        markdown(
            ("noise", "against", "stand-ins asked whole", "covered", "errors at 1 %"),
            interval_rows(result["intervals"]),
        ),
        markdown(
            ("curve", "a peak is found", "by a parabola alone"),
            peak_rows(result["peaks found"]),
        ),
        markdown(
            ("units' share of the variance", "Welch and Satterthwaite", "ours"),
            dof_rows(result["errors at 1 % by units' share of the variance"]),
        ),
        markdown(
            ("true effect, points", "called no effect beyond 5 points"),
            [(points, percent(share)) for points, share in called.items()],
        ),
        f"Fieller's interval of a ratio of two gains covers {covered}. "
        f"Each case has {result['replicates']:,} replicates.",
    ]
    return "\n\n".join(parts)


def main(arguments: list[str]) -> None:
    """Simulate and write the result, or print it."""
    if arguments != ["--table"]:
        number = int(arguments[0]) if arguments else REPLICATES
        text = json.dumps(measure(number), indent=1) + "\n"
        RESULT.write_text(text, encoding="utf-8")
    print(table(json.loads(RESULT.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main(sys.argv[1:])
