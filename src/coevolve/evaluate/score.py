"""Scores a policy on the tiny world's held-out items: one row per item, exact verifier.

Knows roles and the oracle, not which engine answers.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from coevolve.evaluate.setups import vanilla
from coevolve.parse import tag
from coevolve.play import Engine, play
from coevolve.types import Role
from coevolve.worlds import tiny
from coevolve.worlds.tiny import Task


def read_answer(text: str) -> str | None:
    """The content of the one answer pair."""
    return tag(text, "answer")


def score(
    engine: Engine,
    solver: Role,
    tasks: Sequence[Task],
    *,
    read: Callable[[str], str | None] = read_answer,
    temperature: float = 0.0,
    key: tuple[int, ...] = (),
) -> list[dict[str, object]]:
    """Answer every task once and verify exactly; return one row per task (see record.SCORE_FIELDS)."""
    role = replace(solver, temperature=temperature)
    outcomes = play([vanilla(role, task.question, read) for task in tasks], engine, key)
    rows = []
    for item, (task, outcome) in enumerate(zip(tasks, outcomes, strict=True)):
        correct = tiny.right(task.question, outcome.facts["answer"])
        lured = outcome.facts["answer"] == task.misconception and not correct
        rows.append({"split": tiny.split(task.question), "family": task.family, "level": task.level, "item": item,
                     "question": task.question, "correct": int(correct), "misconception": int(lured),
                     **outcome.facts})  # fmt: skip
    return rows


def tally(rows: Sequence[dict[str, object]]) -> dict[str, int]:
    """Count right answers: {"k": right, "n": all}."""
    return {"k": sum(int(row["correct"]) for row in rows), "n": len(rows)}
