"""Runs under fire: disturbed at a random moment, resumed, and compared with an undisturbed run.

`python -m benchmarks.kills 50` kills fifty runs, some inside a write, some as in a power cut;
`--minutes 10` injects all faults, up to three in a row, until the time is up. `--write` writes
kills.json or soak.json. Exit code 1: weights, optimisers, pools, samples or scores were lost.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from itertools import count
from pathlib import Path

from benchmarks.faults import FAULTS, KILLS, Target

METHODS = ("mae", "sage", "spice", "comas", "conl")
# Fields of summary.json that may differ: durations, and the step at which the run resumed.
CLOCKS = ("seconds", "seconds_around", "resumed_at")
Row = dict[str, object]


def differences(one: Path, other: Path) -> list[str]:
    """Return the names of files that differ between two finished runs or exist in only one."""
    files = contents(one)
    other_files = contents(other)
    names = files.keys() | other_files.keys()
    return sorted(name for name in names if files.get(name) != other_files.get(name))


def contents(out: Path) -> dict[str, bytes]:
    """Return the files of a run by name, without clocks, old checkpoints and hidden leftovers."""
    newest = max(out.glob("checkpoints/step-*"), default=out)
    files = {}
    for path in out.rglob("*"):
        name = path.relative_to(out)
        if not path.is_file() or path.name == "timings.jsonl":
            continue
        if any(part.startswith(".") for part in name.parts):  # left over from a write
            continue
        if name.parts[0] == "checkpoints" and newest not in path.parents:
            continue
        files[str(name)] = path.read_bytes()
    if "summary.json" in files:
        summary = json.loads(files["summary.json"])
        for name in CLOCKS:
            summary.pop(name, None)
        files["summary.json"] = json.dumps(summary).encode()
    return files


def half_written(out: Path) -> bool:
    """Return whether a kill hit a write: a line lacks its end, or a hidden file is left."""
    for path in out.glob("*.jsonl"):
        if path.read_bytes()[-1:] not in (b"", b"\n"):
            return True
    return any(path.name != ".in-use" for path in out.rglob(".*"))  # the lock may stay


def undisturbed(method: str, folder: Path) -> Target:
    """Make the reference run of a method, and measure it."""
    target = Target(method, folder / method)
    target.start().join()
    operations, seconds = target.log.read_text().splitlines()[-1].split()
    target.operations = int(operations)
    target.seconds = float(seconds)
    return target


def disturbed(reference: Target, faults: list[str], rng: random.Random) -> Row:
    """Inject faults one after the other into a run, let it finish, and compare the outcome."""
    target = Target(
        reference.method,
        reference.out.with_name("disturbed"),
        reference.seconds,
        reference.operations,
    )
    shutil.rmtree(target.out, ignore_errors=True)
    injected = []
    in_a_write = False
    for fault in faults:
        if FAULTS[fault](target, rng):
            injected.append(fault)
        in_a_write = in_a_write or half_written(target.out)
    process = target.start()
    process.join()
    row = {
        "method": reference.method,
        "faults": injected,
        "in_a_write": in_a_write,
        "went_on_at": None,
    }
    if process.exitcode:
        last_line = target.log.read_text().splitlines()[-1:]
        row["lost"] = last_line or [f"exit code {process.exitcode}"]
        return row
    summary = json.loads((target.out / "summary.json").read_bytes())
    row["went_on_at"] = summary["resumed_at"]
    row["lost"] = differences(reference.out, target.out)
    return row


def print_row(number: int, row: Row) -> None:
    """Print the outcome of one disturbed run."""
    faults = ", ".join(row["faults"]) or "nothing in time"
    if row["in_a_write"]:
        faults += " (in a write)"
    outcome = f"survived, went on at {row['went_on_at']}"
    if row["lost"]:
        outcome = f"LOST {row['lost']}"
    print(f"{number}. {row['method']}: {faults}: {outcome}", flush=True)


def campaign(
    plans: Iterator[list[str]],
    methods: tuple[str, ...],
    seed: int,
    kills: float,
    minutes: float,
) -> list[Row]:
    """Carry out plans of faults on the methods in turn; print and return the outcomes.

    Ends when `kills` runs were disturbed or the minutes are over. A run that finishes before a
    fault reaches it does not count.
    """
    # Once for all the runs, which are forks of this process.
    import_module("coevolve.training.trainer")
    rng = random.Random(seed)
    rows: list[Row] = []
    end = time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        references: dict[str, Target] = {}
        for number, faults in enumerate(plans):
            disturbed_runs = sum(bool(row["faults"]) for row in rows)
            if time.monotonic() > end or disturbed_runs == kills:
                break
            method = methods[number % len(methods)]
            if method not in references:
                references[method] = undisturbed(method, Path(folder))
            rows.append(disturbed(references[method], faults, rng))
            print_row(number + 1, rows[-1])
    return rows


def summed(rows: list[Row], methods: tuple[str, ...], seed: int) -> Row:
    """Count the faults, the runs that survived or lost something, and the steps of resumption."""
    disturbed_rows = [row for row in rows if row["faults"]]
    faults: Counter[str] = Counter()
    for row in rows:
        faults.update(row["faults"])
    resumptions = Counter(str(row["went_on_at"]) for row in disturbed_rows)
    return {
        "methods": methods,
        "seed": seed,
        "runs": len(disturbed_rows),
        "injected": dict(faults),
        "in_a_write": sum(row["in_a_write"] for row in disturbed_rows),
        "went_on_at_step": dict(sorted(resumptions.items())),
        "survived": sum(not row["lost"] for row in disturbed_rows),
        "lost": [row for row in rows if row["lost"]],
    }


def parse_arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kills", description=__doc__
    )
    parser.add_argument(
        "kills",
        nargs="?",
        type=int,
        default=10,
        help="how many runs to kill (default: 10)",
    )
    parser.add_argument(
        "--minutes", type=float, help="inject every kind of fault for this long instead"
    )
    parser.add_argument(
        "--methods", default=",".join(METHODS), help="methods of the runs, in turn"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the moments and the faults"
    )
    parser.add_argument(
        "--write", action="store_true", help="write kills.json or soak.json"
    )
    return parser.parse_args()


def kill_plans(methods: tuple[str, ...]) -> Iterator[list[str]]:
    """Yield one kind of kill for each run; every kind visits all methods before the next."""
    for number in count():
        yield [KILLS[number // len(methods) % len(KILLS)]]


def soak_plans(rng: random.Random) -> Iterator[list[str]]:
    """Yield one to three random faults for each run."""
    while True:
        yield rng.choices([*FAULTS], k=rng.randint(1, 3))


def main() -> int:
    """Disturb runs; print the numbers of faults, of survivors and of losses."""
    options = parse_arguments()
    methods = tuple(options.methods.split(","))
    start = time.perf_counter()
    if options.minutes is None:
        file = "kills.json"
        plans = kill_plans(methods)
        rows = campaign(plans, methods, options.seed, options.kills, float("inf"))
    else:
        file = "soak.json"
        plans = soak_plans(random.Random(options.seed))
        rows = campaign(plans, methods, options.seed, float("inf"), options.minutes)
    result = summed(rows, methods, options.seed)
    print(json.dumps(result, indent=1))
    if options.write and methods == METHODS:
        result["seconds"] = round(time.perf_counter() - start)
        Path(__file__).with_name(file).write_text(json.dumps(result, indent=1) + "\n")
    return 1 if result["lost"] else 0


if __name__ == "__main__":
    sys.exit(main())
