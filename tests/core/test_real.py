"""The measurement of a real shape: it runs on the embedded one, and the large one has the size it is named after."""

import importlib.util
import json
import subprocess
import sys
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


def test_it_reports_every_phase_of_a_step(tmp_path):
    out = tmp_path / "real.json"
    command = [sys.executable, FILE, "--shape", "tiny", "--out", out, "lora=[4,8,0.0]"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    text = done.stdout
    report = json.loads(out.read_text())
    assert report["parameters"] == policies.load("tiny").model.num_parameters() and report["lora"] == [4, 8, 0.0]
    rows = {row["phase"]: row for row in report["phases"]}
    assert [*rows] == ["load", "play", "learn", "evaluate", "save"]
    for name, row in rows.items():
        assert row["seconds"] > 0 and row["peak_mib"] > 0 and f"| {name} | {row['seconds']:.2f} |" in text
        speed = row["tokens_per_s"]
        assert speed == (pytest.approx(row["tokens"] / row["seconds"]) if row["tokens"] else None)
    assert 0 < rows["learn"]["tokens"] <= rows["play"]["tokens"], "only what was said is learnt"
    assert rows["evaluate"]["tokens"] > 0 and not rows["save"]["tokens"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_large_shape_has_no_numbers(real, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(FILE), "--out", str(tmp_path / "real.json")])
    real.main()
    assert capsys.readouterr().out == "not measured: there is no CUDA device\n"
    assert not [*tmp_path.iterdir()]


def test_a_vocabulary_beyond_the_tokenizer_plays_and_learns_with_the_papers_prompts(real, monkeypatch):
    sizes, fields = real.SHAPES["3b"]
    narrow = {**sizes, "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 96, "dtype": "float32"}
    monkeypatch.setitem(real.SHAPES, "3b", (narrow, fields))
    few = {"lora": [4, 8, 0.0], "batch_size": 2, "attempts": 1, "max_tokens": 16, "eval_items": 1, "micro_tokens": 2048}
    rows = {row["phase"]: row for row in real.measure("3b", few)["phases"]}
    assert rows["play"]["tokens"] >= 64 and rows["learn"]["tokens"] >= 64, "2 proposals and 2 answers of 16 tokens"


def test_the_large_shape_is_that_of_qwen(real):
    wanted = real.shape("3b")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(wanted)
    assert model.num_parameters() == 3_085_938_688 and wanted.dtype == torch.bfloat16
    assert model.lm_head.out_features == 151936 and wanted.layer_types == ["full_attention"] * 36
