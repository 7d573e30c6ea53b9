"""The files of a run: config.json, metrics.jsonl, episodes.jsonl, scores.csv, summary.json.

They are plain text that any tool can read. metrics.jsonl has one line per step and no clock times,
so equal runs write equal bytes; seconds go to timings.jsonl and summary.json. Imports no torch.
"""

import csv
import io
import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from coevolve.types import Outcome, Reply, Sample, Turn
from coevolve.validation import user_path

SCORE_FIELDS = [
    "stage",
    "strategy",
    "split",
    "family",
    "level",
    "item",
    "question",
    "answer",
    "correct",
    "misconception",
    "finished",
    "tokens_in",
    "tokens_out",
]
TRACKER_FILE = "tracker.json"  # see `trackers`
# What a fresh start removes. config.json comes last: without it a folder is not a run's.
FILES_OF_A_RUN = (
    "metrics.jsonl",
    "episodes.jsonl",
    "timings.jsonl",
    "conversations.jsonl",  # of CoNL and SRT
    "scores.csv",
    "grades.csv",
    "summary.json",
    "report.html",
    TRACKER_FILE,
    "config.json",
)
RUN_MARK = b'"method_fields"'  # in the config.json of a run, and in no model's
FOLDERS_OF_A_RUN = ("checkpoints", "policy", "snapshots", "tensorboard")
# UTF-8 cannot encode half of a surrogate pair; its escape is written instead.
SURROGATE_ERRORS = "backslashreplace"


def fsync_tree(path: Path) -> None:
    """Force a file, or a folder with its content, to the disk, where it survives a power cut."""
    for entry in [*path.rglob("*"), path]:
        flags = os.O_RDONLY
        if sys.platform == "win32":
            if entry.is_dir():  # cannot be opened there
                continue
            flags = os.O_RDWR | os.O_BINARY  # only what may be written can be forced
        descriptor = os.open(entry, flags)
        os.fsync(descriptor)
        os.close(descriptor)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file, text as UTF-8; readers see the old content or the new, never a part of it."""
    if isinstance(content, str):
        content = content.encode("utf-8", SURROGATE_ERRORS)
    aside = path.with_name(f".{path.name}.tmp")
    aside.write_bytes(content)
    fsync_tree(aside)
    aside.replace(path)


def clean(value: Any) -> Any:
    """Make a value strict JSON: non-finite floats become null, unknown objects their text."""
    return to_jsonable_python(value, inf_nan_mode="null", fallback=str)


def write_json(path: Path, value: Any) -> None:
    """Write a value as strict JSON, atomically."""
    text = json.dumps(clean(value), indent=1, ensure_ascii=False)
    write_atomically(path, text + "\n")


def json_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows as strict JSON, one row per line."""
    lines = [json.dumps(clean(row), ensure_ascii=False) for row in rows]
    return "".join(f"{line}\n" for line in lines)


def keep_steps(path: Path, steps: int) -> None:
    """Drop the lines of later steps, which a resumed run plays again, and a last line cut short."""
    if not path.is_file():
        return
    kept = []
    with path.open("rb") as file:  # bytes, since the file may be cut inside a character
        for line in file:
            if not line.endswith(b"\n") or json.loads(line)["step"] > steps:
                break
            kept.append(line)
    write_atomically(path, b"".join(kept))


def is_run(folder: Path) -> bool:
    """Whether a folder holds the config.json of a run."""
    settings = folder / "config.json"
    return settings.is_file() and RUN_MARK in settings.read_bytes()


def run_of(policy: str | Path) -> Path | None:
    """Return the run that a folder is or belongs to, None if there is none.

    RUN/policy and RUN/policy/NAME belong to RUN.
    """
    folder = user_path(policy).resolve()
    for place in (folder, *folder.parents[:2]):
        if is_run(place):
            return place
    return None


def check_is_run(out: Path) -> None:
    """Raise ValueError if a folder's config.json is something else than that of a run."""
    if (out / "config.json").is_file() and not is_run(out):
        raise ValueError(f"out must not hold the config.json of something else: {out}")


def remove_run(out: Path) -> None:
    """Remove what a run wrote into its folder; do nothing in a folder that is not a run's.

    Other files stay. So do rows of a method of the user's own, until the method writes them again.
    """
    if not is_run(out):
        return
    for name in FOLDERS_OF_A_RUN:
        shutil.rmtree(out / name, ignore_errors=True)
    for name in FILES_OF_A_RUN:
        (out / name).unlink(missing_ok=True)


def means(numbers: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    """Average (name, number) pairs by name; None is skipped, and so is a name with no number."""
    numbers_by_name: dict[str, list[float]] = {}
    for name, number in numbers:
        known = numbers_by_name.setdefault(name, [])
        if number is not None:
            known.append(number)
    return {
        name: sum(known) / len(known)
        for name, known in numbers_by_name.items()
        if known
    }


def last_step(folder: Path) -> int:
    """Return the last step in a run's metrics.jsonl, 0 if there is none."""
    path = folder / "metrics.jsonl"
    if not path.is_file():
        return 0
    complete_lines = path.read_bytes().split(b"\n")[
        :-1
    ]  # a killed run may leave a part
    if not complete_lines:
        return 0
    return int(json.loads(complete_lines[-1])["step"])


def describe(step: int, index: int, outcome: Outcome) -> dict[str, Any]:
    """Return an episode as a JSON row: its facts, every sample with its reward, the other replies.

    `turn` counts the replies of the episode, also those without a reward, which are `unpaid`.
    """
    turn_of = {id(reply): turn for turn, reply in enumerate(outcome.replies)}
    samples = []
    for sample in outcome.samples:
        row = _describe_reply(sample.reply) | {"reward": sample.reward}
        if sample.parts:
            row["parts"] = sample.parts
        samples.append(row | {"turn": turn_of.pop(id(sample.reply), None)})
    unpaid = []
    for turn in turn_of.values():
        unpaid.append(_describe_reply(outcome.replies[turn]) | {"turn": turn})
    return {
        "step": step,
        "episode": index,
        "facts": outcome.facts,
        "samples": samples,
        "unpaid": unpaid,
    }


def _describe_reply(reply: Reply) -> dict[str, Any]:
    """Return a reply as a JSON row; `before` has the messages before the last, if there are any."""
    *before, last = reply.turn.messages
    row: dict[str, Any] = {
        "role": reply.turn.role,
        "policy": reply.turn.policy,
        "prompt": last["content"],
        "text": reply.text,
        "tokens": len(reply.completion_ids),
    }
    if before:
        row["before"] = before
    return row


def rows_in_order(episode: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return all replies of a row of episodes.jsonl as rows, in the order of their turns.

    A reply that was not paid has no "reward". Rows of earlier releases have paid replies alone.
    """
    rows = [*episode["samples"], *episode.get("unpaid", ())]
    if all(row.get("turn") is not None for row in rows):
        rows.sort(key=lambda row: int(row["turn"]))
    return rows


def replies_of(episode: Mapping[str, Any]) -> tuple[list[Reply], list[Sample]]:
    """Return the replies of a row of episodes.jsonl in the order of their turns, and its samples.

    Of the tokens, the row has their number alone.
    """
    replies = []
    samples = []
    for row in rows_in_order(episode):
        messages = (*row.get("before", ()), {"role": "user", "content": row["prompt"]})
        turn = Turn(row["role"], messages, row["policy"])
        reply = Reply(turn, row["text"], completion_ids=(0,) * row["tokens"])
        replies.append(reply)
        if "reward" in row:
            parts = row.get("parts", {})
            samples.append(Sample(reply, row["reward"], parts=parts))
    return replies, samples


class Recorder:
    """Appends to the files in a run's folder; a resumed run continues after step `done`."""

    def __init__(self, out: Path, done: int = 0):
        self.out = out
        out.mkdir(parents=True, exist_ok=True)
        # A new run drops even step 0, the evaluation before step 1.
        last_step = done or -1
        for name in ("metrics", "episodes", "timings"):
            keep_steps(out / f"{name}.jsonl", last_step)

    def _append(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        path = self.out / f"{name}.jsonl"
        with path.open(
            "a", encoding="utf-8", errors=SURROGATE_ERRORS, newline=""
        ) as file:
            file.write(json_lines(rows))

    def step(
        self, step: int, metrics: Mapping[str, Any], seconds: Mapping[str, float]
    ) -> None:
        """Append a line to metrics.jsonl, and the step's seconds by phase to timings.jsonl."""
        rounded = {phase: round(duration, 4) for phase, duration in seconds.items()}
        self._append("metrics", [{"step": step, **metrics}])
        self._append("timings", [{"step": step, **rounded}])

    def episodes(self, step: int, outcomes: Sequence[Outcome], keep: int) -> None:
        """Append the first `keep` episodes of a step with their full texts."""
        rows = [describe(step, i, outcome) for i, outcome in enumerate(outcomes[:keep])]
        self._append("episodes", rows)

    def rows(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Replace NAME.jsonl by these rows, one per line."""
        write_atomically(self.out / f"{name}.jsonl", json_lines(rows))

    def scores(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write scores.csv, one line per evaluated item with the fields SCORE_FIELDS.

        Raises ValueError for a row with another field.
        """
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, SCORE_FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_atomically(self.out / "scores.csv", text.getvalue())


def read(run: str | Path, name: str = "metrics") -> Any:
    """Return a run's metrics, timings, episodes, scores or method's own rows as a pandas DataFrame.

    Raises ValueError if the run has not written them.
    """
    extension = "csv" if name == "scores" else "jsonl"
    path = user_path(run) / f"{name}.{extension}"
    if not path.is_file():
        raise ValueError(f"no {path.name} in {path.parent}: has the run finished?")
    return _read_scores(path) if name == "scores" else _read_rows(path)


def _read_rows(path: Path) -> Any:
    import pandas

    # pandas.read_json would round numbers and take some names for dates.
    with path.open("rb") as file:
        rows = [json.loads(line) for line in file]
    return pandas.DataFrame(rows)


def _read_scores(path: Path) -> Any:
    import pandas

    return pandas.read_csv(
        path,
        keep_default_na=False,
        na_values={"correct": [""]},  # empty: an answer that only a judge can score
        dtype={"answer": str, "question": str},
        lineterminator="\n",  # without it, pandas would end a row at a \r inside an answer
    )
