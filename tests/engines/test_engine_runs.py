"""Real runs of SmolLM2 with every engine: they learn, and transformers reads Unsloth's adapter.

Run by `make test-engines`; skipped where Unsloth or vLLM is not installed. Unsloth patches
transformers, so every run is a process.
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
FIELDS = (
    "model=smollm2 lora=[8,16,0.0] learning_rate=1e-3 steps=3 batch_size=2 max_tokens=4 "
    "eval_items=1 eval_every=0"
)
pytestmark = pytest.mark.skipif(
    not (find_spec("unsloth") and find_spec("vllm")), reason="see make test-engines"
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with a run of every engine, named after it."""
    folder = tmp_path_factory.mktemp("runs")
    for engine in ENGINES:
        options = f"--preset real --out {folder / engine} engine={engine} {FIELDS}"
        command = [sys.executable, "-m", "coevolve", "train", DIGITS, *options.split()]
        process = subprocess.run(command, capture_output=True, text=True)
        assert process.returncode == 0, f"{engine}: {process.stderr[-3000:]}"
    return folder


@pytest.mark.parametrize("engine", ENGINES)
def test_a_short_run_learns_and_its_samples_match_the_learner(engine, runs):
    metrics = record.read(runs / engine).query("step > 0")
    assert 0 < metrics["logprob_gap"].max() < 1e-4  # None where a step taught nothing
    rewards = list(metrics["reward/solver"])
    assert rewards[-1] > rewards[0] + 0.2


def test_unsloth_samples_what_transformers_with_peft_samples(runs):
    def first_samples(engine):
        episodes = record.read(runs / engine, "episodes")
        return list(episodes.query("step == 1")["samples"])

    samples = first_samples("torch")
    assert samples == first_samples("unsloth")
    assert len(samples) == 2


@pytest.fixture(scope="module")
def exported(runs, tmp_path_factory):
    """The adapter of the run with Unsloth, merged into its base."""
    folder = tmp_path_factory.mktemp("exported")
    options = ["--to", str(folder), "--dtype", "float32"]
    assert main(["export", f"{runs}/unsloth/policy", *options]) == 0
    return folder


def test_an_adapter_that_unsloth_wrote_is_exported_as_a_whole_model(exported):
    assert (exported / "model.safetensors").is_file()
    assert not (exported / "adapter_config.json").exists()


@pytest.mark.parametrize("is_exported", [False, True], ids=["adapter", "exported"])
def test_plain_transformers_answers_as_the_run_with_unsloth_did(
    is_exported, runs, exported
):
    scores = record.read(runs / "unsloth", "scores").set_index("stage")
    answers = list(scores.loc["after", "answer"])
    assert answers != list(scores.loc["before", "answer"])
    solver = Digits().solver
    turns = [solver(question=question) for question in scores.loc["after", "question"]]
    folder = exported if is_exported else runs / "unsloth" / "policy"
    replies = load_policy(str(folder)).serve(0.0, 4).answer(turns)
    assert [reply.text for reply in replies] == answers
