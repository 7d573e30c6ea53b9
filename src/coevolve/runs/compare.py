"""Compares two finished runs: accuracy and gain with intervals, settings that differ, metrics.

Reads nothing but the files of the two folders, so it works for every method and model.
"""

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coevolve.runs import record

NAN = float("nan")
LEVEL = 0.95  # of every interval
LAST_PART = 5  # metrics are means over the last fifth of a run's steps
ACCURACY = "accuracy"
SETTING = "setting"
METRIC = "metric"
COLUMNS = [
    "part",
    "name",
    "first",
    "first_low",
    "first_high",
    "second",
    "second_low",
    "second_high",
    "difference",
    "low",
    "high",
]
CODE_OF = "code of "  # and the name of a user's file, whose hashes are compared
# Entries of config.json whose own entries are compared.
NESTED = ("method_fields", "method_sources")
Interval = tuple[float, float, float]  # a value with its lower and its upper limit
Row = dict[str, Any]


def compare(first: Path, second: Path) -> Any:
    """Return a pandas DataFrame with COLUMNS that compares two runs.

    Rows with the part ACCURACY are the test accuracy before and after training in percent, and the
    gain in points. `first_low` to `second_high` are 95 % intervals of the gains; `low` and `high`
    are that of the difference, paired over the questions. It is nan where the runs were asked
    different ones. All intervals cover the choice of questions, not that of a seed.

    Rows with the part SETTING are the fields that differ, with the values of both runs; "code of
    FILE" is the hash of a user's file. Rows with the part METRIC are means over the last fifth of
    each run's steps; nan if a run has none.

    Raises ValueError if a folder holds no run.
    """
    import pandas as pd

    rows = [
        *_accuracy_rows(first, second),
        *_setting_rows(settings_of(first), settings_of(second)),
        *_metric_rows(first, second),
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def settings_of(run: Path) -> dict[str, Any]:
    """Return the config.json of a run; raise ValueError if the folder is not that of a run."""
    if not record.is_run(run):
        raise ValueError(
            f"{run} is not the folder of a run: it has no config.json of one"
        )
    settings: dict[str, Any] = json.loads((run / "config.json").read_bytes())
    return settings


def gain(scores: Any) -> Interval:
    """Return (points, low, high): the accuracy gained by training and its 95 % interval.

    `scores` is what `record.read(run, "scores")` returns. The interval is a paired t interval over
    the questions and does not cover other seeds. Its limits are nan where no question was graded
    or all questions changed by the same amount.
    """
    correct = _correct_by_item(scores).reindex(columns=["before", "after"])
    return _mean(100 * correct.dropna().diff(axis=1)["after"])


def in_points(value: float, low: float, high: float) -> str:
    """Return a difference in points with its interval, which is left out where it is nan."""
    text = f"{value:+.1f}"
    return text if math.isnan(low) else f"{text} [{low:+.1f}, {high:+.1f}]"


def gains(runs: Mapping[str, Path]) -> list[dict[str, str]]:
    """Return a row per run, by name: accuracy before and after training, and the gain in points.

    The gain has its 95 % interval over the questions.
    """
    rows = []
    for name, run in runs.items():
        scores = record.read(run, "scores")
        correct = 100 * _correct_by_item(scores)
        points, low, high = gain(scores)
        row = {
            "run": name,
            "before": f"{correct['before'].mean():.1f} %",
            "after": f"{correct['after'].mean():.1f} %",
            "gain, points": in_points(points, low, high),
        }
        rows.append(row)
    return rows


def _correct_by_item(scores: Any) -> Any:
    """Return 1 or 0 per question, a column per stage; nan where no verifier can tell."""
    vanilla = scores[scores["strategy"] == "vanilla"]
    return vanilla.pivot(index="item", columns="stage", values="correct")


def _mean(changes: Any) -> Interval:
    """Return the mean of a series with its t interval."""
    # scipy.stats takes half a second to load.
    from scipy.stats import ttest_1samp

    mean = float(changes.sum() / max(len(changes), 1))
    if changes.nunique() <= 1:
        return mean, NAN, NAN
    low, high = ttest_1samp(changes, 0).confidence_interval(LEVEL)
    return mean, float(low), float(high)


def _accuracy_rows(first: Path, second: Path) -> list[Row]:
    """Return the rows of the test accuracy; none unless both runs have scored test questions."""
    folders = (first, second)
    if not all((folder / "scores.csv").is_file() for folder in folders):
        return []
    scores = [record.read(folder, "scores") for folder in folders]
    correct = [100 * _correct_by_item(frame) for frame in scores]
    rows = []
    for stage in ("before", "after"):
        levels = [
            float(frame[stage].mean()) if stage in frame else NAN for frame in correct
        ]
        rows.append(_numbers(ACCURACY, stage, *levels))
    rows.append(_gain_row(scores, correct))
    return rows


def _gain_row(scores: list[Any], correct: list[Any]) -> Row:
    first_gain, first_low, first_high = gain(scores[0])
    second_gain, second_low, second_high = gain(scores[1])
    row = _numbers(ACCURACY, "gain", first_gain, second_gain)
    limits = {
        "first_low": first_low,
        "first_high": first_high,
        "second_low": second_low,
        "second_high": second_high,
    }
    if not _same_questions(*scores):
        return row | limits
    stages = ["before", "after"]
    changes = [frame.reindex(columns=stages).diff(axis=1)["after"] for frame in correct]
    difference, low, high = _mean((changes[1] - changes[0]).dropna())
    return row | limits | {"difference": difference, "low": low, "high": high}


def _same_questions(first: Any, second: Any) -> bool:
    asked = [
        frame[["item", "question"]].drop_duplicates().reset_index(drop=True)
        for frame in (first, second)
    ]
    return bool(asked[0].equals(asked[1]))


def _numbers(part: str, name: str, first: float, second: float) -> Row:
    """Return a row of two numbers; the columns that it leaves out become nan."""
    return {
        "part": part,
        "name": name,
        "first": first,
        "second": second,
        "difference": second - first,
    }


def _setting_rows(first: Row, second: Row) -> list[Row]:
    """Return the fields in which two configurations differ, the method's own among them."""
    flat_first = _flat(first)
    flat_second = _flat(second)
    rows = []
    for name in flat_first | flat_second:
        values = (flat_first.get(name), flat_second.get(name))
        if values[0] != values[1]:
            rows.append(
                {"part": SETTING, "name": name, "first": values[0], "second": values[1]}
            )
    return rows


def _flat(settings: Row) -> Row:
    """Return the fields of a run and its method, and the hashes of a user's files by their names.

    Their folders do not count, so that a file may move.
    """
    fields = {**settings, **settings["method_fields"]}
    flat = {name: value for name, value in fields.items() if name not in NESTED}
    codes = defaultdict(list)  # several files may have one name
    for path, code in settings.get("method_sources", {}).items():
        codes[CODE_OF + Path(path).name].append(code)
    for name, code_of_each in codes.items():
        flat[name] = ", ".join(sorted(code_of_each))
    return flat


def _metric_rows(first: Path, second: Path) -> list[Row]:
    first_levels = _last_levels(first)
    second_levels = _last_levels(second)
    rows = []
    for name in first_levels | second_levels:
        levels = (first_levels.get(name, NAN), second_levels.get(name, NAN))
        rows.append(_numbers(METRIC, name, *levels))
    return rows


def _last_levels(run: Path) -> dict[str, float]:
    """Return the mean of each metric over the last fifth of a run's steps."""
    if not record.last_step(run):
        return {}
    metrics = record.read(run).set_index("step")
    numbers = metrics.select_dtypes("number")
    last_step = numbers.index.max()
    last = numbers[numbers.index > last_step * (1 - 1 / LAST_PART)]
    levels: dict[str, float] = last.mean().dropna().to_dict()
    return levels
