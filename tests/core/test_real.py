"""The measurement of a real shape runs on the embedded one."""

import runpy
from pathlib import Path

from coevolve import policies


def test_it_reports_every_phase_of_a_step():
    measure = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "real.py"))["measure"]
    report = measure("tiny", {"lora": [4, 8, 0.0]})
    assert report["parameters"] == policies.load("tiny").model.num_parameters() and report["lora"] == (4, 8, 0.0)
    rows = {row["phase"]: row for row in report["phases"]}
    assert [*rows] == ["load", "play", "learn", "evaluate", "save"]
    assert all(row["seconds"] > 0 and row["peak_mib"] > 0 for row in rows.values())
    assert 0 < rows["learn"]["tokens"] <= rows["play"]["tokens"], "only what was said is learnt"
    assert rows["evaluate"]["tokens"] > 0 and not rows["save"]["tokens"]
