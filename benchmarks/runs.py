"""Wall seconds of whole runs of preset standard on one core, with imports and every evaluation.

Every method runs three times, in turns. Prints medians and each round's seconds with the percent
of processor time that the host of a virtual machine kept ("steal" in /proc/stat), and writes them
to runs.json. The machine should be idle otherwise.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

METHODS = ("mae", "sage", "spice", "comas", "conl")
ROUNDS = 3
PHASES = ["play", "learn", "evaluate"]
AROUND = ["held_out", "strategies", "after_run"]  # measured before and after training
Row = dict[str, object]


@dataclass(frozen=True)
class Ticks:
    """Processor time of all cores since the machine started: stolen by the host, and total."""

    stolen: int
    total: int


def ticks() -> Ticks:
    """Read the processor time of all cores so far."""
    line = Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0]
    fields = [int(field) for field in line.split()[1:]]
    return Ticks(stolen=fields[7], total=sum(fields[:8]))


def run_on_one_core(command: list[str]) -> resource.struct_rusage:
    """Run a command on one core with one thread and return its use of resources."""
    core = min(os.sched_getaffinity(0))
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"the run failed: {' '.join(command)}")
    return usage


def timed(method: str) -> Row:
    """Train once with seed 0; return its seconds, by phase, and its held-out scores."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "coevolve", "train", method]
        command += ["--preset", "standard", "--out", folder]
        start = time.perf_counter()
        usage = run_on_one_core(command)
        seconds = time.perf_counter() - start
        timings = pd.read_json(Path(folder) / "timings.jsonl", lines=True)
        summary = json.loads(
            (Path(folder) / "summary.json").read_text(encoding="utf-8")
        )
    phase_seconds = timings.reindex(columns=PHASES).sum()
    row = {
        "method": method,
        "steps": summary["steps"],
        "seconds": round(seconds, 1),
    }
    for phase in PHASES:
        row[phase] = round(float(phase_seconds[phase]), 1)
    for phase in AROUND:
        row[phase] = round(summary["seconds_around"].get(phase, 0.0), 1)
    row["peak_mib"] = round(usage.ru_maxrss / 1024)  # Linux counts KiB
    for stage, counts in summary["held_out"].items():
        row[stage] = f"{counts['k']}/{counts['n']}"
    return row


def medians(method: str, rows: list[Row]) -> Row:
    """Return the medians of a method's rounds; raise SystemExit if their scores differ."""
    frame = pd.DataFrame(rows)
    scores = {name: frame[name].unique().tolist() for name in ("before", "after")}
    if any(len(values) > 1 for values in scores.values()):
        raise SystemExit(
            f"rounds of {method} with the same seed learnt different things: {scores}"
        )
    numbers = frame.select_dtypes("number").median().round(1)
    return {
        "method": method,
        **numbers.to_dict(),
        "rounds": frame["seconds"].to_list(),
        "before": scores["before"][0],
        "after": scores["after"][0],
    }


def measured(methods: Sequence[str]) -> tuple[list[Row], list[float]]:
    """Return a row of medians for each method, and the percent of time stolen in each round."""
    rows_by_method: dict[str, list[Row]] = {method: [] for method in methods}
    stolen_percents = []
    for _ in range(ROUNDS):
        before = ticks()
        for method in methods:
            rows_by_method[method].append(timed(method))
        after = ticks()
        stolen = after.stolen - before.stolen
        total = after.total - before.total
        stolen_percents.append(round(100 * stolen / total, 1))
    rows = [medians(method, rows) for method, rows in rows_by_method.items()]
    return rows, stolen_percents


def main() -> None:
    """Time every method, or the named ones; print a table; write JSON if all were timed."""
    load = os.getloadavg()[0]  # before the first run
    rows, stolen = measured(sys.argv[1:] or METHODS)
    result = {
        "load_before": round(load, 1),
        "stolen_percent": stolen,
        "runs": rows,
    }
    if not sys.argv[1:]:
        Path(__file__).with_suffix(".json").write_text(
            json.dumps(result, indent=1) + "\n"
        )
    print(pd.DataFrame(rows).to_string(index=False))
    print(f"stolen in each round: {stolen} %")


if __name__ == "__main__":
    main()
