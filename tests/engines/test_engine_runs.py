"""Runs of SmolLM2 with every engine for real: they learn, and plain transformers reads and merges what Unsloth wrote.

Run by `make test-engines`; skipped where Unsloth or vLLM is not installed. Unsloth patches transformers, hence processes.
"""

import subprocess
import sys
from importlib.util import find_spec

import pytest
from engines.digits import DIGITS, Digits

from coevolve.cli import main
from coevolve.engines.loading import load_policy
from coevolve.runs import record

ENGINES = ("torch", "vllm", "unsloth", "unsloth+vllm")
FIELDS = "model=smollm2 lora=[8,16,0.0] learning_rate=1e-3 steps=3 batch_size=2 max_tokens=4 eval_items=1 eval_every=0"
pytestmark = pytest.mark.skipif(not (find_spec("unsloth") and find_spec("vllm")), reason="see make test-engines")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    home = tmp_path_factory.mktemp("runs")
    for engine in ENGINES:
        train = f"-m coevolve train {DIGITS} --preset real --out {home / engine} engine={engine} {FIELDS}"
        done = subprocess.run([sys.executable, *train.split()], capture_output=True, text=True)
        assert done.returncode == 0, f"{engine}: {done.stderr[-3000:]}"
    return home


@pytest.mark.parametrize("engine", ENGINES)
def test_a_short_run_learns_and_its_samples_match_the_learner(engine, runs):
    metrics = record.read(runs / engine).query("step > 0")
    assert 0 < metrics["logprob_gap"].max() < 1e-4  # None where a step taught nothing
    rewards = [*metrics["reward/solver"]]
    assert rewards[-1] > rewards[0] + 0.2


def test_unsloth_samples_what_transformers_with_peft_samples(runs):
    first, other = (record.read(runs / engine, "episodes").query("step == 1")["samples"] for engine in ENGINES[::2])
    assert [*first] == [*other] and len(first) == 2


def test_plain_transformers_reads_and_merges_the_adapter_that_unsloth_wrote(runs, tmp_path):
    assert main(["export", f"{runs}/unsloth/policy", "--to", str(tmp_path), "--dtype", "float32"]) == 0
    assert (tmp_path / "model.safetensors").is_file() and not (tmp_path / "adapter_config.json").exists()
    scores = record.read(runs / "unsloth", "scores").set_index("stage")
    asked = [Digits().solver(question=question) for question in scores.loc["after", "question"]]
    for place in (runs / "unsloth" / "policy", tmp_path):
        said = [reply.text for reply in load_policy(str(place)).serve(0.0, 4).answer(asked)]
        assert said == [*scores.loc["after", "answer"]] != [*scores.loc["before", "answer"]]
