"""The memory of learning steps on a real GPU, beside the peaks of benchmarks/memory.json.

`python -m benchmarks.gpu_memory` takes the steps that `benchmarks.memory` took on a fake GPU and
writes benchmarks/gpu_memory.json. Cases that need more than the free memory are left out. It takes
two or three minutes; without a CUDA device it measures nothing.
"""

import argparse
import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch

from benchmarks import fake_step
from benchmarks.fake_step import Case
from coevolve.validation import user_path

GIB = 2**30
FAKE = Path(__file__).with_name("memory.json")
OUT = Path(__file__).with_suffix(".json")
# Beside the tensors that the fake GPU counts: workspaces of matrix products, and fragments.
SPARE_GIB = 1.0
Row = dict[str, Any]


class Memory:
    """The bytes of all tensors on the GPU, workspaces of matrix products among them."""

    @property
    def now(self) -> int:
        """Bytes that are allocated."""
        return torch.cuda.memory_allocated()

    @property
    def peak(self) -> int:
        """The most bytes that were allocated at once since `reset_peak`."""
        return torch.cuda.max_memory_allocated()

    def reset_peak(self) -> None:
        """Start a new measurement."""
        torch.cuda.reset_peak_memory_stats()

    def counts(self) -> Row:
        """Return nothing: a real GPU counts neither operations nor launches."""
        return {}


@contextmanager
def real_gpu() -> Iterator[Memory]:
    """Give the GPU to the code inside, as `fake_gpu.device` gives the fake one."""
    yield Memory()


def case_of(row: Row) -> Case:
    """Return the case that a row of memory.json measured."""
    names = [field.name for field in fields(Case) if field.name in row]
    return Case(**{name: row[name] for name in names})


def fits(row: Row, free_gib: float) -> bool:
    """Whether a row of memory.json needs no more than the free memory."""
    return bool(row["peak_gib"] + SPARE_GIB <= free_gib)


def measure(row: Row) -> Row:
    """Take the steps of a row of memory.json on the GPU; return both peaks in GiB, or the error.

    `left_gib` is what earlier cases left on the GPU: workspaces alone, unless they leak.
    """
    gc.collect()
    torch.cuda.empty_cache()
    case = case_of(row)
    result = asdict(case) | {
        "tokens": row["tokens"],
        "fake_gib": row["peak_gib"],
        "left_gib": torch.cuda.memory_allocated() / GIB,
    }
    try:
        measured = fake_step.measure(case, real_gpu)
    except (RuntimeError, ValueError, TypeError) as error:  # no more memory among them
        text = " ".join(str(error).split())
        return result | {"error": f"{type(error).__name__}: {text[:500]}"}
    result["before_gib"] = measured["before_gib"]
    result["peak_gib"] = measured["peak_gib"]
    result["difference"] = measured["peak_gib"] / row["peak_gib"] - 1
    return result


def line(result: Row) -> str:
    """Describe a measured case."""
    trains = f"LoRA, rank {result['lora']}" if result["lora"] else "all weights"
    layers = f"{result['layers']} layers"
    case = f"{result['shape']}, {trains}, {layers}, {result['tokens']:,} tokens"
    if "error" in result:
        return f"{case}: {result['error']}"
    real = f"{result['peak_gib']:.2f} GiB"
    fake = f"{result['fake_gib']:.2f} on the fake GPU"
    return f"{case}: {real}, {fake} ({result['difference']:+.1%})"


def summary(results: list[Row], skipped: int) -> str:
    """Describe all cases in one line."""
    differences = [row["difference"] for row in results if "difference" in row]
    errors = len(results) - len(differences)
    words = [f"{len(differences)} cases"]
    if differences:
        range_of_all = f"{min(differences):+.1%} to {max(differences):+.1%}"
        words.append(f"peaks differ from the fake GPU's by {range_of_all}")
    if errors:
        words.append(f"{errors} raised an error")
    if skipped:
        words.append(f"{skipped} skipped, larger than the free memory")
    return "; ".join(words)


def main() -> int:
    """Measure, print, write; return 1 if a case raised an error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=user_path, default=OUT)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("not measured: there is no CUDA device")
        return 0
    free_bytes, _ = torch.cuda.mem_get_info()
    all_rows = json.loads(FAKE.read_text(encoding="utf-8"))
    rows = [row for row in all_rows if fits(row, free_bytes / GIB)]
    skipped = len(all_rows) - len(rows)
    report: Row = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "free_gib": free_bytes / GIB,
        "skipped": skipped,
        "rows": [],
    }
    # Small cases first: a limit of time may end this.
    for row in sorted(rows, key=lambda row: row["peak_gib"]):
        result = measure(row)
        print(line(result), flush=True)
        report["rows"].append(result)
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(summary(report["rows"], skipped))
    return int(any("error" in result for result in report["rows"]))


if __name__ == "__main__":
    raise SystemExit(main())
