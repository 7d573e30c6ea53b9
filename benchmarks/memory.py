"""The memory of a learning step, measured on a fake GPU, beside the estimate of a run's memory.

`python -m benchmarks.memory` prints a table and the coefficients that fit best, which stand in
src/coevolve/training/activations.toml, and writes benchmarks/memory.json. It takes a minute or two
of a free core; --deep adds the models' whole depth, which takes five. Needs g++, and no GPU.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import fake_gpu
from benchmarks.fake_step import SHAPES, Case

GIB = 2**30
FLOAT32_BYTES = 4
ROOT = Path(__file__).resolve().parents[1]
OUT = Path(__file__).with_suffix(".json")
WHOLE_DEPTH = 36  # of Qwen2.5-3B
RANK = 64
HEAD = ("shape", "trains", "layers", "tokens", "peak GiB", "estimate", "difference")


def cases(deep: bool) -> Iterator[Case]:
    """Yield what is measured: shapes, sizes of micro-batches, and more layers."""
    for rank in (RANK, 0):
        for shape in SHAPES:
            for replies in (8, 16):
                yield Case(shape, lora=rank, replies=replies, micro_batches=2)
        yield Case("Qwen2.5-3B", 4, lora=rank, replies=16, micro_batches=2)
        if deep:
            yield Case(
                "Qwen2.5-3B", WHOLE_DEPTH, lora=rank, replies=16, micro_batches=2
            )


def measure(all_cases: list[Case]) -> list[dict[str, Any]]:
    """Run the cases in a process of their own; return a row for each."""
    with tempfile.TemporaryDirectory() as scratch:
        library = fake_gpu.compile_shim(Path(scratch))
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.fake_step"]
        process = subprocess.Popen(
            [*command, str(library)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([asdict(case) for case in all_cases]))
        process.stdin.close()
        rows = []
        for line in process.stdout:
            rows.append(json.loads(line))
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


def predicted_gib(row: dict[str, Any]) -> float:
    """Return the peak that `coevolve.training.memory` expects of a row."""
    from coevolve.training.memory import Model, activation_gib

    sizes = SHAPES[row["shape"]]
    model = Model(
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
    gradients = FLOAT32_BYTES * row["trained"] / GIB
    activations = activation_gib(model, row["tokens"], bool(row["lora"]))
    return float(row["before_gib"] + gradients + activations)


def cells(row: dict[str, Any]) -> list[str]:
    """Return a row of the table that HEAD names."""
    estimate = predicted_gib(row)
    return [
        row["shape"],
        f"LoRA, rank {row['lora']}" if row["lora"] else "all weights",
        str(row["layers"]),
        f"{row['tokens']:,}",
        f"{row['peak_gib']:.2f}",
        f"{estimate:.2f}",
        f"{estimate / row['peak_gib'] - 1:+.1%}",
    ]


def main() -> None:
    """Measure, fit, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deep", action="store_true", help="whole depth as well")
    options = parser.parse_args()
    if fake_gpu.why_not():
        print(f"not measured: {fake_gpu.why_not()}")
        return
    rows = measure(list(cases(options.deep)))
    for kind in ("lora", "all"):
        chosen = [row for row in rows if bool(row["lora"]) == (kind == "lora")]
        print(kind, fit(chosen, trains_all=kind == "all"))
    print(" | ".join(HEAD))
    for row in rows:
        print(" | ".join(cells(row)))
    OUT.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
