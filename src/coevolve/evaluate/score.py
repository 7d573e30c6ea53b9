"""Scores policies on the tiny world's held-out items: one row per item, exact verifier.

Knows roles, set-ups and the oracle, not which engine answers.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from coevolve.evaluate import setups
from coevolve.evaluate.setups import read_answer
from coevolve.play import Engine, play
from coevolve.types import Role
from coevolve.worlds import tiny
from coevolve.worlds.tiny import Task

FACTS = ("answer", "finished", "tokens_in", "tokens_out")  # of the set-up's episode that a row keeps


def score(
    engine: Engine,
    solver: Role,
    tasks: Sequence[Task],
    *,
    read: Callable[[str], str | None] = read_answer,
    temperature: float | None = None,
    key: tuple[int, ...] = (),
    setup: str = "vanilla",
    policies: Sequence[str] = (),
    prompt: str = "compact",
    folder: str | None = None,
) -> list[dict[str, object]]:
    """Answer every task under a set-up and verify exactly; return one row per task (see record.SCORE_FIELDS).

    `temperature` None is the set-up's own (vanilla: greedy). With `policies`, item i is answered by policy i modulo
    their number; the others follow it, in turn, in set-ups of several agents. `prompt` and `folder` choose the prompts
    of later rounds. Raises ValueError for an unknown set-up and for a solver with other than one placeholder.
    """
    play_out = setups.find(setup)
    role = replace(solver, temperature=setups.TEMPERATURES[setup] if temperature is None else temperature)
    team = [replace(role, policy=name) for name in policies or (role.policy,)]
    seats = [team[start:] + team[:start] for start in range(len(team))]
    episodes = [play_out(seats[item % len(team)], task.question, read, prompt=prompt, folder=folder)
                for item, task in enumerate(tasks)]  # fmt: skip
    rows = []
    for item, (task, outcome) in enumerate(zip(tasks, play(episodes, engine, key), strict=True)):
        facts = {name: outcome.facts[name] for name in FACTS}
        correct = tiny.right(task.question, facts["answer"])
        lured = facts["answer"] == task.misconception and not correct
        rows.append({"setup": setup, "split": tiny.split(task.question), "family": task.family, "level": task.level,
                     "item": item, "question": task.question, "correct": int(correct), "misconception": int(lured),
                     **facts})  # fmt: skip
    return rows


def tally(rows: Sequence[dict[str, object]]) -> dict[str, int]:
    """Count right answers: {"k": right, "n": all}."""
    return {"k": sum(int(row["correct"]) for row in rows), "n": len(rows)}
