"""Scores policies on held-out items, of the tiny world or published: one row per item, exact verifiers.

Knows roles, set-ups and the oracle, not which engine answers.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from coevolve import setups
from coevolve.driver import Engine, play
from coevolve.setups import read_answer
from coevolve.types import Role
from published.grading import grade_all
from published.rows import Item
from tinyworld import tasks as tiny
from tinyworld.tasks import Task

FACTS = ("answer", "finished", "tokens_in", "tokens_out")  # of the set-up's episode that a row keeps


def score(
    engine: Engine,
    solver: Role,
    tasks: Sequence[Task] | Sequence[Item],
    *,
    read: Callable[[str], str | None] = read_answer,
    temperature: float | None = None,
    key: tuple[int, ...] = (),
    setup: str = "vanilla",
    policies: Sequence[str] = (),
    prompt: str = "compact",
    folder: str | None = None,
    play: Callable = play,
) -> list[dict[str, object]]:
    """Answer every task under a set-up and verify exactly; return one row per task (see record.SCORE_FIELDS).

    `temperature` None is the set-up's own (vanilla: greedy). With `policies`, item i is answered by policy i modulo
    their number; the others follow it, in turn, in set-ups of several agents. `prompt` and `folder` choose the prompts
    of later rounds; `play` is what plays the episodes. What no verifier can say (a judge's items, see
    evaluate.judge) is None in `correct`. Raises ValueError for an unknown set-up and for a solver with other than one
    placeholder.
    """
    play_out = setups.find(setup)
    role = replace(solver, temperature=setups.TEMPERATURES[setup] if temperature is None else temperature)
    team = [replace(role, policy=name) for name in policies or (role.policy,)]
    seats = [team[start:] + team[:start] for start in range(len(team))]
    episodes = [
        play_out(_warmed(seats[item % len(team)], task, temperature), task.question, read, prompt=prompt, folder=folder)
        for item, task in enumerate(tasks)
    ]
    outcomes = play(episodes, engine, key)
    verdicts = _graded(tasks, [outcome.facts["answer"] for outcome in outcomes])
    rows = []
    for item, (task, outcome, correct) in enumerate(zip(tasks, outcomes, verdicts, strict=True)):
        facts = {name: outcome.facts[name] for name in FACTS}
        published = isinstance(task, Item)
        lured = not published and not correct and facts["answer"] == task.misconception
        rows.append(
            {
                "setup": setup,
                "family": task.family,
                "split": task.split if published else tiny.split(task.question),
                "level": task.level,
                "item": item,
                "question": task.question,
                "correct": None if correct is None else int(correct),
                "misconception": int(lured),
                **facts,
            }
        )
    return rows


def _warmed(agents: list[Role], task: Task | Item, told: float | None) -> list[Role]:
    """The agents at the temperature that the task's paper asks for, unless the caller said one."""
    heat = task.temperature if isinstance(task, Item) and told is None else None
    return agents if heat is None else [replace(agent, temperature=heat) for agent in agents]


def _graded(tasks: Sequence[Task | Item], answers: Sequence[str | None]) -> list[bool | None]:
    if any(isinstance(task, Item) for task in tasks):
        return grade_all(zip(tasks, answers, strict=True))
    return [tiny.right(task.question, answer) for task, answer in zip(tasks, answers, strict=True)]


def tally(rows: Sequence[dict[str, object]]) -> dict[str, int]:
    """Count right answers: {"k": right, "n": all that were scored}."""
    scored = [int(row["correct"]) for row in rows if row["correct"] is not None]
    return {"k": sum(scored), "n": len(scored)}
