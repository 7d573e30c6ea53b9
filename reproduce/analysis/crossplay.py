"""Snapshots of a SPICE run against each other (Figure 3).

Every Reasoner answers every Challenger's tasks. Loads a model only when it has to generate.
Nothing is trained.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pandas as pd

from coevolve.methods.spice import SPICE
from coevolve.methods.spice.parsing import Question
from coevolve.methods.spice.records import AnsweredTask, Attempt
from coevolve.rollout.engine import Engine
from coevolve.rollout.scheduler import play
from coevolve.types import Dialogue, Episode, Outcome, T
from reproduce.analysis import standins, tables

if TYPE_CHECKING:
    from coevolve.training.config import Run

POSING = 1  # keys of the turns
ANSWERING = 2
ATTEMPT_COLUMNS = ["challenger", "document", "question", "gold"]
ANSWER_COLUMNS = [*ATTEMPT_COLUMNS, "reasoner", "task", "answer", "correct"]
Players = Mapping[int, str]  # step: the model or folder with the weights after it
# Challenger's step: tasks per document.
Tasks = Mapping[int, Sequence[Sequence[Question]]]
Row = dict[str, Any]


def players(run: Path, model: str) -> dict[int, str]:
    """Return the run's snapshots by step, and the starting model as step 0."""
    folders = {int(folder.name): folder for folder in run.glob("snapshots/*")}
    by_step = {0: model}
    for step in sorted(folders):
        by_step[step] = str(folders[step])
    return by_step


def speaker(model: str, max_tokens: int) -> Engine:
    """Return an engine for one model at the temperature of training (section 3.1)."""
    from coevolve.engines.loading import load_policy

    return load_policy(model).serve(1.0, max_tokens)


def documents(method: SPICE, count: int, seed: int = 0) -> list[str]:
    """Draw the documents that all pairs of players get."""
    rng = Random(f"documents {seed}")
    return [method.source.sample(rng) for _ in range(count)]


def alone(part: Dialogue[T]) -> Episode:
    """Play a part of an episode by itself; the trace is what the part returns."""
    result = yield from part
    return Outcome(trace=result)


def posed(
    engine: Engine, method: SPICE, texts: Sequence[str], seed: int = 0
) -> list[list[Attempt]]:
    """Return a Challenger's attempts on each document (line 6 of Algorithm 1)."""
    episodes = []
    for number, text in enumerate(texts):
        rng = Random(f"{seed}/{number}")
        episodes.append(alone(method.challenge(text, rng)))
    outcomes = play(episodes, engine, (seed, POSING))
    return [outcome.trace.attempts for outcome in outcomes]


def answered(
    engine: Engine,
    method: SPICE,
    tasks: Sequence[Sequence[Question]],
    seed: int = 0,
) -> list[list[AnsweredTask]]:
    """Return each document's tasks with a Reasoner's answers (line 9)."""
    episodes = [alone(method.answer(questions)) for questions in tasks]
    outcomes = play(episodes, engine, (seed, ANSWERING))
    return [outcome.trace for outcome in outcomes]


def every_pair(
    challengers: Players,
    reasoners: Players,
    method: SPICE,
    texts: Sequence[str],
    *,
    attempts: int,
    answers: int,
    max_tokens: int,
    seed: int = 0,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Play all pairs; return a frame with a row per attempt, and one with a row per answer.

    Columns of both: challenger, document, question, gold. An attempt that breaks a rule has no
    question. Attempts also have gold_correct (the oracle's verdict on the gold answer). Answers
    also have reasoner, task (its number within the document), answer (the text) and correct. A
    verdict is 1 or 0, or nan where there is none.
    """
    posing = method.replace(group=attempts, attempts=attempts)
    answering = method.replace(group=answers, reuse=True)
    tasks: dict[int, list[list[Question]]] = {}
    attempt_rows: list[Row] = []
    for step, model in challengers.items():
        attempts_by_document = posed(speaker(model, max_tokens), posing, texts, seed)
        tasks[step] = [valid_tasks(tried) for tried in attempts_by_document]
        for document, tried in enumerate(attempts_by_document):
            place = {"challenger": step, "document": document}
            attempt_rows += _attempt_rows(place, tried, method)
    answer_rows: list[Row] = []
    for step, model in reasoners.items():
        engine = speaker(model, max_tokens)
        answer_rows += _answer_rows(step, engine, answering, tasks, seed)
    attempt_frame = pd.DataFrame(
        attempt_rows, columns=[*ATTEMPT_COLUMNS, "gold_correct"]
    )
    answer_frame = pd.DataFrame(answer_rows, columns=ANSWER_COLUMNS)
    return attempt_frame.astype({"gold_correct": float}), answer_frame.astype(
        {"correct": float}
    )


def rates_at_first(
    run: "Run", folder: Path, seeds: Sequence[int], texts: Sequence[str], **sizes: int
) -> pd.DataFrame:
    """Return pass rates of all Challengers against the first Reasoner, and the other way round.

    A row per seed, pair and document, with the unit of replication. `sizes` are those of
    `every_pair`.
    """
    frames = []
    units = standins.units(folder, "spice", seeds)
    for seed, unit in zip(seeds, units, strict=True):
        home = folder / f"spice-s{seed}"
        untrained = standins.first_backbone(home)
        all_players = players(home, untrained)
        first_step = sorted(all_players)[1]  # step 0 is the untrained model
        first = {first_step: all_players[first_step]}
        for challengers, reasoners in ((all_players, first), (first, all_players)):
            _, answers = every_pair(
                challengers,
                reasoners,
                run.method,
                texts,
                seed=seed,
                **sizes,
            )
            frames.append(pass_rates(answers).assign(seed=seed, unit=unit))
    return pd.concat(frames, ignore_index=True).drop_duplicates()


def valid_tasks(attempts: Sequence[Attempt]) -> list[Question]:
    """Return the tasks of the attempts that break no rule."""
    return [attempt.task for attempt in attempts if attempt.task is not None]


def _attempt_rows(place: Row, attempts: Sequence[Attempt], method: SPICE) -> list[Row]:
    """Return a row per attempt on one document: valid ones first, then rows without a question."""
    tasks = valid_tasks(attempts)
    rows = []
    for task in tasks:
        row = {
            **place,
            "question": task.text,
            "gold": task.gold,
            "gold_correct": method.world.is_correct(task.text, task.gold),
        }
        rows.append(row)
    invalid = {**place, "question": None, "gold": None, "gold_correct": None}
    return rows + [invalid] * (len(attempts) - len(tasks))


def _answer_rows(
    reasoner: int, engine: Engine, method: SPICE, tasks: Tasks, seed: int
) -> list[Row]:
    """Return a row per answer of one Reasoner to all Challengers' tasks."""
    rows = []
    for challenger, tasks_by_document in tasks.items():
        answered_by_document = answered(engine, method, tasks_by_document, seed)
        for document, answered_tasks in enumerate(answered_by_document):
            for number, one in enumerate(answered_tasks):
                for answer in one.answers:
                    row = {
                        "challenger": challenger,
                        "document": document,
                        "question": one.task.text,
                        "gold": one.task.gold,
                        "reasoner": reasoner,
                        "task": number,
                        "answer": answer.reply.text,
                        "correct": answer.correct,
                    }
                    rows.append(row)
    return rows


def first_and_last(rates: pd.DataFrame, later: str) -> pd.DataFrame:
    """Return pass rates of one role's first and last snapshot, in percent, a row per unit.

    `later` is the role that trains on; the other one stays at its first snapshot. Only documents
    on which both have a scored task count. The columns are named by the steps.
    """
    fixed = "reasoner" if later == "challenger" else "challenger"
    steps = sorted(rates[later].unique())
    first = steps[1]  # step 0 is the untrained model
    last = steps[-1]
    fixed_at_first = rates[rates[fixed] == first]
    unit = tables.replicate(rates)
    by_step = fixed_at_first.pivot(
        index=list(dict.fromkeys([unit, "seed", "document"])),
        columns=later,
        values="pass_rate",
    )
    both = by_step[[first, last]].dropna()
    return 100 * both.groupby(unit).mean()


def pass_rates(answers: pd.DataFrame) -> pd.DataFrame:
    """Return the share of correct answers per challenger, reasoner and document.

    Tasks of a document have equal weight. Answers are from `every_pair`; columns `seed` and
    `unit` keep several runs apart.
    """
    keys = ("unit", "seed", "challenger", "reasoner", "document")
    pair = [name for name in keys if name in answers]
    by_task = answers.groupby([*pair, "task"])["correct"].mean().dropna()
    rates = by_task.groupby(pair).mean()
    return rates.rename("pass_rate").reset_index()
