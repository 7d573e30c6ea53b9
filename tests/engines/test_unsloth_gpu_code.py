"""Unsloth's own code for GPUs, on a fake one: our calls fit it, and it stays on the GPU.

Run by `make test-engines`; skipped without Unsloth or g++. `benchmarks/fake_unsloth.py` says what
is fake. A process takes 20 seconds of a core to import Unsloth.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from core.learning_steps import OF_LOSSES, SMALL

from benchmarks import fake_gpu, fake_step, memory
from coevolve.models.lora import UNSLOTH_MODULES

pytestmark = pytest.mark.skipif(
    find_spec("unsloth") is None,
    reason="Unsloth is not installed: make test-engines installs it",
)
# Unsloth's kernels for norms, positions and the products in between, and ours for the loss.
KERNELS = {
    "_rms_layernorm_forward",
    "_rms_layernorm_backward",
    "_rope_embedding_QK",
    "_fg_kernel",
    "_DWf_DW_dfg_kernel",
    "_statistics",
    "_gradient",
}
MUTANTS = {
    "cpu": "_statistics got a tensor on cpu",
    "float32": "hidden_TH and head_VH must both be",
    "no length": "'<' not supported between instances of 'NoneType' and 'int'",
}
LAYERS = fake_step.Case().layers
DEEP = {"layers": memory.WHOLE_DEPTH, "replies": 16, "micro_batches": 2}


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if fake_gpu.why_not():
        pytest.skip(fake_gpu.why_not())
    return fake_gpu.compile_shim(tmp_path_factory.mktemp("shim"))


def measure(shim: Path, cases: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Take the steps in one process; return what was measured, by name."""
    rows = fake_gpu.measure("benchmarks.fake_unsloth", shim, cases.values())
    return dict(zip(cases, rows, strict=True))


@pytest.fixture(scope="module")
def results(shim: Path) -> dict[str, dict[str, Any]]:
    cases = {name: SMALL | settings for name, settings in OF_LOSSES.items()}
    for name in MUTANTS:
        cases[f"mutant/{name}"] = SMALL | {"mutant": name}
    return measure(shim, cases)


@pytest.mark.parametrize("name", OF_LOSSES)
def test_a_step_of_unsloth_stays_on_the_gpu(name, results):
    result = results[name]
    assert "error" not in result
    assert result["devices"] == ["cuda:0"]
    assert result["peak_gib"] > result["before_gib"] >= result["loaded_gib"]


@pytest.mark.parametrize("name", OF_LOSSES)
def test_a_step_runs_unsloth_s_kernels_and_causal_attention(name, results):
    assert set(results[name]["launches"]) == KERNELS
    # A token that is sampled attends to all before it under a mask, once in each layer.
    assert results[name]["attention"].keys() == {"causal", "masked"}
    assert results[name]["attention"]["masked"] == LAYERS


def test_our_sampler_speaks_with_what_unsloth_patched(results):
    assert results["ppo"]["logits"] == [2, fake_step.SHAPES["Qwen2.5-3B"]["vocab_size"]]


def test_vllm_gets_the_adapter_that_unsloth_holds(results):
    expected = []
    for layer in range(LAYERS):
        for name in UNSLOTH_MODULES:
            part = (
                "mlp" if name in ("gate_proj", "up_proj", "down_proj") else "self_attn"
            )
            place = f"base_model.model.model.layers.{layer}.{part}.{name}"
            expected += [f"{place}.lora_A.weight", f"{place}.lora_B.weight"]
    files = results["ppo"]["saved"]
    assert files["engine"]["names"] == files["end"]["names"] == sorted(expected)
    assert files["engine"]["devices"] == ["cpu"]
    assert files["engine"]["types"] == ["torch.bfloat16"]
    assert files["end"]["types"] == ["torch.float32"]


@pytest.mark.parametrize(("name", "message"), MUTANTS.items())
def test_a_fault_is_found(name, message, results):
    assert message in results[f"mutant/{name}"]["error"]


def test_the_memory_at_full_depth_is_the_estimate_s(shim):
    row = measure(shim, {"deep": DEEP | {"library": memory.UNSLOTH}})["deep"]
    assert memory.predicted_gib(row) == pytest.approx(row["peak_gib"], rel=0.05)
    assert row["parameters"] - row["trained"] == pytest.approx(3.09e9, rel=0.01)
