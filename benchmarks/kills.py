"""Runs under fire: each is disturbed at a random moment, continued, and compared bit for bit with an undisturbed one.

`python -m benchmarks.kills 50` kills fifty runs, some inside a write, some as a power cut does. `--minutes 10` injects
every kind of fault, up to three in a row into one run, until the time is up. `--write` keeps the figures in kills.json
or soak.json.
Exit code 1: something was lost. A run did not go on, or its weights, optimisers, pools, samples or scores differ.
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
CLOCKS = ("seconds", "seconds_around", "resumed_at")  # of summary.json: how long it took, and where it went on


def differences(one: Path, other: Path) -> list[str]:
    """Name the files of two finished runs that differ or that only one has: all but clocks and older checkpoints."""
    found = [contents(one), contents(other)]
    return sorted(name for name in found[0].keys() | found[1].keys() if found[0].get(name) != found[1].get(name))


def contents(out: Path) -> dict[str, bytes]:
    """What a run leaves, by name; files whose names begin with a dot are left over from a write."""
    held = max(out.glob("checkpoints/step-*"), default=out)
    names = [path.relative_to(out) for path in out.rglob("*") if path.is_file() and path.name != "timings.jsonl"]
    names = [name for name in names if not any(part.startswith(".") for part in name.parts)]
    kept = [name for name in names if name.parts[0] != "checkpoints" or held in (out / name).parents]
    files = {str(name): (out / name).read_bytes() for name in kept}
    if "summary.json" in files:
        said = json.loads(files["summary.json"])
        files["summary.json"] = json.dumps({name: said[name] for name in said if name not in CLOCKS}).encode()
    return files


def half_written(out: Path) -> bool:
    """Whether the end came inside a write: something has no name yet, the lock aside, or a line no end."""
    ends = [path.read_bytes()[-1:] for path in out.glob("*.jsonl")]
    return any(end not in (b"", b"\n") for end in ends) or any(path.name != ".in-use" for path in out.rglob(".*"))


def undisturbed(method: str, folder: Path) -> Target:
    """Make the run that the others are compared with, and measure it."""
    target = Target(method, folder / method)
    target.start().join()
    operations, seconds = target.log.read_text().splitlines()[-1].split()
    target.operations, target.seconds = int(operations), float(seconds)
    return target


def disturbed(whole: Target, faults: list[str], rng: random.Random) -> dict[str, object]:
    """Inject faults one after the other into a run, let it go on to the end, and say what came of it."""
    target = Target(whole.method, whole.out.with_name("disturbed"), whole.seconds, whole.operations)
    shutil.rmtree(target.out, ignore_errors=True)
    injected, cut = [], False
    for fault in faults:
        injected += [fault] if FAULTS[fault](target, rng) else []
        cut = cut or half_written(target.out)
    process = target.start()
    process.join()
    row = {"method": whole.method, "faults": injected, "in_a_write": cut, "went_on_at": None}
    if process.exitcode:
        return row | {"lost": target.log.read_text().splitlines()[-1:] or [f"exit code {process.exitcode}"]}
    row["went_on_at"] = json.loads((target.out / "summary.json").read_bytes())["resumed_at"]
    return row | {"lost": differences(whole.out, target.out)}


def campaign(
    plans: Iterator[list[str]], methods: tuple[str, ...], seed: int, kills: float, minutes: float
) -> list[dict[str, object]]:
    """Carry out plans of faults on the methods in turn; print and return the outcomes.

    Ends when so many runs were disturbed or when the minutes are over. A run that ends before a fault reaches it does
    not count.
    """
    import_module("coevolve.training.trainer")  # once for all the runs, which are forks of this process
    rng, rows, end = random.Random(seed), [], time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        wholes: dict[str, Target] = {}
        for number, faults in enumerate(plans):
            if time.monotonic() > end or sum(bool(row["faults"]) for row in rows) == kills:
                break
            method = methods[number % len(methods)]
            whole = wholes.get(method) or wholes.setdefault(method, undisturbed(method, Path(folder)))
            rows.append(disturbed(whole, faults, rng))
            what = ", ".join(rows[-1]["faults"]) or "nothing in time"
            end_of = (
                f"LOST {rows[-1]['lost']}" if rows[-1]["lost"] else f"survived, went on at {rows[-1]['went_on_at']}"
            )
            print(f"{number + 1}. {method}: {what}{' (in a write)' * rows[-1]['in_a_write']}: {end_of}", flush=True)
    return rows


def summed(rows: list[dict[str, object]], methods: tuple[str, ...], seed: int) -> dict[str, object]:
    """Count what was injected, survived and lost, and where runs went on."""
    injected = [row for row in rows if row["faults"]]
    return {
        "methods": methods,
        "seed": seed,
        "runs": len(injected),
        "injected": dict(Counter(fault for row in rows for fault in row["faults"])),
        "in_a_write": sum(row["in_a_write"] for row in injected),
        "went_on_at_step": dict(sorted(Counter(str(row["went_on_at"]) for row in injected).items())),
        "survived": sum(not row["lost"] for row in injected),
        "lost": [row for row in rows if row["lost"]],
    }


def main() -> int:
    """Kill runs, or disturb them in every way for some minutes; print what was injected, survived and lost."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kills", description=__doc__)
    parser.add_argument("kills", nargs="?", type=int, default=10, help="how many runs to kill (default: 10)")
    parser.add_argument("--minutes", type=float, help="inject every kind of fault for so long instead")
    parser.add_argument("--methods", default=",".join(METHODS), help="whose runs, in turn")
    parser.add_argument("--seed", type=int, default=0, help="of the moments and the faults")
    parser.add_argument(
        "--write", action="store_true", help="keep the figures in kills.json or soak.json, for the docs"
    )
    asked = parser.parse_args()
    methods, rng = tuple(asked.methods.split(",")), random.Random(asked.seed)
    if asked.minutes is None:
        plans = ([KILLS[number // len(methods) % len(KILLS)]] for number in count())
    else:
        plans = (rng.choices([*FAULTS], k=rng.randint(1, 3)) for _ in count())
    begun = time.perf_counter()
    limits = (asked.kills, float("inf")) if asked.minutes is None else (float("inf"), asked.minutes)
    found = summed(campaign(plans, methods, asked.seed, *limits), methods, asked.seed)
    print(json.dumps(found, indent=1))
    if asked.write and methods == METHODS:
        found["seconds"] = round(time.perf_counter() - begun)
        name = "kills.json" if asked.minutes is None else "soak.json"
        Path(__file__).with_name(name).write_text(json.dumps(found, indent=1) + "\n")
    return 1 if found["lost"] else 0


if __name__ == "__main__":
    sys.exit(main())
