"""Snapshots of a SPICE run against each other: every Challenger's tasks, answered by every Reasoner (Figure 3).

Loads a model only when one has to speak. Nothing is trained here.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pandas as pd

from coevolve.driver import Engine, play
from coevolve.papers.spice import SPICE
from coevolve.papers.spice.method import Answer, Attempt, pass_rate
from coevolve.papers.spice.reading import Question
from coevolve.shares import mean
from coevolve.types import Dialogue, Episode, Outcome, T

POSING, ANSWERING = 1, 2  # keys of the turns


def players(run: Path, model: str, steps: Sequence[int]) -> dict[int, str]:
    """Where the weights after each step are: the run's snapshots, and the start as step 0."""
    kept = {step: Path(run) / "snapshots" / str(step) for step in steps}
    return {0: model} | {step: str(path) for step, path in kept.items() if path.is_dir()}


def speaker(model: str, max_tokens: int) -> Engine:
    """An engine that speaks with one model, as hot as in training (section 3.1)."""
    from coevolve import policies

    return policies.load(model).serve(1.0, max_tokens)


def documents(protocol: SPICE, count: int, seed: int = 0) -> list[str]:
    """The same documents for everybody."""
    rng = Random(f"documents {seed}")
    return [protocol.source.sample(rng) for _ in range(count)]


def alone(part: Dialogue[T]) -> Episode:
    """A part of an episode played by itself; the trace is what it returns."""
    return Outcome(trace=(yield from part))


def posed(engine: Engine, protocol: SPICE, texts: Sequence[str], seed: int = 0) -> list[list[Attempt]]:
    """What a Challenger says to each document (line 6 of Algorithm 1): (reply, task or its fault) per attempt."""
    episodes = [alone(protocol.challenge(text, Random(f"{seed}/{i}"))) for i, text in enumerate(texts)]
    return [attempts for *_, attempts in (outcome.trace for outcome in play(episodes, engine, (seed, POSING)))]


def answered(
    engine: Engine, protocol: SPICE, tasks: Sequence[Sequence[Question]], seed: int = 0
) -> list[list[list[Answer]]]:
    """What a Reasoner says to the tasks of each document (line 9): per task its (reply, verdict) pairs."""
    episodes = [alone(protocol.answer(questions)) for questions in tasks]
    return [outcome.trace for outcome in play(episodes, engine, (seed, ANSWERING))]


def every_pair(
    challengers: dict[int, str],
    reasoners: dict[int, str],
    protocol: SPICE,
    texts: Sequence[str],
    *,
    attempts: int,
    answers: int,
    max_tokens: int,
    seed: int = 0,
) -> pd.DataFrame:
    """Play all pairs; a row per challenger, reasoner and document that has a valid task.

    Columns: pass_rate (mean over the document's valid tasks, `answers` answers each), valid (share of the
    `attempts` attempts), gold_right (share of gold answers the oracle confirms; NaN without an oracle).
    """
    asks, replies = replace(protocol, group=attempts, attempts=attempts), replace(protocol, group=answers, reuse=True)
    rows, tasks = [], {}
    for step, model in challengers.items():
        said = posed(speaker(model, max_tokens), asks, texts, seed)
        tasks[step] = [[task for _, task in tried if isinstance(task, Question)] for tried in said]
    for reasoner, model in reasoners.items():
        engine = speaker(model, max_tokens)
        for step, by_document in tasks.items():
            replied = answered(engine, replies, by_document, seed)
            for i, (mine, groups) in enumerate(zip(by_document, replied, strict=True)):
                rates = [rate for rate in map(pass_rate, groups) if rate is not None]
                golds = [protocol.world.right(task.text, task.gold) for task in mine]
                if rates:
                    rows.append((step, reasoner, i, mean(rates), len(mine) / attempts, mean(golds)))
    columns = ["challenger", "reasoner", "document", "pass_rate", "valid", "gold_right"]
    return pd.DataFrame(rows, columns=columns).astype({"gold_right": float})
