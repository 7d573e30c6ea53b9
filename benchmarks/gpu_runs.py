"""Short training runs of all five methods on the device that torch finds, side by side.

`python -m benchmarks.gpu_runs` trains the embedded model by preset quick, with three seeds for a
method, and writes accuracy before and after training to benchmarks/gpu_runs.json. It shows that
whole runs work and learn on a GPU. It measures no speed: the runs share the device.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from coevolve.runs import record
from coevolve.runs.compare import gain
from coevolve.validation import user_path

OUT = Path(__file__).with_suffix(".json")
METHODS = ("mae", "sage", "spice", "comas", "conl")
SEEDS = 3
JOBS = 15
KEPT_CHARACTERS = 500  # of the errors of a run that failed


@dataclass(frozen=True)
class Training:
    """One run to train."""

    method: str
    seed: int
    fields: Sequence[str] = ()
    """field=value, as on the command line."""


def train(run: Training, preset: str) -> dict[str, Any]:
    """Train in a process of its own; return the run with its scores, or with its error."""
    row = asdict(run)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "coevolve", "train", run.method]
        command += ["--preset", preset, "--out", folder, f"seed={run.seed}"]
        command += run.fields
        start = time.perf_counter()
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        row["seconds"] = round(time.perf_counter() - start, 1)
        if process.returncode:
            row["error"] = process.stderr[-KEPT_CHARACTERS:]
            return row
        row |= scores_of(Path(folder))
    return row


def scores_of(folder: Path) -> dict[str, Any]:
    """Return correct answers of a run before and after training, and its gain in points."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    points, low, high = gain(record.read(folder, "scores"))
    scores: dict[str, Any] = {"steps": summary["steps"], "held_out": {}}
    for stage, counts in summary["held_out"].items():
        scores["held_out"][stage] = f"{counts['k']}/{counts['n']}"
    scores["gain"] = [round(float(number), 1) for number in (points, low, high)]
    return scores


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Describe all runs in one line: the gain of every seed, by method."""
    words = []
    for method in dict.fromkeys(row["method"] for row in rows):
        gains = []
        for row in rows:
            if row["method"] == method:
                gains.append("failed" if "error" in row else f"{row['gain'][0]:+.1f}")
        words.append(f"{method} {' '.join(gains)}")
    return f"gain in points, by seed: {', '.join(words)}"


def device_name() -> str:
    """Return the GPU's name, or "CPU"."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"


def main() -> int:
    """Train all runs, write, print; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="runs of a method")
    parser.add_argument("--jobs", type=int, default=JOBS, help="runs at a time")
    parser.add_argument("--out", type=user_path, default=OUT)
    options, fields = parser.parse_known_args()  # fields: field=value of every run
    seeds = range(options.seeds)
    runs = [Training(method, seed, fields) for seed in seeds for method in METHODS]
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(lambda run: train(run, options.preset), runs))
    report = {
        "device": device_name(),
        "torch": torch.__version__,
        "preset": options.preset,
        "runs": rows,
    }
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(summary(rows))
    return int(any("error" in row for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
