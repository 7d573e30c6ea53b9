"""Folders of pretend runs: all that the ledger's claims name, with random answers and metrics."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd

from coevolve.runs.record import Recorder, write_json
from reproduce.analysis import claims, standins
from reproduce.analysis.evidence import RunFolders

SEEDS = (0, 1)
BACKBONES = ("tiny", "tiny-1")  # of these seeds
PER_FAMILY = 3  # test questions
STEPS = 10
STRATEGIES = ("vanilla", "consistency", "autogen", "debate")
UNTRAINED = "base"  # in the names of untrained runs


@dataclass(frozen=True)
class Question:
    """A test question."""

    family: str
    level: int
    text: str


def questions() -> list[Question]:
    """Return test questions of all families that stand for a benchmark in any paper."""
    families: set[str] = set()
    for paper in standins.LAYOUTS:
        families |= set(standins.layout(paper).benchmark_of)
    found = []
    for family in sorted(families):
        for number in range(PER_FAMILY):
            level = 1 + number % 3
            found.append(Question(family, level, f"{family}, {number}?"))
    return found


def arms() -> list[str]:
    """Return the runs that claims name, and a team of two backbones."""
    names = {"comas_mixed"}
    for claim in claims.CLAIMS.values():
        names.update(claim.get("arms", ()))
    return sorted(names)


def make(folder: Path) -> RunFolders:
    """Write all runs into a folder."""
    runs = dict.fromkeys(arms(), SEEDS)
    for run, seeds in runs.items():
        for seed in seeds:
            write(Recorder(folder / f"{run}-s{seed}"), run, seed)
    return RunFolders(folder, runs, pd.DataFrame(pass_rates()))


def write(recorder: Recorder, run: str, seed: int) -> None:
    """Write the files of one run."""
    rng = Random(f"{run} {seed}")
    asked = questions()
    config = {
        "method": run,
        "model": model_of(run, seed),
        "method_fields": {"agents": 4 if run.startswith("conl") else 1},
    }
    mechanisms = {claim.get("mechanism", "none") for claim in claims.CLAIMS.values()}
    summary = {
        "steps": 0 if UNTRAINED in run else STEPS,
        "acted": {name: rng.randrange(10) / 10 for name in sorted(mechanisms)},
    }
    write_json(recorder.out / "config.json", config)
    write_json(recorder.out / "summary.json", summary)
    recorder.rows("metrics", metrics(rng))
    recorder.scores(scores(rng, asked))
    if run.startswith("conl"):
        recorder.rows("conversations", conversations(rng, asked))


def model_of(run: str, seed: int) -> str | list[str]:
    """Return the backbone of a run, or those of a mixed team."""
    backbone = BACKBONES[seed]
    return [backbone, "tiny-small"] if "mixed" in run else backbone


def metrics(rng: Random) -> Iterator[dict[str, float]]:
    """Every metric that claims use in every step, validation in some, and generated tokens."""
    for step in range(STEPS + 1):
        row = {name: rng.random() for name in claims.step_columns()}
        if step % 2:
            del row["validation"]
        yield {"step": step, "generated": rng.randrange(1000), "unused": 1.0, **row}


def scores(rng: Random, asked: Sequence[Question]) -> Iterator[dict[str, Any]]:
    """Answers before training, and after it in every strategy."""
    asks = [("before", "vanilla"), *(("after", strategy) for strategy in STRATEGIES)]
    skill = rng.uniform(0.2, 0.8)
    for stage, strategy in asks:
        for item, question in enumerate(asked):
            yield {
                "stage": stage,
                "strategy": strategy,
                "split": "test",
                "family": question.family,
                "level": question.level,
                "item": item,
                "question": question.text,
                "answer": "7",
                "correct": int(rng.random() < skill),
            }


def conversations(rng: Random, asked: Sequence[Question]) -> Iterator[dict[str, Any]]:
    """A conversation on every second question."""
    for item, question in enumerate(asked[::2]):
        wrong = rng.randrange(5)
        correct = 4 - wrong
        yield {
            "item": item,
            "family": question.family,
            "level": question.level,
            "question": question.text,
            "pass_1": float(rng.random() < 0.5),
            "pass_k": 1.0,
            "rank_rho": rng.uniform(-1, 1) if wrong and correct else None,
            "wrong_before": float(wrong),
            "fixed": float(rng.randint(0, wrong)),
            "correct_before": float(correct),
            "harmed": float(rng.randint(0, correct)),
        }


def pass_rates() -> Iterator[dict[str, float]]:
    """SPICE's snapshots against each other."""
    rng = Random("cross play")
    for seed in SEEDS:
        for challenger, reasoner in [(0, 5), (5, 5), (10, 5), (5, 0), (5, 10)]:
            for document in range(6):
                yield {
                    "seed": seed,
                    "challenger": challenger,
                    "reasoner": reasoner,
                    "document": document,
                    "pass_rate": rng.random(),
                }
