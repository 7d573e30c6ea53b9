"""Whole runs of preset standard, one after the other on one core: wall seconds with imports and every evaluation.

Every method is run three times, in turns, and the medians count; the fastest and the slowest round stand beside them,
with the share of processor time that a virtual machine's host kept for others (/proc/stat's "steal") in each round.
Results are printed and written to JSON; the machine should have nothing else to do.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

METHODS = ("mae", "sage", "spice", "comas", "conl")
ROUNDS = 3
PHASES = ["play", "learn", "evaluate"]
AROUND = ["held_out", "setups", "examined"]  # measured before and after training


def ticks() -> tuple[int, int]:
    """Processor time since the machine started, of all cores: what others on its host got, and everything."""
    spent = [int(field) for field in Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:]]
    return spent[7], sum(spent[:8])


def timed(method: str) -> dict[str, object]:
    """Train once with seed 0 and say how long it took, by phase, and what it was good for."""
    core = min(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "coevolve", "train", method, "--preset", "standard", "--out", folder]
        start = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )
        _, status, used = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"the run of {method} failed: {' '.join(command)}")
        seconds = time.perf_counter() - start
        spent = pd.read_json(Path(folder) / "timings.jsonl", lines=True).reindex(columns=PHASES).sum()
        summary = json.loads((Path(folder) / "summary.json").read_text(encoding="utf-8"))
    held_out = {stage: f"{tally['k']}/{tally['n']}" for stage, tally in summary["held_out"].items()}
    return {
        "method": method,
        "steps": summary["steps"],
        "seconds": round(seconds, 1),
        **{phase: round(float(spent[phase]), 1) for phase in PHASES},
        **{phase: round(summary["seconds_around"].get(phase, 0.0), 1) for phase in AROUND},
        "peak_mib": round(used.ru_maxrss / 1024),  # Linux counts KiB
        **held_out,
    }


def measured(methods: Sequence[str]) -> tuple[list[dict[str, object]], list[float]]:
    """Return each method's medians over all rounds, with every round's seconds, and each round's percent stolen."""
    rows, stolen = [], []
    for _ in range(ROUNDS):
        before = ticks()
        rows += [timed(method) for method in methods]
        gone, total = (after - first for first, after in zip(before, ticks(), strict=True))
        stolen.append(round(100 * gone / total, 1))
    found = []
    for method in methods:
        frame = pd.DataFrame(row for row in rows if row["method"] == method)
        numbers = frame.select_dtypes("number").median().round(1)
        same = {name: frame[name].unique().tolist() for name in ("before", "after")}
        if any(len(values) > 1 for values in same.values()):
            raise SystemExit(f"rounds of {method} with the same seed learnt different things: {same}")
        rounds = {"rounds": frame["seconds"].to_list(), "before": same["before"][0], "after": same["after"][0]}
        found.append({"method": method, **numbers.to_dict(), **rounds})
    return found, stolen


def main() -> None:
    """Time every method, or those named; print a table; of all of them, write JSON beside this file."""
    load = os.getloadavg()[0]  # before the first run
    rows, stolen = measured(sys.argv[1:] or METHODS)
    result = {"load_before": round(load, 1), "stolen_percent": stolen, "runs": rows}
    if not sys.argv[1:]:
        Path(__file__).with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    print(pd.DataFrame(rows).to_string(index=False), f"stolen in each round: {stolen} %", sep="\n")


if __name__ == "__main__":
    main()
