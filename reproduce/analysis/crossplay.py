"""Snapshots of a SPICE run against each other: every Challenger's tasks, answered by every Reasoner (Figure 3).

Loads a model only when one has to speak. Nothing is trained here.
"""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pandas as pd

from coevolve.methods.spice import SPICE
from coevolve.methods.spice.method import Answer, Attempt
from coevolve.methods.spice.parsing import Question
from coevolve.rollout.engine import Engine
from coevolve.rollout.scheduler import play
from coevolve.types import Dialogue, Episode, Outcome, T

POSING, ANSWERING = 1, 2  # keys of the turns
ASKED, ANSWERED = ["challenger", "document", "question", "gold"], ["reasoner", "task", "answer", "right"]  # columns


def players(run: Path, model: str, steps: Sequence[int]) -> dict[int, str]:
    """Where the weights after each step are: the run's snapshots, and the start as step 0."""
    return {0: model} | {step: str(p) for step in steps if (p := Path(run) / "snapshots" / str(step)).is_dir()}


def speaker(model: str, max_tokens: int) -> Engine:
    """An engine that speaks with one model, as hot as in training (section 3.1)."""
    from coevolve.engines.loading import load_policy

    return load_policy(model).serve(1.0, max_tokens)


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
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Play all pairs; return what was asked, a row per attempt, and what was answered, a row per answer.

    Columns of both: challenger, document, question, gold. An attempt that breaks a rule has no question. Also, of an
    attempt: gold_right (the oracle's word); of an answer: reasoner, task (its number within the document), answer (the
    text) and right. A verdict is 1 or 0, or NaN where there is none.
    """
    asks = protocol.replace(group=attempts, attempts=attempts)
    replies = protocol.replace(group=answers, reuse=True)
    tasks, asking, answering = {}, [], []
    for step, model in challengers.items():
        said = posed(speaker(model, max_tokens), asks, texts, seed)
        tasks[step] = [[task for _, task in tried if isinstance(task, Question)] for tried in said]
        for i, (tried, mine) in enumerate(zip(said, tasks[step], strict=True)):
            asking += [(step, i, t.text, t.gold, protocol.world.is_correct(t.text, t.gold)) for t in mine]
            asking += [(step, i, None, None, None)] * (len(tried) - len(mine))
    for reasoner, model in reasoners.items():
        engine = speaker(model, max_tokens)
        for step, by_document in tasks.items():
            for i, groups in enumerate(answered(engine, replies, by_document, seed)):
                for j, (t, group) in enumerate(zip(by_document[i], groups, strict=True)):
                    answering += [(step, i, t.text, t.gold, reasoner, j, reply.text, right) for reply, right in group]
    asked = pd.DataFrame(asking, columns=[*ASKED, "gold_right"]).astype({"gold_right": float})
    return asked, pd.DataFrame(answering, columns=[*ASKED, *ANSWERED]).astype({"right": float})


def ends(rates: pd.DataFrame, later: str) -> pd.DataFrame:
    """Pass rates in percent, by seed, of the first and the last snapshot of one role; the other is kept at its first.

    Only documents count where both have a task that could be scored. EpisodeStepper are the columns' names.
    """
    first = sorted(rates[later].unique())[1]
    mine = rates[rates["reasoner" if later == "challenger" else "challenger"] == first]
    wide = mine.pivot(index=["seed", "document"], columns=later, values="pass_rate")
    return 100 * wide[[first, rates[later].max()]].dropna().groupby("seed").mean()


def pass_rates(answers: pd.DataFrame) -> pd.DataFrame:
    """The share of right answers, a row per challenger, reasoner and document; its tasks weigh alike.

    Answers come from `every_pair`, perhaps of several seeds in a column of that name.
    """
    pair = [name for name in ("seed", "challenger", "reasoner", "document") if name in answers]
    by_task = answers.groupby([*pair, "task"])["right"].mean().dropna()
    return by_task.groupby(pair).mean().rename("pass_rate").reset_index()
