"""Whole runs of the quick preset, one after the other on one core: wall seconds with imports and every evaluation.

Results are printed and written to JSON; the machine should have nothing else to do.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

METHODS = ("mae", "sage", "spice", "comas", "conl")
PHASES = ["play", "learn", "evaluate"]
AROUND = ["held_out", "setups", "examined"]  # measured before and after training


def timed(method: str) -> dict[str, object]:
    """Train once with seed 0 and say how long it took, by phase, and what it was good for."""
    core = min(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "coevolve", "train", method, "--preset", "quick", "--out", folder]
        start = time.perf_counter()
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=os.environ | {"OMP_NUM_THREADS": "1"}, preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )  # fmt: skip
        seconds = time.perf_counter() - start
        spent = pd.read_json(Path(folder) / "timings.jsonl", lines=True).reindex(columns=PHASES).sum()
        summary = json.loads((Path(folder) / "summary.json").read_text(encoding="utf-8"))
    held_out = {stage: f"{its['k']}/{its['n']}" for stage, its in summary["held_out"].items()}
    return {"method": method, "steps": summary["steps"], "seconds": round(seconds, 1),
            **{phase: round(float(spent[phase]), 1) for phase in PHASES},
            **{phase: round(summary["seconds_around"].get(phase, 0.0), 1) for phase in AROUND},
            "peak_mib": summary["peak_rss_mb"], **held_out}  # fmt: skip


def main() -> None:
    """Time every method, or those named; print a table; of all of them, write JSON beside this file."""
    load = os.getloadavg()[0]  # before the first run
    rows = [timed(method) for method in sys.argv[1:] or METHODS]
    result = {"load_before": round(load, 1), "runs": rows}
    if not sys.argv[1:]:
        Path(__file__).with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    print(pd.DataFrame(rows).to_string(index=False))


if __name__ == "__main__":
    main()
