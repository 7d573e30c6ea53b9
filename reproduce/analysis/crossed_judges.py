"""Untrained and trained judges on untrained and trained answers, for MAE and CoMAS.

When judge and verifier come to disagree, either training spoils the judge, or the answers move to
where the judge errs. Loads a model only when it has to judge.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd

from coevolve.methods.mae.rewards import score_or_neutral
from coevolve.rollout.engine import Engine
from coevolve.rollout.scheduler import play
from coevolve.runs import record
from coevolve.training import config
from coevolve.types import Episode, Reply, Turn
from reproduce.analysis import crossed, crossplay, standins, tables
from reproduce.analysis.stats import Array

CELL = ["method", "judge", "answers"]
MEASURES = {  # column: its title in a table
    "believed": "judged right, %",
    "correct": "truly right, %",
    "agrees": "judge agrees with the verifier, %",
    "wrong believed": "wrong answers judged right, %",
}
DRIFTING = ("believed", "agrees", "wrong believed")
STAGES = {"before": "untrained", "after": "trained"}  # of recorded answers
Score = float | None
Models = Mapping[str, str]  # policy: its model or folder


def mae_score(method: Any, question: str, answer: str, rng: Random) -> Iterator[Score]:
    """Play MAE's Judge on one answer; return its score in [0, 1], or None if it is unreadable."""
    (judged,) = yield from method.judge_pairs([(question, answer)])
    return score_or_neutral(judged.score)


def comas_score(
    method: Any, question: str, answer: str, rng: Random
) -> Iterator[Score]:
    """Play CoMAS's evaluation and scoring of one answer; return the solution's reward."""
    solution = Reply(Turn("solution", ()), f"\\boxed{{{answer}}}")
    history = [method.recent([])]
    evaluations = yield from method.evaluate(rng, question, history, [solution])
    scorings = yield from method.score(rng, question, [solution], evaluations)
    rewarded = method.reward_round(solution, evaluations[0], scorings[0])
    return rewarded.solution.reward


@dataclass(frozen=True)
class Judging:
    """A method whose model also judges, and the runs to take its judges and answers from."""

    method: str
    run: str
    label: str
    score: Callable[..., Iterator[Score]]


def judged(
    judging: Judging, run: config.Run, folder: Path, seeds: Sequence[int]
) -> list[pd.DataFrame]:
    """Let both judges of every seed score both sets of answers; return a row per score.

    Columns: pays (the judge's score), correct (the verifier's), method, seed, unit (of
    replication), judge, answers.
    """
    frames = []
    units = standins.units(folder, judging.run, seeds)
    for seed, unit in zip(seeds, units, strict=True):
        home = folder / f"{judging.run}-s{seed}"
        given = answered_twice(home)
        untrained, _ = config.assign_models(run.method, standins.backbones(home))
        judges = {"untrained": untrained, "trained": trained_models(home, untrained)}
        for judge, models in judges.items():
            engine = load_engine(run, models)
            for stage, answers in STAGES.items():
                part = given[given["stage"] == stage]
                frame = scored(judging, run.method, engine, part, seed)
                frame = frame.assign(
                    method=judging.label,
                    seed=seed,
                    unit=unit,
                    judge=judge,
                    answers=answers,
                )
                frames.append(frame)
    return frames


def answered_twice(home: Path) -> pd.DataFrame:
    """Return the recorded answers to the questions that a run answered before and after."""
    frame = record.read(home, "scores").query("strategy == 'vanilla' and answer != ''")
    stages = frame.groupby("question")["stage"].transform("nunique")
    return frame[stages == 2].dropna(subset=["correct"])


def trained_models(home: Path, untrained: Models) -> dict[str, str]:
    """Return the folder of each trained policy; several have a folder each."""
    several = len(untrained) > 1
    policy = home / "policy"
    return {name: str(policy / name if several else policy) for name in untrained}


def load_engine(run: config.Run, models: Models) -> Engine:
    """Load some models into an engine with a run's temperature and length."""
    from coevolve.engines.router import make_engine
    from coevolve.models.policy_set import PolicySet

    return make_engine(PolicySet(models, ()), "torch", run.temperature, run.max_tokens)


def scored(
    judging: Judging, method: Any, engine: Engine, answers: pd.DataFrame, seed: int
) -> pd.DataFrame:
    """Return a judge's score of each answer beside the verifier's."""
    episodes: list[Episode] = []
    for question, answer in zip(answers["question"], answers["answer"], strict=True):
        rng = Random(f"{seed}/{question}")
        dialogue = judging.score(method, question, answer, rng)
        episodes.append(crossplay.alone(dialogue))
    outcomes = play(episodes, engine, (seed,))
    scores = [outcome.trace for outcome in outcomes]
    return pd.DataFrame(
        {
            "pays": pd.Series(scores, dtype=float),
            "correct": answers["correct"].to_numpy(bool),
        }
    )


def beliefs(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return, per method, judge, answers and unit, the measures of `MEASURES` in percent."""
    scores = pd.concat(frames, ignore_index=True).dropna(subset=["pays"])
    scores["believed"] = scores["pays"] > 0.5
    scores["agrees"] = scores["believed"] == scores["correct"]
    keys = [*CELL, tables.replicate(scores)]
    by_cell = scores.groupby(keys, sort=False)
    shares = 100 * by_cell[["believed", "correct", "agrees"]].mean()
    wrong = scores[~scores["correct"]].groupby(keys, sort=False)
    shares["wrong believed"] = 100 * wrong["believed"].mean()
    return shares


def belief_table(shares: pd.DataFrame) -> pd.DataFrame:
    """Return the measures with limits over units, a row per method, judge and answers."""
    by_cell = shares.groupby(CELL, sort=False)
    table = by_cell.agg(lambda values: with_limits(values.to_numpy()))
    return table.rename(columns=MEASURES).reset_index()


def drift_table(shares: pd.DataFrame) -> pd.DataFrame:
    """Decompose the change from untrained judge and answers to trained judge and answers.

    A row per measure and method, in points with limits over units.
    """
    tables_of_measures = []
    for measure in DRIFTING:
        moved = _drift(shares[measure].unstack(["judge", "answers"]))
        by_method = moved.groupby("method", sort=False)
        table = by_method.agg(
            lambda values: with_limits(values.to_numpy(), signed=True)
        )
        title = MEASURES[measure].removesuffix(", %")
        table = table.reset_index()
        table.insert(1, "what", f"{title}, points")
        tables_of_measures.append(table)
    return pd.concat(tables_of_measures, ignore_index=True)


def _drift(shares: pd.DataFrame) -> pd.DataFrame:
    """Split the change of one measure; `together` is what judge and answers alone do not explain.

    `shares` has a column per (judge, answers).
    """
    start = shares["untrained", "untrained"]
    end = shares["trained", "trained"]
    judge_alone = shares["trained", "untrained"] - start
    answers_alone = shares["untrained", "trained"] - start
    return pd.DataFrame(
        {
            "judge alone": judge_alone,
            "answers alone": answers_alone,
            "together": end - start - judge_alone - answers_alone,
            "in all": end - start,
        }
    )


def with_limits(values: Array, signed: bool = False) -> str:
    """Format the mean of one value per unit with Student's 95 % limits; no value gives nothing."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return ""
    effect = crossed.mean_of_units(finite)
    return tables.percent(effect.delta, *effect.limits, signed=signed)
