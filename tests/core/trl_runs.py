"""Short runs with TRL's trainer, and how their updates are compared."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from core import ranks
from safetensors.torch import load_file
from torch import Tensor

from coevolve.runs import record
from tinyworld import BACKBONES

WEIGHTS = "policy/model.safetensors"
ADAPTER = "policy/adapter_model.safetensors"
SHARDS_ON_CPU = Path(__file__).with_name("shards_on_cpu.py")
FIELDS = {
    "steps": 2,
    "eval_every": 0,
    "eval_items": 1,
    "batch_size": 3,
    "strategies": ["vanilla"],
}
FIELDS_OF = {
    "mae": {"solves": 2, "attempts": 2, "max_tokens": 24},
    "conl": {"batch_size": 1},
}
SAME_UPDATE = (
    "loss",
    "grad_norm",
    "entropy",
    "tokens",
    "ratio_mean",
    "clip_fraction",
)
# How far two trained models may be from each other, as a part of the way they came.
TOLERANCE = 1e-3


def last_metrics(out: Path) -> dict:
    row = record.read(out).iloc[-1]
    return row[list(SAME_UPDATE)].to_dict()


def distance(one: Mapping[str, Tensor], two: Mapping[str, Tensor]) -> float:
    """Return the Euclidean distance of two models' weights."""
    squares = [(one[name] - two[name]).square().sum() for name in one]
    return math.sqrt(sum(map(float, squares)))


def assert_same_weights(one: Path, two: Path) -> None:
    """Two runs that start from `tiny` end where their distance is small beside the way."""
    trained = load_file(one / WEIGHTS)
    way = distance(trained, load_file(BACKBONES / "tiny" / "model.safetensors"))
    assert way > 0
    assert distance(trained, load_file(two / WEIGHTS)) < TOLERANCE * way


def assert_same_update(one: Path, two: Path) -> None:
    expected = last_metrics(one)
    assert last_metrics(two) == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert_same_weights(one, two)


def fields_of(method: str) -> dict:
    return FIELDS | FIELDS_OF.get(method, {})


def words_of(fields: dict) -> list[str]:
    """Return fields as words of the command line."""
    return [f"{name}={json.dumps(value)}" for name, value in fields.items()]


def train_in_two_processes(
    out: Path, fields: dict[str, Any], environment: Mapping[str, str]
) -> None:
    """Train MAE in two processes on CPUs, with these variables for accelerate."""
    command = ["train", "mae", "--preset=quick", f"--out={out}", *words_of(fields)]
    ranks.run(2, str(SHARDS_ON_CPU), *command, environment=environment)
