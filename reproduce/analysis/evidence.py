"""What claims are tested on: answers, step metrics, conversations, cross play, summaries.

`RunFolders` reads it from the folders of finished runs, `records.Records` from the files that are
committed beside the results. Every statistic is computed from frames of this one form. Loads no
torch.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from coevolve.runs import record

Runs = Mapping[str, Sequence[int]]  # name of a run: its seeds
ITEM_COLUMNS = ["item", "split", "family", "level", "question"]
ANSWER_COLUMNS = ["seed", "model", *ITEM_COLUMNS, "correct"]
MEASURE_COLUMNS = [  # of a conversation: what CoNL's measures divide
    "pass_1",
    "pass_k",
    "rank_rho",
    "wrong_before",
    "fixed",
    "correct_before",
    "harmed",
]
CONVERSATION_COLUMNS = ["seed", "model", *ITEM_COLUMNS, *MEASURE_COLUMNS]
# Metrics of a step: the tokens that it generated, and the accuracy on validation questions.
TOKENS = "generated"
VALIDATION = "validation"
PASS_RATE_COLUMNS = ["seed", "challenger", "reasoner", "document", "pass_rate"]


@dataclass(frozen=True)
class Summary:
    """What a finished run was, and how often its mechanisms acted."""

    run: str
    seed: int
    method: str
    model: str  # the backbone; those of several policies are joined by +
    steps: int
    acted: Mapping[str, float]  # mechanism: a share

    @property
    def backbone(self) -> str:
        """The model of the first policy, the unit of replication where runs differ in it."""
        first_model, _, _ = self.model.partition("+")
        return first_model


class Evidence(Protocol):
    """The evidence of some runs. Frames of a run hold all of its seeds, in their order.

    A run that has not recorded what is asked for gives a frame without rows.
    """

    @property
    def runs(self) -> Runs:
        """The seeds of every run."""

    def summaries(self, run: str) -> list[Summary]:
        """Return a summary per seed."""

    def answers(
        self, run: str, strategy: str = "vanilla", stage: str = "after"
    ) -> pd.DataFrame:
        """Return a row per seed and test question, with ANSWER_COLUMNS.

        `correct` is 1 or 0, or nan where no verifier can tell. `item` is the question's place in
        the list that the run was asked.
        """

    def step_metrics(self, run: str) -> pd.DataFrame:
        """Return a row per seed and step, with the columns seed, model, step and the metrics."""

    def conversations(self, run: str) -> pd.DataFrame:
        """Return a row per seed and examined question, with CONVERSATION_COLUMNS."""

    def cross_play(self) -> pd.DataFrame:
        """Return pass rates of snapshots against each other, with PASS_RATE_COLUMNS."""


@dataclass(frozen=True)
class RunFolders:
    """The evidence in the folders of finished runs, RUN-sSEED each."""

    folder: Path
    runs: Runs
    crossed: pd.DataFrame | None = None  # of `crossplay.rates_at_first`

    def home(self, run: str, seed: int) -> Path:
        """Return the folder of one run."""
        return self.folder / f"{run}-s{seed}"

    def config(self, run: str, seed: int) -> dict[str, Any]:
        """Return the config.json of one run."""
        return read_json(self.home(run, seed) / "config.json")

    def summaries(self, run: str) -> list[Summary]:
        """Return a summary per seed."""
        summaries = []
        for seed in self.runs[run]:
            config = self.config(run, seed)
            content = read_json(self.home(run, seed) / "summary.json")
            summary = Summary(
                run=run,
                seed=seed,
                method=config["method"],
                model=model_name(config["model"]),
                steps=content["steps"],
                acted=content["acted"],
            )
            summaries.append(summary)
        return summaries

    def answers(
        self, run: str, strategy: str = "vanilla", stage: str = "after"
    ) -> pd.DataFrame:
        """Return a row per seed and test question."""
        frame = self._rows(run, "scores")
        is_asked = (frame["strategy"] == strategy) & (frame["stage"] == stage)
        answers = frame.loc[is_asked, ANSWER_COLUMNS].reset_index(drop=True)
        return answers.astype({"correct": float})

    def step_metrics(self, run: str) -> pd.DataFrame:
        """Return a row per seed and step."""
        return with_added(self._rows(run, "metrics"))

    def conversations(self, run: str) -> pd.DataFrame:
        """Return a row per seed and examined question."""
        first_seed = self.runs[run][0]
        if not (self.home(run, first_seed) / "conversations.jsonl").is_file():
            return pd.DataFrame(columns=CONVERSATION_COLUMNS)
        # Methods examine test questions alone, and do not record the split.
        frame = self._rows(run, "conversations").assign(split="test")
        measures = dict.fromkeys(MEASURE_COLUMNS, float)
        return frame.reindex(columns=CONVERSATION_COLUMNS).astype(measures)

    def cross_play(self) -> pd.DataFrame:
        """Return pass rates of snapshots against each other."""
        if self.crossed is None:
            return pd.DataFrame(columns=PASS_RATE_COLUMNS)
        return self.crossed[PASS_RATE_COLUMNS]

    def _rows(self, run: str, kind: str) -> pd.DataFrame:
        """Return one kind of record of every seed, with the columns seed and model in front."""
        frames = []
        for seed in self.runs[run]:
            model = model_name(self.config(run, seed)["model"])
            frame = record.read(self.home(run, seed), kind)
            frame.insert(0, "seed", seed)
            frame.insert(1, "model", model)
            frames.append(frame)
        return pd.concat(frames, ignore_index=True)


def with_added(steps: pd.DataFrame) -> pd.DataFrame:
    """Add the column `added_ill_formed` to step metrics with a pool of questions (MAE).

    It is the share of ill-formed questions among those that entered the pool after step 1. The
    whole pool says less of a filter, as it begins with many well-formed questions.
    """
    if not {"pool_ill_formed", "pool/questions"} <= set(steps):
        return steps
    size = steps["pool/questions"]
    ill_formed = steps["pool_ill_formed"] * size
    added = size - size.groupby(steps["seed"]).transform("first")
    ill_formed_added = ill_formed - ill_formed.groupby(steps["seed"]).transform("first")
    return steps.assign(added_ill_formed=ill_formed_added / added.where(added > 0))


def read_json(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def model_name(model: str | Sequence[str]) -> str:
    """Return the name of a run's backbone; those of several policies are joined by +."""
    return model if isinstance(model, str) else "+".join(model)
