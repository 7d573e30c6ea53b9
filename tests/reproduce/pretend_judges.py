"""Pretend runs of the judge's dial, whose gains and crossings are known."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from coevolve.runs.record import SCORE_FIELDS, Recorder, write_json

ITEMS = 100  # so that an answer is a point
ACCURACIES = {  # as in the name of a run
    "0_5": 0.5,
    "0_6": 0.6,
    "0_7": 0.7,
    "0_8": 0.8,
    "0_9": 0.9,
    "1_0": 1.0,
}
UNTRAINED = 30  # points
STEP = {"step": 0, "generated": 500.0}
# Points of the control, by backbone.
CONTROL = [36, 38, 40, 42, 44]
# Where the gain of MAE becomes positive, by backbone.
CROSSINGS = [0.63, 0.64, 0.65, 0.66, 0.67]

Gain = Callable[[int, float], float]  # in points, by backbone and accuracy


def write_run(
    folder: Path,
    run: str,
    seed: int,
    points: int,
    metrics: Mapping[str, Any],
    model: str = "",
) -> None:
    """Write what a run leaves behind: two steps, and `points` of the answers right."""
    recorder = Recorder(folder / f"{run}-s{seed}")
    name = model or f"tiny-{seed % 5}"
    write_json(recorder.out / "config.json", {"model": name})
    steps = [STEP | metrics | {"step": step} for step in (1, 2)]
    recorder.rows("metrics", [{"step": 0}, *steps])
    before = _scores("before", UNTRAINED)
    after = _scores("after", points)
    recorder.scores(before + after)


def _scores(stage: str, points: int) -> list[dict[str, Any]]:
    rows = []
    for item in range(ITEMS):
        row = dict.fromkeys(SCORE_FIELDS, "")
        row["stage"] = stage
        row["strategy"] = "vanilla"
        row["item"] = item
        row["correct"] = int(item < points)
        rows.append(row)
    return rows


def write_grid(folder: Path, name: str, errors: str, gain: Gain) -> None:
    """Write the runs of a grid with these gains over the control."""
    for word, accuracy in ACCURACIES.items():
        run = f"judge_{name}-{errors}-{word}"
        metrics = {"judge_answer_correct": accuracy - 0.01}
        for backbone, control in enumerate(CONTROL):
            points = control + round(gain(backbone, accuracy))
            write_run(folder, run, backbone, points, metrics)


def write_all(folder: Path) -> None:
    """Write two methods, with MAE's own judge 4 points over the control.

    MAE crosses where CROSSINGS say with random errors, and never by question; SAGE crosses at once.
    There are two seeds of each backbone's control, 2 points below and above.
    """

    def steep(backbone: int, accuracy: float) -> float:
        return 100 * (accuracy - CROSSINGS[backbone])

    def negative(backbone: int, accuracy: float) -> float:
        return 10 * accuracy - 12

    def positive(backbone: int, accuracy: float) -> float:
        return 10 * accuracy

    write_grid(folder, "mae", "random", steep)
    write_grid(folder, "mae", "question", negative)
    write_grid(folder, "sage", "random", positive)
    own = {"judge_answer_correct": 0.7}
    for seed in range(10):
        offset = 2 if seed < 5 else -2
        control = CONTROL[seed % 5] + offset
        write_run(folder, "mae_shuffled", seed, control, {})
        write_run(folder, "sage_shuffled", seed, control, {})
        write_run(folder, "mae_half", seed, control + 4, own)


def runs_in(folder: Path) -> dict[str, list[int]]:
    """Return the seeds of each run, as the batch passes them to a notebook."""
    seeds: dict[str, list[int]] = {}
    for home in sorted(folder.iterdir()):
        run, _, seed = home.name.rpartition("-s")
        of_run = seeds.setdefault(run, [])
        of_run.append(int(seed))
    return seeds


def row_of(frame: pd.DataFrame, **values: Any) -> dict[str, Any]:
    """Return the one row with these values."""
    for name, value in values.items():
        is_row = frame[name] == value
        frame = frame[is_row]
    (row,) = frame.to_dict("records")
    return row
