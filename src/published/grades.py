"""The answers of a finished run that no verifier could score, graded by a judge: scores.csv to grades.csv.

What a run has written stays as it is; golds are read anew from the data sets, and never from the run.
"""

import csv
import json
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from coevolve import record
from coevolve.checks import among
from coevolve.driver import Batched, Engine
from coevolve.types import Reply, Turn
from published import sources
from published.data import items, registry
from published.judge import PROMPTS, TEMPERATURE, Judged, judge
from published.rows import Item

FIELDS = ("stage", "setup", "split", "family", "item", "question", "answer", "gold", "kind", "correct")
BATCH = 64  # turns that a judge in this process answers at once
Row = dict[str, str]


def unscored(run: str | Path) -> list[Row]:
    """The rows of a finished run's scores.csv without a verdict; programs are left out, which only tests can judge.

    Raises ValueError, in one line, when the folder is no finished run or every row has its verdict.
    """
    run = Path(run)
    missing = [name for name in ("config.json", "scores.csv", "summary.json") if not (run / name).is_file()]
    if missing:
        raise ValueError(f"{run} is no finished run: it has no {missing[0]}")
    with (run / "scores.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["correct"] == ""]
    rows = [row for row in rows if row["family"] in registry() and registry()[row["family"]].scorer != "code"]
    if not rows:
        raise ValueError(f"{run} has nothing for a judge: every answer in its scores.csv is scored")
    return rows


def found(rows: Sequence[Row], kind: str | None = None) -> list[Item]:
    """The published question of every row, with its gold; ValueError when the data set of now does not have it."""
    known: dict[str, dict[str, Item]] = {}
    for key in dict.fromkeys(row["family"] for row in rows):
        if not (kind or registry()[key].judge):
            raise ValueError(f"{key} names no kind of judge: choose one of {', '.join(PROMPTS)} with --kind")
        sources.check(registry()[key])
        known[key] = {_written(item.question): item for item in reversed(items(key))}  # of equal ones the first
        lost = sum(row["family"] == key and row["question"] not in known[key] for row in rows)
        if lost:
            raise ValueError(f"{key}: {lost} questions of the run are not in the data set as it is now")
    return [known[row["family"]][row["question"]] for row in rows]


def _written(text: str) -> str:
    """A text as a file of a run holds it."""
    return text.encode("utf-8", record.LONE).decode("utf-8")


def engine(name: str, max_tokens: int) -> Engine:
    """Load a judge and return what answers for it; ValueError in one line when it cannot be had."""
    from coevolve import policies

    policy = policies.load(name, "judge")
    if hasattr(policy, "serve"):
        return policy.serve(TEMPERATURE, max_tokens)
    return Batched(partial(_in_batches, partial(policy.generate, max_tokens=max_tokens)))


def _in_batches(generate: Callable[[Sequence[Turn]], list[Reply]], turns: Sequence[Turn]) -> list[Reply]:
    return [reply for start in range(0, len(turns), BATCH) for reply in generate(turns[start : start + BATCH])]


def grade(run: str | Path, name: str, kind: str | None = None, max_tokens: int = 2048) -> list[str]:
    """Ask a judge about every unscored answer of a run, write the run's grades.csv, and return a line a data set.

    Stages and set-ups are told apart. `kind` (math, choice, truthfulness, general) is the data set's own unless it is
    given. An answer that the judge gave no verdict on is a failure: blank in `correct`, and counted apart.
    Raises ValueError before the judge is loaded when there is nothing to grade or a gold cannot be had.
    """
    if max_tokens < 1:
        raise ValueError(f"max_tokens must be at least 1, got {max_tokens}")
    among("kind", kind, (None, *PROMPTS))
    rows = unscored(run)
    asked = found(rows, kind)
    seed = json.loads((Path(run) / "config.json").read_text(encoding="utf-8"))["seed"]
    answers = [row["answer"] for row in rows]
    from coevolve.engines.server import ServerError

    try:
        asker = engine(name, max_tokens)
        correct = judge(asker, asked, answers, kind=kind, key=(seed,)).correct
    except ServerError as error:
        raise ValueError(f"{error}; nothing was written") from None
    graded = [
        {**row, "gold": item.answer, "kind": kind or item.judge, "correct": None if right is None else int(right)}
        for row, item, right in zip(rows, asked, correct, strict=True)
    ]
    write(Path(run) / "grades.csv", graded)
    groups: dict[tuple[str, str, str], list[bool | None]] = {}
    for row, right in zip(rows, correct, strict=True):
        groups.setdefault((row["family"], row["stage"], row["setup"]), []).append(right)
    used = ", ".join(f"{count:,} {what.partition('/')[0]}" for what, count in asker.costs().items())
    return [*(line(" ".join(group), Judged(its)) for group, its in groups.items()), *filter(None, [used])]


def line(name: str, judged: Judged) -> str:
    """What a judge found, as text: right answers of those with a verdict, with the 95 % interval, and failures."""
    its = judged.summary()
    share = f" ({its['accuracy']:.1%}, 95 % {its['low']:.1%} to {its['high']:.1%})" if its["n"] else ""
    return f"{name}: {its['k']} of {its['n']} right{share}, {its['failures']} without a verdict"


def write(path: Path, rows: Sequence[dict[str, object]]) -> None:
    """Write graded rows whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8", errors=record.LONE, newline="") as file:
        writer = csv.DictWriter(file, FIELDS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    os.replace(temporary, path)
