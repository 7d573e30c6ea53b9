"""The measurement of a real shape: it runs on the embedded one, and the large one has the size it is named after."""

import importlib.util
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from coevolve import policies

FILE = Path(__file__).parents[2] / "benchmarks" / "real.py"


@pytest.fixture(scope="module")
def real():
    spec = importlib.util.spec_from_file_location("real", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_reports_every_phase_of_a_step(real):
    report = real.measure("tiny", {"lora": [4, 8, 0.0]})
    assert report["parameters"] == policies.load("tiny").model.num_parameters() and report["lora"] == (4, 8, 0.0)
    rows = {row["phase"]: row for row in report["phases"]}
    assert [*rows] == ["load", "play", "learn", "evaluate", "save"]
    assert all(row["seconds"] > 0 and row["peak_mib"] > 0 for row in rows.values())
    assert 0 < rows["learn"]["tokens"] <= rows["play"]["tokens"], "only what was said is learnt"
    assert rows["evaluate"]["tokens"] > 0 and not rows["save"]["tokens"]


def test_the_large_shape_is_that_of_qwen(real):
    wanted = real.shape("3b")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(wanted)
    assert model.num_parameters() == 3_085_938_688 and wanted.dtype == torch.bfloat16
