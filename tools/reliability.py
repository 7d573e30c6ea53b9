"""The table of docs/reliability.md, from benchmarks/*.json and the corpora; tools/readme_numbers.py puts it there.

A figure that nobody has measured says so.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

UNKNOWN = "not measured"
EXACT = ("math", "choice", "exact", "float", "tests", "oracle")
Row = tuple[str, str, str]  # what, how much, and the command that measures it


def measured(root: Path, name: str, says: Callable[[Any], str]) -> str:
    """What a benchmark's file says, where there is one."""
    path = root / "benchmarks" / f"{name}.json"
    return says(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else UNKNOWN


def injected(found: dict) -> str:
    """How many faults of each kind."""
    return ", ".join(f"{name} {count}" for name, count in found["injected"].items())


def faults(root: Path) -> list[Row]:
    """What training survives."""
    kills = measured(root, "kills", lambda found: f"`python -m benchmarks.kills {found['runs']}`")
    soak = measured(root, "soak", lambda found: f"`make soak MINUTES={round(found['seconds'] / 60)}`")

    def survived(found: dict) -> str:
        return f"{found['survived']} of {found['runs']}, of {len(found['methods'])} methods, in {found['seconds']} s"

    return [
        (
            "runs killed at a random moment that ended bit for bit as if undisturbed",
            measured(root, "kills", survived),
            kills,
        ),
        (
            "of these, runs that were killed inside a write",
            measured(root, "kills", lambda f: str(f["in_a_write"])),
            kills,
        ),
        (
            "of these, runs that lost what was not yet on the disk, as in a power cut",
            measured(root, "kills", lambda f: str(f["injected"]["power cut"])),
            kills,
        ),
        ("runs that lost or changed a sample, weight, pool or score", measured(root, "kills", lost), kills),
        ("runs that survived one to three faults in a row", measured(root, "soak", survived), soak),
        ("the faults", measured(root, "soak", injected), soak),
        ("runs that lost or changed anything", measured(root, "soak", lost), soak),
    ]


def lost(found: dict) -> str:
    """How many runs lost something."""
    return str(len(found["lost"]))


def hostile(root: Path) -> list[Row]:
    """What hostile text and hostile programs do."""
    counts = []
    for name in ("hostile_strings", "reader_cases"):
        counts.append(len((root / "tests" / "data" / f"{name}.jsonl").read_bytes().splitlines()))
    test, bench = '`make test ARGS="-k test_hostile"`', "`python -m benchmarks.sandbox`"
    attacks = "`python -m benchmarks.attacks`"

    def programs(found: dict) -> str:
        corpus = found["corpus"]
        held = corpus["programs"] - len(corpus["not_allowed"])
        return f"{held} of {corpus['programs']} at level {corpus['level']}, the slowest in {corpus['slowest_s']} s"

    def formulas(found: dict) -> str:
        asked = found["formulas"]
        right = asked["hostile"] - len(asked["not_allowed"])
        return f"{right} of {asked['hostile']}, the slowest in {asked['slowest_hostile_s']} s"

    def paid(found: dict) -> str:
        cells = [
            (name, row["attack"], row[name]["earned"]) for row in found["rows"][1:] for name in row if name in EXACT
        ]
        some = [f"{name}: {attack} {earned:g}" for name, attack, earned in cells if earned]
        return f"0 in {len(cells) - len(some)} of {len(cells)} pairs; {', '.join(some)}"

    def judged(found: dict) -> str:
        control, *rows = ((row["attack"], row["MAE's Judge"]["earned"]) for row in found["rows"])
        attack, most = max(rows, key=lambda pair: pair[1])
        return f"at most {most:.2f} ({attack}); {control[0]} {control[1]:.2f}"

    return [
        ("hostile texts with the outcome that is expected", f"all of {counts[0]} and of {counts[1]} of ours", test),
        ("hostile and honest programs with a verdict that is allowed", measured(root, "sandbox", programs), bench),
        ("hostile formulas with the right verdict", measured(root, "sandbox", formulas), bench),
        ("what an attack earns of an exact verifier", measured(root, "attacks", paid), attacks),
        ("what an attack earns of the embedded Judge", measured(root, "attacks", judged), attacks),
    ]


def firm(root: Path) -> list[Row]:
    """What another backbone does to the ledger."""

    def changed(found: dict) -> str:
        rows = found["rows"]
        return f"{sum(row['verdict'] != row['verdict_second'] for row in rows)} of {len(rows)}"

    bench = "`python -m benchmarks.verdicts`"
    return [("verdicts of the ledger that a second backbone changes", measured(root, "verdicts", changed), bench)]


def speed(root: Path) -> list[Row]:
    """Minutes and ratios."""
    page = (root / "README.md").read_text(encoding="utf-8")
    rows = []
    for command in ("reproduce", "test"):
        said = re.search(rf"`make {command}` took\s+(\w+)\s+minutes", page)
        rows.append((f"minutes of `make {command}`, two cores", said[1] if said else UNKNOWN, f"`make {command}`"))

    def seconds(found: dict) -> str:
        return ", ".join(f"{run['method']} {run['seconds']:.0f}" for run in found["runs"])

    def ratios(found: dict) -> str:
        return ", ".join(f"{row['ratio']:.2f} with {row['rows']} rows" for row in found["sampling"])

    def whole(found: dict) -> str:
        return ", ".join(f"{row['ratio']:.1f} with {row['rows']}" for row in found["trl"] if not row["full"])

    def grown(*names: str) -> Callable[[dict], str]:
        return lambda found: ", ".join(f"{found[name]['value']:.2g}" for name in names)

    def rate(found: dict) -> str:
        return ", ".join(f"{row['programs_per_s']} at level {row['level']}" for row in found["levels"])

    runs, step, box, sage = (f"`python -m benchmarks.{name}`" for name in ("runs", "step", "sandbox", "sage"))
    growth = "`python -m benchmarks.growth`"
    return [
        *rows,
        (
            "seconds of a run of preset standard, one core, with the backbone before",
            measured(root, "runs", seconds),
            runs,
        ),
        ("tokens a second over transformers' generate", measured(root, "step", ratios), step),
        ("seconds of TRL's whole step over ours, by replies in it", measured(root, "step", whole), step),
        (
            "a draw from a pool and from a corpus of a million over one of a thousand",
            measured(root, "growth", grown("pool", "corpus")),
            growth,
        ),
        ("µs a turn of the driver, at most, 1 to 10,000 episodes", measured(root, "growth", grown("driver")), growth),
        ("% of the throughput where 1 % of programs hang", measured(root, "growth", grown("hanging")), growth),
        ("seconds of a step of SAGE over one of MAE", measured(root, "sage", lambda f: f"{f['ratio']:.2f}"), sage),
        ("programs judged a second", measured(root, "sandbox", rate), box),
    ]


def table(root: Path) -> str:
    """All rows as Markdown."""
    lines = ["| what | measured | by |", "|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in (*faults(root), *hostile(root), *firm(root), *speed(root))]
    return "\n".join(lines)
