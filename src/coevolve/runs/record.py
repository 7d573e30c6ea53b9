"""What a run leaves on disk: config.json, metrics.jsonl, episodes.jsonl, scores.csv, summary.json.

Plain text that any tool can read; imports no torch. Metrics hold one line a step without clock times,
so the same run writes the same bytes; seconds go into timings.jsonl and summary.json.
"""

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from coevolve.types import Outcome

SCORE_FIELDS = (
    "stage setup split family level item question answer correct misconception finished tokens_in tokens_out"
).split()
LONE = "backslashreplace"  # half a surrogate pair, which UTF-8 cannot hold, becomes its escape


def fsync_tree(path: Path) -> None:
    """Force a file, or a folder and all that is in it, to the disk, where a power cut leaves it whole."""
    for one in [*path.rglob("*"), path]:
        descriptor = os.open(one, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file, text as UTF-8, so that a reader finds either the old content or the new, never a part of it."""
    aside = path.with_name(f".{path.name}.tmp")
    aside.write_bytes(content.encode("utf-8", LONE) if isinstance(content, str) else content)
    fsync_tree(aside)
    aside.replace(path)


def clean(value: Any) -> Any:
    """Make a value strict JSON: non-finite floats become null, unknown objects their text."""
    return to_jsonable_python(value, inf_nan_mode="null", fallback=str)


def write_json(path: Path, value: Any) -> None:
    """Write a value as strict JSON, whole or not at all."""
    write_atomically(path, json.dumps(clean(value), indent=1, ensure_ascii=False) + "\n")


def json_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows as strict JSON, one a line."""
    return "".join(json.dumps(clean(row), ensure_ascii=False) + "\n" for row in rows)


def keep_steps(path: Path, steps: int) -> None:
    """Drop the lines of steps that a resumed run will play again (a cut last line goes as well)."""
    if path.is_file():
        with path.open("rb") as file:  # bytes: the cut may be inside a character
            kept = takewhile(lambda line: line.endswith(b"\n") and json.loads(line)["step"] <= steps, file)
            write_atomically(path, b"".join(kept))


def means(numbers: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    """Return the mean of the known numbers of each name; a name without any is left out."""
    known: dict[str, list[float]] = {}
    for name, number in numbers:
        known.setdefault(name, []).extend([] if number is None else [number])
    return {name: sum(values) / len(values) for name, values in known.items() if values}


def describe(step: int, index: int, outcome: Outcome) -> dict[str, Any]:
    """One episode as a JSON row: its facts, and who said what and earned what."""
    said = [
        {"role": s.role, "policy": s.policy, "prompt": s.reply.turn.messages[-1]["content"]}
        | {"text": s.reply.text, "tokens": len(s.reply.completion_ids), "reward": s.reward}
        for s in outcome.samples
    ]
    return {"step": step, "episode": index, "facts": outcome.facts, "samples": said}


class Recorder:
    """Appends to one run's folder; a resumed run continues after step `done`."""

    def __init__(self, out: Path, done: int = 0):
        self.out = out
        out.mkdir(parents=True, exist_ok=True)
        for name in ("metrics", "episodes", "timings"):
            keep_steps(out / f"{name}.jsonl", done or -1)  # from the start: not even the look before step 1

    def _append(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        with (self.out / f"{name}.jsonl").open("a", encoding="utf-8", errors=LONE, newline="") as file:
            file.write(json_lines(rows))

    def step(self, step: int, metrics: Mapping[str, Any], seconds: Mapping[str, float]) -> None:
        """Append one line of metrics, and the step's seconds apart from them."""
        self._append("metrics", [{"step": step, **metrics}])
        self._append("timings", [{"step": step, **{name: round(s, 4) for name, s in seconds.items()}}])

    def episodes(self, step: int, outcomes: Sequence[Outcome], keep: int) -> None:
        """Append the first `keep` episodes of a step, word for word."""
        self._append("episodes", [describe(step, i, outcome) for i, outcome in enumerate(outcomes[:keep])])

    def rows(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write NAME.jsonl anew, one line a row."""
        write_atomically(self.out / f"{name}.jsonl", json_lines(rows))

    def scores(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write one line per evaluated item (SCORE_FIELDS); ValueError for a row with another field."""
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, SCORE_FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_atomically(self.out / "scores.csv", text.getvalue())


def read(run: str | Path, name: str = "metrics") -> Any:
    """Return metrics, timings, episodes, scores or a method's own rows of a run as a pandas DataFrame.

    Raises ValueError when the run has not written them.
    """
    import pandas

    path = Path(run) / (f"{name}.csv" if name == "scores" else f"{name}.jsonl")
    if not path.is_file():
        raise ValueError(f"no {path.name} in {path.parent}: has the run finished?")
    if name == "scores":
        blank, texts = {"correct": [""]}, {"answer": str, "question": str}  # blank: what only a judge can score
        # An answer may hold a \r, which pandas would take for the end of its row.
        return pandas.read_csv(path, keep_default_na=False, lineterminator="\n", na_values=blank, dtype=texts)
    with path.open("rb") as file:  # pandas.read_json rounds numbers and takes names for dates
        return pandas.DataFrame([json.loads(line) for line in file])
