"""The memory of a learning step, measured on a fake GPU, beside the estimate of a run's memory.

`python -m benchmarks.memory` prints a table and the coefficients that fit best, which stand in
src/coevolve/training/activations.toml, and writes benchmarks/memory.json. It takes a minute or two
of a free core; --deep adds the models' whole depth, which takes five. --unsloth measures Unsloth's
code for GPUs instead, in the environment of `make test-engines`. Rows that are not measured stay.
Needs g++, and no GPU.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import fake_gpu
from benchmarks.fake_step import SHAPES, Case
from coevolve.losses.dispatch import CUDA_LOGIT_BYTES
from coevolve.training.memory import ACTIVATIONS, Model, activation_gib

GIB = 2**30
FLOAT32_BYTES = 4
PEFT = "peft"
UNSLOTH = "unsloth"
MODULES = {PEFT: "benchmarks.fake_step", UNSLOTH: "benchmarks.fake_unsloth"}
OUT = Path(__file__).with_suffix(".json")
WHOLE_DEPTH = 36  # of Qwen2.5-3B
RANK = 64
HEAD = ("shape", "trains", "layers", "tokens", "peak GiB", "estimate", "difference")


def cases(library: str, deep: bool) -> Iterator[Case]:
    """Yield what is measured: shapes, sizes of micro-batches, and more layers."""
    ranks = (RANK,) if library == UNSLOTH else (RANK, 0)
    layers = (4, WHOLE_DEPTH) if deep else (4,)
    for rank in ranks:
        kind = Case(lora=rank, library=library, micro_batches=2)
        for shape in SHAPES:
            for replies in (8, 16):
                yield replace(kind, shape=shape, replies=replies)
        for count in layers:
            yield replace(kind, layers=count, replies=16)
        if library == PEFT:  # Unsloth's attention cannot let replies share a prompt
            yield replace(kind, replies=16, group=9, micro_batches=9)


def measure(library: str, all_cases: list[Case]) -> list[dict[str, Any]]:
    """Run the cases of a library in processes of their own; RuntimeError if one fails."""
    parts = [all_cases]
    if library == UNSLOTH:  # it keeps its buffers for the next model
        parts = [[case] for case in all_cases]
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        shim = fake_gpu.compile_shim(Path(scratch))
        for part in parts:
            for row in fake_gpu.measure(MODULES[library], shim, map(asdict, part)):
                if "error" in row:
                    raise RuntimeError(row["error"])
                rows.append(row)
                print(f"{len(rows)} of {len(all_cases)}", file=sys.stderr, flush=True)
    return rows


def activation_bytes(row: dict[str, Any]) -> float:
    """Return what a step kept at its peak beside weights, moments and gradients."""
    gradients = FLOAT32_BYTES * row["trained"]
    return (row["peak_gib"] - row["before_gib"]) * GIB - gradients


def fit(rows: list[dict[str, Any]], trains_all: bool) -> dict[str, float]:
    """Return the coefficients of `memory.activation_gib` that fit rows of one kind best."""
    matrix = []
    measured = []
    for row in rows:
        sizes = SHAPES[row["shape"]]
        width = sizes["hidden_size"]
        columns = [
            row["tokens"] * sizes["intermediate_size"],
            row["tokens"] * width * row["layers"],
        ]
        if trains_all:
            head = width * sizes["vocab_size"]
            columns += [head, head * sizes["tie_word_embeddings"]]
        scale = activation_bytes(row)  # relative errors count
        matrix.append([column / scale for column in columns])
        measured.append(1.0)
    solution, *_ = np.linalg.lstsq(np.array(matrix), np.array(measured), rcond=None)
    names = ("inner", "inputs", "head", "tied")
    return {name: float(value) for name, value in zip(names, solution, strict=False)}


def kind_of(row: dict[str, Any]) -> str:
    """Return the table of activations.toml that a row is about."""
    if not row["lora"]:
        return "all"
    return UNSLOTH if row["library"] == UNSLOTH else "lora"


def model_of(row: dict[str, Any]) -> Model:
    """Return the numbers of a row's model that an update's memory depends on."""
    sizes = SHAPES[row["shape"]]
    return Model(
        parameters=10**9,  # large: layers are recomputed
        linear_parameters=0,
        linear_widths=0,
        width=sizes["hidden_size"],
        inner_width=sizes["intermediate_size"],
        layers=row["layers"],
        vocabulary=sizes["vocab_size"],
        cache_bytes=0,
        is_tied=sizes["tie_word_embeddings"],
    )


def predicted_gib(row: dict[str, Any]) -> float:
    """Return the peak that `coevolve.training.memory` expects of a row."""
    gradients = FLOAT32_BYTES * row["trained"] / GIB
    activations = activation_gib(model_of(row), row["tokens"], kind_of(row))
    return float(row["before_gib"] + gradients + activations)


def loss_leads(row: dict[str, Any]) -> bool:
    """Whether the estimate of a row's activations is the limit of the loss's buffers."""
    activations = activation_gib(model_of(row), row["tokens"], kind_of(row))
    return activations == CUDA_LOGIT_BYTES / GIB


def cells(row: dict[str, Any]) -> list[str]:
    """Return a row of the table that HEAD names."""
    estimate = predicted_gib(row)
    return [
        row["shape"],
        trained_by(row),
        str(row["layers"]),
        f"{row['tokens']:,}",
        f"{row['peak_gib']:.2f}",
        f"{estimate:.2f}",
        f"{estimate / row['peak_gib'] - 1:+.1%}",
    ]


def trained_by(row: dict[str, Any]) -> str:
    """Return what a row trains, by which library, and whether replies share a prompt."""
    trained = f"LoRA, rank {row['lora']}" if row["lora"] else "all weights"
    by = ", Unsloth" if row["library"] == UNSLOTH else ""
    shared = ", shared prompts" if row.get("group", 1) > 1 else ""
    return trained + by + shared


def main() -> None:
    """Measure, fit, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deep", action="store_true", help="whole depth as well")
    parser.add_argument("--unsloth", action="store_true", help="Unsloth's code instead")
    options = parser.parse_args()
    if fake_gpu.why_not():
        print(f"not measured: {fake_gpu.why_not()}")
        return
    library = UNSLOTH if options.unsloth else PEFT
    measured = measure(library, list(cases(library, options.deep)))
    rows = []
    for row in json.loads(OUT.read_text(encoding="utf-8")):
        if row["library"] != library:
            rows.append(row)
    # PEFT's rows stand first.
    rows = [*rows, *measured] if library == UNSLOTH else [*measured, *rows]
    for kind in ACTIVATIONS:
        chosen = [row for row in rows if kind_of(row) == kind]
        print(kind, fit(chosen, trains_all=kind == "all"))
    print(" | ".join(HEAD))
    for row in rows:
        print(" | ".join(cells(row)))
    OUT.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
