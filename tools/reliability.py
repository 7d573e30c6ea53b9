"""The table of docs/reliability.md, from benchmarks/*.json and the corpora of the tests.

tools/readme_numbers.py writes it into the page. A figure without a measurement is marked as such.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NOT_MEASURED = "not measured"
EXACT = ("math", "choice", "exact", "float", "tests", "oracle")
Result = dict[str, Any]  # what a benchmark wrote to its JSON file


@dataclass(frozen=True)
class Row:
    """A line of the table: what was measured, its value, and the command that measures it."""

    what: str
    value: str
    command: str

    def markdown(self) -> str:
        """Return the line as Markdown."""
        return f"| {self.what} | {self.value} | {self.command} |"


def measured(root: Path, name: str, describe: Callable[[Result], str]) -> str:
    """Return the description of a benchmark's result, if there is one."""
    path = root / "benchmarks" / f"{name}.json"
    if not path.is_file():
        return NOT_MEASURED
    return describe(json.loads(path.read_text(encoding="utf-8")))


def benchmark(name: str) -> str:
    """Return the command of a benchmark as Markdown."""
    return f"`python -m benchmarks.{name}`"


def injected(result: Result) -> str:
    """Return the number of faults of each kind."""
    return ", ".join(f"{name} {count}" for name, count in result["injected"].items())


def survived(result: Result) -> str:
    """Return how many runs survived their faults."""
    runs = f"{result['survived']} of {result['runs']}"
    return f"{runs}, of {len(result['methods'])} methods, in {result['seconds']} s"


def lost(result: Result) -> str:
    """Return how many runs lost something."""
    return str(len(result["lost"]))


def faults(root: Path) -> list[Row]:
    """Return what training survives."""
    kills = measured(
        root, "kills", lambda r: f"`python -m benchmarks.kills {r['runs']}`"
    )
    soak = measured(
        root, "soak", lambda r: f"`make soak MINUTES={round(r['seconds'] / 60)}`"
    )
    return [
        Row(
            "runs killed at a random moment that ended bit for bit as if undisturbed",
            measured(root, "kills", survived),
            kills,
        ),
        Row(
            "of these, runs that were killed inside a write",
            measured(root, "kills", lambda r: str(r["in_a_write"])),
            kills,
        ),
        Row(
            "of these, runs that lost what was not yet on the disk, as in a power cut",
            measured(root, "kills", lambda r: str(r["injected"]["power cut"])),
            kills,
        ),
        Row(
            "runs that lost or changed a sample, weight, pool or score",
            measured(root, "kills", lost),
            kills,
        ),
        Row(
            "runs that survived one to three faults in a row",
            measured(root, "soak", survived),
            soak,
        ),
        Row("the faults", measured(root, "soak", injected), soak),
        Row("runs that lost or changed anything", measured(root, "soak", lost), soak),
    ]


def programs(result: Result) -> str:
    """Return how many hostile and honest programs got an allowed verdict."""
    corpus = result["corpus"]
    total = corpus["programs"]
    allowed = total - len(corpus["not_allowed"])
    slowest = corpus["slowest_s"]
    return (
        f"{allowed} of {total} at level {corpus['level']}, the slowest in {slowest} s"
    )


def formulas(result: Result) -> str:
    """Return how many hostile formulas got the correct verdict."""
    part = result["formulas"]
    total = part["hostile"]
    correct = total - len(part["not_allowed"])
    return f"{correct} of {total}, the slowest in {part['slowest_hostile_s']} s"


def rewarded_attacks(result: Result) -> str:
    """Return the pairs of exact verifier and attack in which the attack earns a reward."""
    pairs = 0
    rewarded = []
    _, *attacks = result["rows"]  # without the control
    for row in attacks:
        for name in row:
            if name in EXACT:
                pairs += 1
                reward = row[name]["earned"]
                if reward:
                    rewarded.append(f"{name}: {row['attack']} {reward:g}")
    return "; ".join([f"0 in {pairs - len(rewarded)} of {pairs} pairs", *rewarded])


def judge_rewards(result: Result) -> str:
    """Return the highest reward of an attack on the Judge, and that of the gold answer."""
    rewards = {row["attack"]: row["MAE's Judge"]["earned"] for row in result["rows"]}
    control, *attacks = rewards
    best = max(attacks, key=lambda attack: rewards[attack])
    return f"at most {rewards[best]:.2f} ({best}); {control} {rewards[control]:.2f}"


def count_lines(path: Path) -> int:
    """Return the number of lines of a file."""
    return len(path.read_bytes().splitlines())


def hostile(root: Path) -> list[Row]:
    """Return what hostile text and hostile programs do."""
    data = root / "tests" / "data"
    strings = count_lines(data / "hostile_strings.jsonl")
    cases = count_lines(data / "reader_cases.jsonl")
    return [
        Row(
            "hostile texts with the expected outcome",
            f"all {strings} by others and all {cases} of this repository",
            '`make test ARGS="-k test_hostile"`',
        ),
        Row(
            "hostile and honest programs with an allowed verdict",
            measured(root, "sandbox", programs),
            benchmark("sandbox"),
        ),
        Row(
            "hostile formulas with the correct verdict",
            measured(root, "sandbox", formulas),
            benchmark("sandbox"),
        ),
        Row(
            "mean reward of an attack on an exact verifier",
            measured(root, "attacks", rewarded_attacks),
            benchmark("attacks"),
        ),
        Row(
            "mean reward of an attack on the embedded Judge",
            measured(root, "attacks", judge_rewards),
            benchmark("attacks"),
        ),
    ]


def kept_verdicts(result: Result) -> str:
    """Return how many claims are judged alike whichever backbone is left out."""
    kept = [row["kept"] for row in result["rows"]]
    return f"{sum(kept)} of {len(kept)}"


def robustness(root: Path) -> list[Row]:
    """Return how many verdicts hang on no single backbone."""
    what = "claims of the ledger that are judged alike without any one backbone"
    return [Row(what, measured(root, "verdicts", kept_verdicts), benchmark("verdicts"))]


def minutes(root: Path, command: str) -> Row:
    """Return the minutes of a make target, as docs/first-steps.md states them."""
    page = (root / "docs" / "first-steps.md").read_text(encoding="utf-8")
    match = re.search(rf"`make {command}` took\s+(\w+)\s+minutes", page)
    value = match[1] if match else NOT_MEASURED
    return Row(f"minutes of `make {command}`, two cores", value, f"`make {command}`")


def seconds_of_runs(result: Result) -> str:
    """Return the seconds of a whole run of each method."""
    return ", ".join(f"{run['method']} {run['seconds']:.0f}" for run in result["runs"])


def sampling_ratios(result: Result) -> str:
    """Return how much faster our sampler is than transformers."""
    return ", ".join(
        f"{row['ratio']:.2f} with {row['rows']} rows" for row in result["sampling"]
    )


def step_ratios(result: Result) -> str:
    """Return how much faster our step is than TRL's."""
    rows = [row for row in result["trl"] if not row["full"]]
    return ", ".join(f"{row['ratio']:.1f} with {row['rows']}" for row in rows)


def panel_values(*names: str) -> Callable[[Result], str]:
    """Return a description of panels of the benchmark growth: their values."""
    return lambda result: ", ".join(f"{result[name]['value']:.2g}" for name in names)


def program_rates(result: Result) -> str:
    """Return the programs judged per second, by level of the sandbox."""
    rates = []
    for row in result["levels"]:
        rates.append(f"{row['programs_per_s']} at level {row['level']}")
    return ", ".join(rates)


def speed(root: Path) -> list[Row]:
    """Return minutes and ratios."""
    return [
        minutes(root, "reproduce"),
        minutes(root, "test"),
        Row(
            "seconds per run of preset standard, one core",
            measured(root, "runs", seconds_of_runs),
            benchmark("runs"),
        ),
        Row(
            "tokens per second, as a multiple of transformers' generate",
            measured(root, "step", sampling_ratios),
            benchmark("step"),
        ),
        Row(
            "speed of a whole step, as a multiple of TRL's, by completions in it",
            measured(root, "step", step_ratios),
            benchmark("step"),
        ),
        Row(
            "time of a draw from a million items over one from a thousand: pool, corpus",
            measured(root, "growth", panel_values("pool", "corpus")),
            benchmark("growth"),
        ),
        Row(
            "most µs per turn of the scheduler, 1 to 10,000 episodes",
            measured(root, "growth", panel_values("driver")),
            benchmark("growth"),
        ),
        Row(
            "% of the throughput left when 1 % of programs hang",
            measured(root, "growth", panel_values("hanging")),
            benchmark("growth"),
        ),
        Row(
            "time of a step of SAGE over one of MAE",
            measured(root, "sage", lambda result: f"{result['ratio']:.2f}"),
            benchmark("sage"),
        ),
        Row(
            "programs judged per second",
            measured(root, "sandbox", program_rates),
            benchmark("sandbox"),
        ),
    ]


def table(root: Path) -> str:
    """Return all rows as Markdown."""
    rows = [*faults(root), *hostile(root), *robustness(root), *speed(root)]
    lines = ["| what | measured | by |", "|---|---|---|"]
    lines += [row.markdown() for row in rows]
    return "\n".join(lines)
