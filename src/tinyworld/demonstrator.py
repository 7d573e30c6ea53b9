"""The demonstrator: how often each role is right, what it says instead, how it judges, how its replies slip.

Every role errs by a stated amount, so that every reward and every gate of the papers has something to do. The solver is
right with a probability that falls with the level and otherwise shows its family's misconception; a judge states its
own answer first and compares; a planner who errs says the plan of the misconception.
"""

import re
from collections.abc import Mapping
from random import Random
from typing import Any

from tinyworld import tasks
from tinyworld.tasks import CHOICE, Task

Skill = Mapping[int, float]  # how often somebody is right, by level
HABITS: Skill = {1: 0.75, 2: 0.5, 3: 0.25}  # of solvers
TRUTH: Skill = {1: 1.0, 2: 1.0, 3: 1.0}
JUDGES: Skill = {1: 0.98, 2: 0.92, 3: 0.80}  # of a judge's own answer
PLANNERS: Skill = {1: 0.85, 2: 0.67, 3: 0.5}
PLANNED: dict[bool, Skill] = {  # of a solver who reads a right plan, or a wrong one
    True: {1: 0.95, 2: 0.7, 3: 0.45},
    False: {1: 0.5, 2: 0.25, 3: 0.08},
}
CLAIM_RIGHT = 0.4  # how often an answer to be judged is right; more would reward copying it unread
SPOILT = 0.15  # how often a proposed question is ill-formed
MISRATED, MISPLACED = 0.12, 0.15  # how often judges of questions, and of plans, take the wrong side
HIGH, LOW = (7, 8, 9, 10), (1, 2, 3, 4)  # scores of ten
SLIPPERY = ("eq", "word", "count")  # families about which many replies are malformed
SLIPS = {True: 0.45, False: 0.03, None: 0.06}  # how many: about these families, about others, about none
MISPLANS = {  # the plan that somebody with the family's misconception has
    "add": "multiply", "sub": "add and carry", "mul": "add and carry", "prec": "add and carry",
    "eq": "multiply first", "next": "count", "word": "do both steps", "word2": "follow the verb",
    "rate": "add the step", "unit": "multiply", "div": "keep the rest", "mod": "divide to the end",
    "cmp": "subtract and borrow", "sort": "read from the end", "rev": "smallest first", "count": "add the step",
    "swap": "read from the end", "code": "add the step", "ops": "smallest first", "fact": "compare tens first",
    "yn": "compare tens first", CHOICE: "recall",
}  # fmt: skip
HEAVY = {"add": 1.3, "sub": 1.3, "ops": 1.5, "code": 1.3, "word2": 1.3, "rev": 1.3, "swap": 1.3, CHOICE: 3.0}


class Demonstrator(Random):
    """A source of randomness that also knows how often its solutions are right, and which roles it shows how often."""

    skill: Skill = HABITS
    shares: Mapping[str, float] = {}  # of paper/role names in the mix, where they differ from those of ROLES
    favoured: tuple[str, ...] = ()  # paper/role names that come `favour` times as often
    favour = 3.0
    about: Task | None = None  # what the demonstration at hand is about


Pair = tuple[Mapping[str, Any], str]  # the prompt's fields and the completion


def pick(rng: Demonstrator, *, choice: bool = False) -> Task:
    """Draw a task whose answer the warm start may show; multiple choice only on demand."""
    names = tasks.NAMES if choice else tuple(tasks.FAMILIES)
    while True:
        task = tasks.draw(rng, rng.choices(names, [HEAVY.get(name, 1.0) for name in names])[0])
        if tasks.closed(task):
            rng.about = task
            return task


def say(rng: Demonstrator, task: Task, skill: Skill | None = None) -> str:
    """The demonstrator's own answer: right with its skill, else the misconception."""
    return task.answer if rng.random() < (skill or rng.skill)[task.level] else task.misconception


def claim(rng: Demonstrator, task: Task) -> str:
    """Somebody's answer to be judged."""
    return task.answer if rng.random() < CLAIM_RIGHT else tasks.wrong(rng, task)


def worked(task: Task, answer: str) -> str:
    """The way to an answer: in multiple choice the value and the options up to it, otherwise the answer alone."""
    if task.family != CHOICE:
        return answer
    options = tasks.CHOICE_PATTERN.fullmatch(task.question).groups()[1:]
    read = "ABCD"[: "ABCD".index(answer) + 1]
    marked = [f"{letter}){text}" for letter, text in zip(read, options, strict=False)]
    return " ".join([options[len(read) - 1], *marked])


def thought(task: Task, answer: str) -> str:
    """What is thought before an answer: nothing, but for multiple choice."""
    return f"<think>{worked(task, answer)}</think>" if task.family == CHOICE else ""


def solved(rng: Demonstrator, task: Task, form: str, skill: Skill | None = None) -> str:
    """A solution in the given form."""
    answer = say(rng, task, skill)
    return thought(task, answer) + form.format(answer)


def judged(
    rng: Demonstrator, task: Task, shown: str, right: tuple[int, ...] = HIGH, wrong: tuple[int, ...] = LOW
) -> str:
    """A verdict on the shown answer: the judge states its own first and scores by comparing."""
    own = say(rng, task, JUDGES)
    return f"<think>{worked(task, own)}</think><score>{rng.choice(right if shown == own else wrong)}</score>"


def plan(rng: Demonstrator, task: Task) -> str:
    """A plan: the family's own with the planners' skill, else that of its misconception."""
    return task.plan if rng.random() < PLANNERS[task.level] else MISPLANS[task.family]


def slip(rng: Demonstrator, text: str) -> str:
    """Mostly the text as it is; now and then, and often about slippery families, without its last mark."""
    if rng.random() >= SLIPS[rng.about.family in SLIPPERY if rng.about else None]:
        return text
    marks = list(re.finditer(r"</?[a-z_]+>|}|: (?:right|wrong)|ANSWER: ", text))
    return text[: marks[-1].start()] + text[marks[-1].end() :] if marks else text[: len(text) // 2]
