"""CoMAS's rewards beside the exact verifier: word for word, over training, and by ablation."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from coevolve.runs import record
from coevolve.text.parse import boxed
from reproduce.analysis import crossed, figures, standins, stats, tables
from tinyworld import tasks

POINTS = 8  # of the curve of precision and recall
SHOWN_TURNS = 24  # of a discussion
CONFUSION = ["tp", "fp", "fn", "tn"]
PRINTED_MEASURES = ["Accuracy", "Precision", "Recall"]
# Run: the claimed change.
FAVOURABLE = {
    "comas_no_evaluation": -1,
    "comas_no_scoring": 1,
}


def last_discussions(
    folder: Path, runs: standins.Runs, labels: standins.Labels
) -> dict[str, pd.DataFrame]:
    """Return the last recorded discussion of each run, a row per turn, by label."""
    discussions = {}
    for run, label in labels.items():
        first_seed, *_ = runs[run]
        episodes = record.read(folder / f"{run}-s{first_seed}", "episodes")
        frame = _discussion(episodes.iloc[-1])
        frame.insert(0, "variant", label)
        discussions[label] = frame.head(SHOWN_TURNS)
    return discussions


def _discussion(episode: pd.Series) -> pd.DataFrame:
    question = episode["facts"]["question"]
    rows = []
    for sample in episode["samples"]:
        is_correct = None
        if sample["role"] == "solution":
            is_correct = tasks.is_correct(question, boxed(sample["text"]))
        row = {
            "step": episode["step"],
            "question": question,
            "turn": sample["role"],
            "agent": sample["policy"],
            "says": sample["text"],
            "earns": sample["reward"],
            "correct": is_correct,
        }
        rows.append(row)
    return pd.DataFrame(rows)


def window_of(curves: pd.DataFrame) -> int:
    """Return the number of steps that a point of the curve pools."""
    return max(1, int(curves["step"].max()) // POINTS)


def measures(curves: pd.DataFrame) -> pd.DataFrame:
    """Return accuracy, precision, recall and the share of correct solutions, in percent.

    A solution whose reward is above one half is predicted to be correct. Each point pools the
    counts of an eighth of training. Columns: seed, step, measure, percent, unit.
    """
    counts = _pooled_counts(curves)
    is_correct = counts["tp"] + counts["fn"]
    counts["Precision"] = 100 * counts["tp"] / (counts["tp"] + counts["fp"])
    counts["Recall"] = 100 * counts["tp"] / is_correct
    counts["share correct"] = 100 * is_correct / counts[CONFUSION].sum(axis=1)
    validated = curves.dropna(subset=["validation"])
    accuracy = validated.assign(Accuracy=100 * validated["validation"])
    sources = {
        "Accuracy": accuracy,
        "Precision": counts,
        "Recall": counts,
        "share correct": counts,
    }
    frames = []
    for name, frame in sources.items():
        frames.append(frame.melt(["seed", "step"], [name], "measure", "percent"))
    values = pd.concat(frames, ignore_index=True)
    unit = values["seed"].map(tables.units_by_seed(curves))
    return values.assign(unit=unit)


def _pooled_counts(curves: pd.DataFrame) -> pd.DataFrame:
    """Sum the confusion counts of each window of steps, by seed and last step of the window."""
    window = window_of(curves)
    last = int(curves["step"].max())
    counts = curves[curves["step"] > 0].copy()
    windows = (counts["step"] + window - 1) // window
    counts["step"] = (windows * window).clip(upper=last)
    by_window = counts.groupby(["seed", "step"])
    return by_window[CONFUSION].sum().reset_index()


def draw(values: pd.DataFrame) -> Axes:
    """Draw the values of `measures` over training."""
    return figures.curve(
        values,
        "step",
        "percent",
        hue="measure",
        title="Rewards that the verifier confirms",
        xlabel="training step",
        ylabel="%",
    )


def prediction_table(values: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """Return the first and the last point of each measure, beside Table 6."""
    steps = paper["setup"].str.split().str[1].astype(int)
    printed = paper.assign(step=steps).pivot(
        index="metric",
        columns="step",
        values="printed",
    )
    rows = []
    for name in PRINTED_MEASURES:
        is_measure = values["measure"] == name
        of_measure = values[is_measure]
        by_seed = of_measure.pivot(index="step", columns="seed", values="percent")
        units = tables.units_by_seed(of_measure)
        prediction = _prediction(by_seed.dropna(), units, printed.loc[name])
        rows.append({"measure": name, **prediction})
    return pd.DataFrame(rows)


def _prediction(
    by_seed: pd.DataFrame, units: Mapping[int, str], printed: pd.Series
) -> dict[str, Any]:
    claim = float(printed.iloc[-1]) - float(printed.iloc[0])
    of_paper = {
        "paper, steps 0 to 30": " ".join(printed),
        "paper change": claim,
    }
    if by_seed.empty:  # no solution was ever predicted to be correct
        return of_paper | {"sign": "not defined"}
    first_S = by_seed.iloc[0]
    last_S = by_seed.iloc[-1]
    change_S = last_S - first_S
    effect = crossed.mean_of_runs(change_S, [units[seed] for seed in change_S.index])
    low, high = effect.limits
    has_interval = not math.isnan(low)  # one unit has none
    sign = 1 if claim > 0 else -1
    return {
        "first": first_S.mean(),
        "highest": by_seed.mean(axis=1).max(),
        "last": last_S.mean(),
        "change": change_S.mean(),
        "95 % interval": f"{low:+.1f} to {high:+.1f}" if has_interval else "none",
        **of_paper,
        "sign": stats.verdict(low, high, sign),
    }


def failure_modes(curves: pd.DataFrame, labels: standins.Labels) -> pd.DataFrame:
    """Return favourable verdicts, correct solutions and rewards in the first and last quarter.

    The verdict is on the change of favourable verdicts that Appendix J claims for an ablation.
    """
    rows: list[Mapping[str, Any]] = []
    for run, label in labels.items():
        is_step = (curves["method"] == label) & (curves["step"] > 0)
        steps = curves[is_step].dropna(axis=1, how="all")
        rows += _quarters(steps, label, FAVOURABLE.get(run))
    return pd.DataFrame(rows)


def _quarters(
    steps: pd.DataFrame, label: str, sign: int | None
) -> Iterator[Mapping[str, Any]]:
    # Without scoring, the evaluation itself is a verdict.
    verdicts = "judged_correct" if "judged_correct" in steps else "score_3"
    means = steps.groupby("step").mean(numeric_only=True)  # over seeds
    quarter = max(1, len(means) // 4)
    changes = []
    for _, values in steps.groupby("seed")[verdicts]:
        change = values.iloc[-quarter:].mean() - values.iloc[:quarter].mean()
        changes.append(change)
    units = tables.units_by_seed(steps).values()
    effect = crossed.mean_of_runs(changes, list(units))
    verdict = stats.verdict(*effect.limits, sign)
    yield _quarter(means.iloc[:quarter], verdicts, label, "first quarter", "")
    yield _quarter(means.iloc[-quarter:], verdicts, label, "last quarter", verdict)


def _quarter(
    means: pd.DataFrame, verdicts: str, label: str, quarter: str, verdict: str
) -> dict[str, Any]:
    return {
        "variant": label,
        "training": quarter,
        "favourable verdicts": means[verdicts].mean(),
        "correct solutions": means["correct"].mean(),
        "reward": means["normalised"].mean(),
        "paper's direction": verdict,
    }
