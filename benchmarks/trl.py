"""The last of two steps of four methods under both trainers: python -m benchmarks.trl FILE."""

import json
import math
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from coevolve.runs import record
from coevolve.training import config
from coevolve.training.loop import train
from tinyworld import BACKBONES

Weights = Mapping[str, Tensor]

FIELDS = {"steps": 2, "batch_size": 3, "eval_every": 0, "eval_items": 1}
FIELDS_OF: dict[str, dict[str, Any]] = {
    "mae": {"solves": 2, "attempts": 2},
    "sage": {},
    "spice": {},
    "conl": {"examined": 1, "batch_size": 1},
}
METRICS = ("loss", "grad_norm", "tokens")


def compare(method: str, folder: Path) -> dict[str, Any]:
    """Train a method twice; return its last metrics, and how far the weights are apart.

    `apart` is the distance of the two models as a part of the way from the untrained one.
    """
    row: dict[str, Any] = {"method": method}
    weights = []
    for trainer in ("own", "trl"):
        fields = FIELDS | FIELDS_OF[method] | {"trainer": trainer}
        out = folder / trainer
        train(config.build(method, "quick", out=out, overrides=fields))
        metrics = record.read(out).iloc[-1]
        row[trainer] = {name: float(metrics[name]) for name in METRICS}
        weights.append(load_file(out / "policy" / "model.safetensors"))
    own, other = weights
    untrained = load_file(BACKBONES / "tiny" / "model.safetensors")
    row["apart"] = distance(own, other) / distance(own, untrained)
    return row


def distance(one: Weights, two: Weights) -> float:
    """Return the Euclidean distance of two models' weights."""
    squares = [(one[name].double() - two[name]).square().sum() for name in one]
    return math.sqrt(sum(map(float, squares)))


def main(file: Path) -> None:
    """Write the comparisons to a JSON file."""
    rows = []
    for method in FIELDS_OF:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(compare(method, Path(folder)))
    file.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
