"""The demonstrator: how often it is right, what it says instead, how it judges.

The solver is right with a probability that falls with the level and otherwise shows its family's misconception;
a judge states its own answer first and compares. Demonstrating truth before habits makes both learnable.
"""

from collections.abc import Mapping
from random import Random
from typing import Any

from tinyworld import tasks
from tinyworld.tasks import CHOICE, Task

HABITS = {1: 0.75, 2: 0.5, 3: 0.25}  # how often a demonstrated solution is right, by level
TRUTH = {1: 1.0, 2: 1.0, 3: 1.0}
JUDGE_SKILL = 0.95  # how often a judge's own answer is right
CLAIM_RIGHT = 0.4  # how often an answer to be judged is right; more would reward copying it unread
HEAVY = {"add": 1.3, "sub": 1.3, "ops": 1.5, "code": 1.3, "word2": 1.3, "rev": 1.3, "swap": 1.3, CHOICE: 2.0}


class Demonstrator(Random):
    """A source of randomness that also knows how often its solutions are right, and which roles it favours."""

    skill: Mapping[int, float] = HABITS
    favoured: tuple[str, ...] = ()  # paper/role names that come `favour` times as often
    favour = 3.0
    seasoned = False  # used to conversations: lists agent by agent before it ranks, has met wrong critiques


Pair = tuple[Mapping[str, Any], str]  # the prompt's fields and the completion


def pick(rng: Demonstrator, *, choice: bool = False) -> Task:
    """Draw a task whose answer the warm start may show; multiple choice only on demand."""
    names = tasks.NAMES if choice else tuple(tasks.FAMILIES)
    while True:
        task = tasks.draw(rng, rng.choices(names, [HEAVY.get(name, 1.0) for name in names])[0])
        if tasks.closed(task):
            return task


def say(rng: Demonstrator, task: Task, skill: float | None = None) -> str:
    """The demonstrator's own answer: right with its skill, else the misconception."""
    return task.answer if rng.random() < (rng.skill[task.level] if skill is None else skill) else task.misconception


def claim(rng: Demonstrator, task: Task) -> str:
    """Somebody's answer to be judged."""
    return task.answer if rng.random() < CLAIM_RIGHT else tasks.wrong(rng, task)


def solved(rng: Demonstrator, task: Task, form: str, skill: float | None = None) -> str:
    """A solution in the given form; multiple choice states the value before the letter."""
    answer = say(rng, task, skill)
    thought = ""
    if task.family == CHOICE:
        thought = f"<think>{tasks.CHOICE_PATTERN.fullmatch(task.question)['ABCD'.index(answer) + 2]}</think>"
    return thought + form.format(answer)


def judged(rng: Demonstrator, task: Task, shown: str, right: int = 9, wrong: int = 2) -> str:
    """A verdict on the shown answer: the judge states its own first and scores by comparing."""
    own = say(rng, task, JUDGE_SKILL)
    return f"<think>{own}</think><score>{right if shown == own else wrong}</score>"
