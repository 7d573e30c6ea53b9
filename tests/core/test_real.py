"""Measurements run: of a real shape on the embedded one, of whole steps beside TRL, of what grows."""

import runpy
from pathlib import Path

from benchmarks import growth, step
from coevolve.engines.loading import load_policy


def test_it_reports_every_phase_of_a_step():
    measure = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "real.py"))["measure"]
    report = measure("tiny", {"lora": [4, 8, 0.0]})
    assert report["parameters"] == load_policy("tiny").model.num_parameters() and report["lora"] == (4, 8, 0.0)
    rows = {row["phase"]: row for row in report["phases"]}
    assert [*rows] == ["load", "play", "learn", "evaluate", "save"]
    assert all(row["seconds"] > 0 and row["peak_mib"] > 0 for row in rows.values())
    assert 0 < rows["learn"]["tokens"] <= rows["play"]["tokens"], "only what was said is learnt"
    assert rows["evaluate"]["tokens"] > 0 and not rows["save"]["tokens"]


def test_whole_steps_beside_trl_phases_and_the_driver_are_measured(monkeypatch):
    found = step.against_trl(2, full=True, steps=1)
    assert found["our_tokens"] == found["trl_tokens"] == step.LONGEST
    multiply = [row["phase"] for row in step.phases(8, 1)["phases"] if row["floor"]]
    assert multiply == ["prefill", "decode", "forward and loss", "backward"]
    monkeypatch.setattr(growth, "IN_FLIGHT", (1, 10))
    assert all([size for size, _ in points] == [1, 10] for points in growth.driver().values())
