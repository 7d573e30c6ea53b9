"""Frozen weights of 4 bits and moments of 8 bits, with bitsandbytes on a CPU: for real, and slowly.

Run by `make test-engines`; skipped where bitsandbytes is not installed.
"""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from core.small_runs import train_small
from safetensors.torch import load_file

from coevolve.engines.loading import load_policy
from coevolve.models.lora import load_in_4bit
from coevolve.runs import record

pytestmark = pytest.mark.skipif(
    find_spec("bitsandbytes") is None, reason="see make test-engines"
)
LORA = [4, 8, 0.0]
FIELDS = {
    "lora": LORA,
    "quantize": "4bit",
    "steps": 1,
    "eval_every": 0,
    "eval_items": 1,
    "max_tokens": 24,
}
ADAPTER = "policy/adapter_model.safetensors"
# Of weights of 4 bits whose products are rounded to bfloat16: nats a token, or a part of a norm.
ROUNDING = 0.05
# The losses themselves are about 0.01.
LOSS_ROUNDING = 0.001


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One step of MAE by the run's own trainer."""
    return train_small(tmp_path_factory.mktemp("own") / "run", **FIELDS)


def test_the_base_has_weights_of_4_bits() -> None:
    name = "model.layers.0.self_attn.q_proj"
    quantized = load_in_4bit("tiny").model
    layer = quantized.get_submodule(name)
    whole = load_policy("tiny").model
    original = whole.get_submodule(name)
    assert type(layer).__name__ == "Linear4bit"
    assert layer.weight.dtype == torch.uint8
    assert layer.weight.numel() == original.weight.numel() / 2  # two to a byte


def test_sampler_and_learner_agree_on_its_replies(own: Path) -> None:
    metrics = record.read(own).iloc[-1]
    assert metrics["tokens"] > 0
    assert 0 < metrics["logprob_gap"] < ROUNDING


def learnt(out: Path) -> torch.Tensor:
    """Return the second factors of a run's adapter, which were zero, as one vector."""
    adapter = load_file(out / ADAPTER)
    names = [name for name in sorted(adapter) if "lora_B" in name]
    return torch.cat([adapter[name].flatten() for name in names])


def test_trl_makes_the_same_update(own: Path, tmp_path: Path) -> None:
    trl = train_small(tmp_path / "trl", **FIELDS, trainer="trl")
    expected = record.read(own).iloc[-1]
    metrics = record.read(trl).iloc[-1]
    assert metrics["tokens"] == expected["tokens"]
    loss = pytest.approx(expected["loss"], abs=LOSS_ROUNDING)
    assert metrics["loss"] == loss
    norm = pytest.approx(expected["grad_norm"], rel=ROUNDING)
    assert metrics["grad_norm"] == norm
    # AdamW's first step follows the signs of the gradient; those near zero depend on rounding.
    expected_signs = learnt(own).sign()
    signs = learnt(trl).sign()
    is_same = signs == expected_signs
    assert is_same.float().mean() > 0.9


def test_trl_keeps_small_updates_of_the_adapter(tmp_path: Path) -> None:
    # The first factors, of bfloat16 at first, move from the second step on.
    changes = {"trainer": "trl", "learning_rate": 1e-6, "steps": 2}
    trl = train_small(tmp_path / "trl", **FIELDS | changes)
    adapter = load_file(trl / ADAPTER)
    assert {weights.dtype for weights in adapter.values()} == {torch.float32}
    first = [adapter[name].flatten() for name in adapter if "lora_A" in name]
    weights = torch.cat(first)
    assert (weights != weights.bfloat16().float()).any()


def test_moments_of_8_bits_train_as_those_of_32(tmp_path: Path) -> None:
    fields = FIELDS | {"quantize": ""}
    ways = {}
    for optimizer in ("adamw", "adamw_8bit"):
        out = train_small(tmp_path / optimizer, **fields, optimizer=optimizer)
        ways[optimizer] = learnt(out)
    way = ways["adamw"]
    difference = ways["adamw_8bit"] - way
    assert difference.norm() < 0.05 * way.norm()


@pytest.mark.skipif(find_spec("unsloth") is None, reason="see make test-engines")
def test_unsloth_trains_on_a_base_of_4_bits(tmp_path: Path) -> None:
    # Unsloth patches transformers, so its run is a process.
    command = [sys.executable, "-m", "coevolve", "train", "mae", "--preset=smoke"]
    command.append(f"--out={tmp_path}")
    fields = FIELDS | {"engine": "unsloth"}
    for name, value in fields.items():
        command.append(f"{name}={json.dumps(value)}")
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-3000:]
    metrics = record.read(tmp_path).iloc[-1]
    assert metrics["tokens"] > 0
    assert 0 < metrics["logprob_gap"] < ROUNDING
