"""The committed records: what a ledger or a figure rests on, packed into a few small files.

`pack` writes them from the folders of finished runs, and `Records` reads them as evidence, so that
every interval can be recomputed without a run. records.txt, which becomes the README.md beside the
files, describes each of them. Loads no torch.
"""

import gzip
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from coevolve.runs import record
from reproduce import UserError
from reproduce.analysis.evidence import (
    ANSWER_COLUMNS,
    CONVERSATION_COLUMNS,
    ITEM_COLUMNS,
    MEASURE_COLUMNS,
    PASS_RATE_COLUMNS,
    RunFolders,
    Runs,
    Summary,
    model_name,
    read_json,
)
from reproduce.analysis.writing import SIX_DIGITS, rounded_csv

README = "README.md"
RUNS = "runs.csv"
ITEMS = "items.csv"
ANSWERS = "answers.csv.gz"
STEPS = "steps.csv.gz"
CONVERSATIONS = "conversations.csv.gz"
CROSS_PLAY = "cross_play.csv"
TABLES = (RUNS, ITEMS, ANSWERS, STEPS, CONVERSATIONS, CROSS_PLAY)
FILES = (README, *TABLES)
DESCRIPTION = Path(__file__).with_suffix(".txt")
VERDICTS = {1.0: "1", 0.0: "0"}  # in the column correct of ANSWERS
UNKNOWN = "-"  # where no verifier can tell
HASH_DIGITS = 16
LIST_COLUMNS = ["list", *ITEM_COLUMNS]
CONVERSATION_KEYS = ["run", "seed", "list", "item"]


@dataclass
class QuestionLists:
    """The lists of questions that runs were asked, numbered from 1; equal lists are one."""

    lists: dict[str, pd.DataFrame] = field(default_factory=dict)  # by their text

    def number(self, rows: pd.DataFrame) -> int:
        """Return the number of the list that these rows answer, one row per question."""
        items = rows[ITEM_COLUMNS].reset_index(drop=True)
        text = items.to_csv(index=False)
        self.lists.setdefault(text, items)
        return 1 + list(self.lists).index(text)

    def table(self) -> pd.DataFrame:
        """Return all lists with LIST_COLUMNS."""
        frames = []
        for number, items in enumerate(self.lists.values(), start=1):
            frames.append(items.assign(list=number)[LIST_COLUMNS])
        return _together(frames, LIST_COLUMNS)


def pack(folders: RunFolders, out: Path, step_columns: Sequence[str]) -> None:
    """Write the records of finished runs to the folder `out`, with these step metrics."""
    lists = QuestionLists()
    run_rows = []
    answer_rows = []
    step_frames = []
    conversation_frames = []
    for run, seeds in folders.runs.items():
        for seed in seeds:
            run_rows.append(_run_row(folders, run, seed))
            answer_rows += _answer_rows(folders, run, seed, lists)
        step_frames.append(_step_frame(folders, run, step_columns))
        conversation_frames += _conversation_frames(folders, run, lists)
    columns = [*CONVERSATION_KEYS, *MEASURE_COLUMNS]
    tables = {
        RUNS: pd.DataFrame(run_rows),
        ITEMS: lists.table(),
        ANSWERS: pd.DataFrame(answer_rows),
        STEPS: _together(step_frames, ["run", "seed", "step", *step_columns]),
        CONVERSATIONS: _together(conversation_frames, columns),
        CROSS_PLAY: folders.cross_play(),
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        write(table, out / name)
    description = DESCRIPTION.read_text(encoding="utf-8")
    (out / README).write_text(description, encoding="utf-8")


def write(table: pd.DataFrame, path: Path) -> None:
    """Write a table as CSV, compressed if the name says so; equal tables give equal bytes."""
    content = rounded_csv(table).encode()
    if path.suffix == ".gz":
        content = gzip.compress(content, compresslevel=6, mtime=0)
    path.write_bytes(content)


def _together(frames: Sequence[pd.DataFrame], columns: Sequence[str]) -> pd.DataFrame:
    """Return the frames as one with these columns; without a frame, one without rows."""
    filled = [frame for frame in frames if len(frame)]
    if not filled:
        return pd.DataFrame(columns=list(columns))
    return pd.concat(filled, ignore_index=True).reindex(columns=list(columns))


def _run_row(folders: RunFolders, run: str, seed: int) -> dict[str, Any]:
    """Return a run's row of RUNS."""
    home = folders.home(run, seed)
    content = (home / "config.json").read_bytes()
    config = json.loads(content)
    summary = read_json(home / "summary.json")
    metrics = record.read(home, "metrics")
    tokens = metrics["generated"].sum() if "generated" in metrics else 0
    method_fields = config.get("method_fields", {})
    return {
        "run": run,
        "seed": seed,
        "method": config["method"],
        "model": model_name(config["model"]),
        "agents": method_fields.get("agents", 1),
        "control": config.get("control") or "",
        "steps": summary["steps"],
        # Differs from `steps` for a baseline with a trainer of its own.
        "steps_taken": int(metrics["step"].max()),
        "tokens": int(tokens),
        "overrides": json.dumps(_overrides(home), sort_keys=True),
        "config_sha256": hashlib.sha256(content).hexdigest()[:HASH_DIGITS],
        "acted": _acted(summary["acted"]),
    }


def _overrides(home: Path) -> dict[str, Any]:
    """Return the fields that the batch set for a run; none if the batch did not make it."""
    origin = home / "provenance.json"
    return read_json(origin)["configuration"] if origin.is_file() else {}


def _acted(shares: dict[str, float]) -> str:
    """Return the shares in which mechanisms acted as JSON, with six digits."""
    rounded = {name: float(SIX_DIGITS % share) for name, share in shares.items()}
    return json.dumps(rounded, sort_keys=True)


def _answer_rows(
    folders: RunFolders, run: str, seed: int, lists: QuestionLists
) -> list[dict[str, Any]]:
    """Return a row of ANSWERS for each stage and strategy of a run."""
    scores = record.read(folders.home(run, seed), "scores")
    rows = []
    for key, answers in scores.groupby(["stage", "strategy"], sort=False):
        stage, strategy = key
        row = {
            "run": run,
            "seed": seed,
            "stage": stage,
            "strategy": strategy,
            "list": lists.number(answers),
            "correct": verdict_text(answers["correct"]),
        }
        rows.append(row)
    return rows


def verdict_text(correct: pd.Series) -> str:
    """Write a verdict per question as 1, 0 or -, for example "0110-1"."""
    verdicts = correct.astype(float)
    is_other = verdicts.notna() & ~verdicts.isin(VERDICTS)
    if is_other.any():
        raise ValueError(
            f"correct must be 0, 1 or empty, got {correct[is_other].iloc[0]}"
        )
    return "".join(VERDICTS.get(verdict, UNKNOWN) for verdict in verdicts)


def verdict_values(text: str) -> np.ndarray:
    """Return the verdicts of a text as floats, nan where it says -."""
    characters = np.array(list(text))
    return np.where(characters == UNKNOWN, np.nan, characters == VERDICTS[1.0])


def _step_frame(
    folders: RunFolders, run: str, step_columns: Sequence[str]
) -> pd.DataFrame:
    """Return the steps of a run in which one of these metrics was measured."""
    metrics = folders.step_metrics(run).assign(run=run)
    columns = [name for name in step_columns if name in metrics]
    measured = metrics[["run", "seed", "step", *columns]]
    return measured.dropna(subset=columns, how="all")


def _conversation_frames(
    folders: RunFolders, run: str, lists: QuestionLists
) -> list[pd.DataFrame]:
    """Return the rows of CONVERSATIONS of each seed of a run."""
    talks = folders.conversations(run)
    frames = []
    for _, of_seed in talks.groupby("seed", sort=False):
        numbered = of_seed.assign(run=run, list=lists.number(of_seed))
        frames.append(numbered[[*CONVERSATION_KEYS, *MEASURE_COLUMNS]])
    return frames


@dataclass(frozen=True)
class Records:
    """The evidence in the committed records of a folder. Raises UserError if they are missing."""

    folder: Path

    @cached_property
    def runs(self) -> Runs:
        """The seeds of every run."""
        by_run = self._run_table.groupby("run", sort=False)["seed"]
        return {str(run): seeds.tolist() for run, seeds in by_run}

    def summaries(self, run: str) -> list[Summary]:
        """Return a summary per seed."""
        return self._summaries[run]

    def answers(
        self, run: str, strategy: str = "vanilla", stage: str = "after"
    ) -> pd.DataFrame:
        """Return a row per seed and test question."""
        table = self._answer_table
        is_run = table["run"] == run
        is_asked = (table["strategy"] == strategy) & (table["stage"] == stage)
        frames = []
        for row in table[is_run & is_asked].itertuples():
            items = self._lists[row.list]
            verdicts = verdict_values(row.correct)
            if len(verdicts) != len(items):
                raise UserError(
                    f"{self.folder / ANSWERS}: {run} of seed {row.seed} has {len(verdicts)} "
                    f"verdicts on the {len(items)} questions of list {row.list}"
                )
            frames.append(items.assign(seed=row.seed, correct=verdicts))
        return self._with_models(run, _together(frames, ANSWER_COLUMNS))

    def step_metrics(self, run: str) -> pd.DataFrame:
        """Return a row per seed and step; metrics that the run lacks are no columns."""
        steps = self._step_table
        own = steps[steps["run"] == run].drop(columns="run")
        own = own.dropna(axis="columns", how="all")
        return self._with_models(run, own.reset_index(drop=True))

    def conversations(self, run: str) -> pd.DataFrame:
        """Return a row per seed and examined question."""
        talks = self._conversation_table
        own = talks[talks["run"] == run]
        described = own.merge(self._item_table, on=["list", "item"], how="left")
        if described["question"].isna().any():
            raise UserError(
                f"{self.folder / CONVERSATIONS}: {run} has conversations on questions that are "
                f"not in {ITEMS}"
            )
        measures = dict.fromkeys(MEASURE_COLUMNS, float)
        described = self._with_models(run, described).astype(measures)
        return described[CONVERSATION_COLUMNS]

    def cross_play(self) -> pd.DataFrame:
        """Return pass rates of snapshots against each other."""
        return self._read(CROSS_PLAY)[PASS_RATE_COLUMNS]

    def _with_models(self, run: str, frame: pd.DataFrame) -> pd.DataFrame:
        model_of = {summary.seed: summary.model for summary in self.summaries(run)}
        return frame.assign(model=frame["seed"].map(model_of))

    @cached_property
    def _run_table(self) -> pd.DataFrame:
        return self._read(RUNS)

    @cached_property
    def _summaries(self) -> dict[str, list[Summary]]:
        by_run: dict[str, list[Summary]] = {}
        for row in self._run_table.itertuples():
            summary = Summary(
                run=row.run,
                seed=row.seed,
                method=row.method,
                model=row.model,
                steps=row.steps,
                acted=json.loads(row.acted),
            )
            by_run.setdefault(row.run, []).append(summary)
        return by_run

    @cached_property
    def _item_table(self) -> pd.DataFrame:
        return self._read(ITEMS, dtype={"question": str})

    @cached_property
    def _lists(self) -> dict[int, pd.DataFrame]:
        by_list = self._item_table.groupby("list")
        return {int(number): items[ITEM_COLUMNS] for number, items in by_list}

    @cached_property
    def _answer_table(self) -> pd.DataFrame:
        return self._read(ANSWERS, dtype={"correct": str})

    @cached_property
    def _step_table(self) -> pd.DataFrame:
        return self._read(STEPS, keep_default_na=True)

    @cached_property
    def _conversation_table(self) -> pd.DataFrame:
        return self._read(CONVERSATIONS, keep_default_na=True)

    def _read(self, name: str, **options: Any) -> pd.DataFrame:
        """Read a file; an empty cell is an empty text unless `keep_default_na` is set."""
        path = self.folder / name
        if not path.is_file():
            raise UserError(
                f"no {name} in {self.folder}: the batch writes it as the artefact records"
            )
        settings = {
            "keep_default_na": False,
            "lineterminator": "\n",
        }
        return pd.read_csv(path, **settings | options)
