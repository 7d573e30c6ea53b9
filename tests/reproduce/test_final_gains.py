"""Gains at the end of training, step by step along a chain of methods, on made-up scores."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pytest import approx

from coevolve.runs.record import Recorder, write_json
from reproduce.analysis import standins, training_curves

CORRECT = {  # run: correct answers to the four questions of every family
    "none": 1,
    "free": 2,
    "all": 4,
}
SEEDS = [0, 1]


def answers(correct: int) -> Iterator[dict[str, Any]]:
    item = 0
    for family in standins.layout("spice").benchmark_of:
        for number in range(4):
            yield {
                "stage": "after",
                "strategy": "vanilla",
                "split": "test",
                "family": family,
                "level": 1,
                "item": item,
                "question": f"{family} {number}",
                "correct": int(number < correct),
            }
            item += 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of each run, all trained."""
    home = tmp_path_factory.mktemp("runs")
    for run, correct in CORRECT.items():
        for seed in SEEDS:
            recorder = Recorder(home / f"{run}-s{seed}")
            write_json(recorder.out / "summary.json", {"steps": 10})
            recorder.scores(answers(correct))
    return home


def gains_along(folder: Path, *compared: str) -> pd.DataFrame:
    runs = dict.fromkeys(CORRECT, SEEDS)
    labels = {run: run for run in CORRECT}
    gains = training_curves.final_gains(folder, runs, labels, compared, "spice")
    return gains[gains["benchmark"] == "Overall"]


def test_a_chain_has_a_line_per_step_and_one_for_the_whole(folder: Path) -> None:
    gains = gains_along(folder, "none", "free", "all")
    assert gains["over"].tolist() == ["none", "free", "none"]
    assert gains["method"].tolist() == ["free", "all", "all"]
    assert gains["delta"].tolist() == approx([25, 50, 75])


def test_each_step_has_its_share_of_the_whole(folder: Path) -> None:
    gains = gains_along(folder, "none", "free", "all")
    assert gains["share"].tolist() == approx([1 / 3, 2 / 3, 1])


def test_two_methods_are_one_step(folder: Path) -> None:
    gains = gains_along(folder, "none", "all")
    assert gains["method"].tolist() == ["all"]
    assert gains["delta"].tolist() == approx([75])
    assert gains["share"].tolist() == approx([1])
