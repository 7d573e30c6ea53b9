"""Two runs side by side: accuracy and gain with intervals, settings that differ, metrics."""

from pathlib import Path

import numpy as np
import pytest
from pytest import approx

from coevolve.runs import compare, record
from coevolve.runs.record import Recorder

CONFIG = {"method": "mae", "steps": 10, "method_fields": {"solves": 1}}


def score(stage: str, item: int, correct: int, question: str) -> dict[str, object]:
    return {
        "stage": stage,
        "strategy": "vanilla",
        "split": "test",
        "item": item,
        "question": question,
        "correct": correct,
    }


def write_run(
    folder: Path, after: list[int], reward: float, question: str = "3*4"
) -> Path:
    """Write a run whose every answer is wrong before training."""
    recorder = Recorder(folder)
    fields = {"solves": len(after)}
    settings = {
        **CONFIG,
        "method_fields": fields,
    }
    record.write_json(folder / "config.json", settings)
    rows = []
    for item, correct in enumerate(after):
        rows.append(score("before", item, 0, question))
        rows.append(score("after", item, correct, question))
    recorder.scores(rows)
    metrics = []
    for step in range(1, 11):
        row = {"step": step, "reward": reward * step}
        metrics.append(row)
    recorder.rows("metrics", metrics)
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    first = write_run(tmp_path / "first", [1, 0, 0, 0], reward=1)
    second = write_run(tmp_path / "second", [1, 1, 1, 0], reward=2)
    return first, second


def test_gains_come_with_intervals_and_a_paired_difference(
    runs: tuple[Path, Path],
) -> None:
    table = compare.compare(*runs)
    accuracy = table[table["part"] == compare.ACCURACY].set_index("name")
    assert list(accuracy.index) == ["before", "after", "gain"]
    assert accuracy["first"].tolist() == [0, 25, 25]
    gain = accuracy.loc["gain"]
    assert gain["second"] == 75
    assert gain["first_low"] < 25 < gain["first_high"]
    assert gain["difference"] == 50
    # Of the changes 0, 100, 100 and 0: twice their standard error, by Student's t.
    assert gain["high"] - gain["difference"] == approx(3.182446 * 28.867513, rel=1e-5)


def test_runs_with_other_questions_have_no_interval_of_the_difference(
    tmp_path: Path,
) -> None:
    first = write_run(tmp_path / "first", [1, 0], reward=1)
    second = write_run(tmp_path / "second", [1, 0], reward=1, question="5*6")
    gain = compare.compare(first, second).set_index("name").loc["gain"]
    assert np.isnan(gain["low"])
    assert gain["difference"] == 0


def test_settings_that_are_equal_are_left_out(tmp_path: Path) -> None:
    first = write_run(tmp_path / "first", [1], reward=1)
    second = write_run(tmp_path / "second", [1, 1], reward=1)
    table = compare.compare(first, second)
    settings = table[table["part"] == compare.SETTING]
    assert settings["name"].tolist() == ["solves"]
    row = settings.iloc[0]
    assert row["first"] == 1
    assert row["second"] == 2


def test_metrics_are_means_of_the_last_fifth(runs: tuple[Path, Path]) -> None:
    table = compare.compare(*runs)
    metric = table[table["part"] == compare.METRIC].iloc[0]
    assert metric["name"] == "reward"
    assert metric["first"] == 9.5
    assert metric["difference"] == 9.5


def test_unfinished_runs_have_no_accuracy(runs: tuple[Path, Path]) -> None:
    for run in runs:
        (run / "scores.csv").unlink()
        (run / "metrics.jsonl").unlink()
    assert compare.compare(*runs).empty


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not the folder of a run"):
        compare.compare(tmp_path, tmp_path)
