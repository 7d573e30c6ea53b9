"""What a corpus costs SPICE as it grows from 1,000 to 1,000,000 documents: reading, opening, drawing, a whole step.

Draws and steps of all sizes alternate in one process; medians are printed and written to corpus.json.
"""

import json
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import datasets
import torch

from coevolve import config
from coevolve.trainer import Trainer
from published.corpus import find
from tinyworld.documents import TinyCorpus

SIZES = (1_000, 10_000, 100_000, 1_000_000)
DRAWS, ROUNDS, STEPS = 2_000, 15, 15


def seconds(function: Callable[[], object]) -> float:
    """Wall seconds of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def write(path: Path, size: int) -> None:
    """Write `size` JSON lines: documents of the tiny world, the same 10,000 over and over."""
    source = TinyCorpus("math", 10_000)
    lines = [json.dumps({"text": source.document(i)}) + "\n" for i in range(min(size, 10_000))]
    with path.open("w", encoding="utf-8") as file:
        for start in range(0, size, len(lines)):
            file.writelines(lines[: size - start])


def measure(root: Path) -> list[dict[str, float]]:
    """One row per size."""
    rows = []
    for size in SIZES:
        path = root / f"{size}.jsonl"
        write(path, size)
        row = {"documents": size, "megabytes": path.stat().st_size / 1e6}
        row["read_s"] = seconds(lambda path=path: find(path, limit=10_000))
        row["open_s"] = seconds(lambda path=path: find(path, limit=10_000))
        rows.append(row)
    sources = [find(root / f"{size}.jsonl", limit=10_000) for size in SIZES]
    draws: list[list[float]] = [[] for _ in SIZES]
    for number in range(ROUNDS):
        for source, times in zip(sources, draws, strict=True):
            rng = random.Random(number)
            times.append(seconds(lambda source=source, rng=rng: [source.sample(rng) for _ in range(DRAWS)]) / DRAWS)
    ends = (0, len(SIZES) - 1)
    trainers = {
        i: Trainer(config.build("spice", "quick", out=root, overrides={"corpus": str(root / f"{SIZES[i]}.jsonl")}))
        for i in ends
    }
    steps: dict[int, list[float]] = {i: [] for i in ends}
    for number in range(STEPS):
        for i, trainer in trainers.items():
            steps[i].append(seconds(lambda trainer=trainer, number=number: trainer.play(number)))
    for i, row in enumerate(rows):
        row["draw_us"] = 1e6 * statistics.median(draws[i])
        row["play_step_s"] = statistics.median(steps[i]) if i in steps else None
    return rows


def main() -> None:
    """Measure, print Markdown, write JSON beside this file."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        datasets.config.HF_DATASETS_CACHE = Path(folder, "cache")  # the texts are kept here and go with the folder
        rows = measure(Path(folder))
    result = {
        "machine": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "threads": 1,
        "rows": rows,
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    print("| documents | MB | read once, s | open again, s | a draw, µs | play a step, s |\n|---|---|---|---|---|---|")
    for row in rows:
        step = f"{row['play_step_s']:.3f}" if row["play_step_s"] else ""
        print(
            f"| {row['documents']:,} | {row['megabytes']:.1f} | {row['read_s']:.3f} | {row['open_s']:.4f} | "
            f"{row['draw_us']:.1f} | {step} |"
        )


if __name__ == "__main__":
    main()
