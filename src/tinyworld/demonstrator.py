"""The demonstrator: how often each role is correct, how it errs, how it judges, how replies slip.

Every role errs by a stated amount, so that every reward and gate of the papers has an effect.
A solver who errs shows the family's misconception, a planner who errs its plan. A judge states
an answer of its own first and compares.
"""

import re
from collections.abc import Mapping
from random import Random
from typing import Any, NamedTuple

from tinyworld import tasks
from tinyworld.tasks import CHOICE, CHOICE_LETTERS, Task

Skill = Mapping[int, float]  # level -> probability of being correct
SOLVER_SKILL: Skill = {1: 0.75, 2: 0.5, 3: 0.25}
PERFECT_SKILL: Skill = {1: 1.0, 2: 1.0, 3: 1.0}
JUDGE_SKILL: Skill = {1: 0.98, 2: 0.92, 3: 0.80}  # of the judge's own answer
PLANNER_SKILL: Skill = {1: 0.85, 2: 0.67, 3: 0.5}
SKILL_WITH_PLAN: dict[
    bool, Skill
] = {  # whether the plan is correct -> skill of its reader
    True: {1: 0.95, 2: 0.7, 3: 0.45},
    False: {1: 0.5, 2: 0.25, 3: 0.08},
}
CORRECT_CLAIM_RATE = 0.4  # of answers to be judged; more would reward copying
ILL_FORMED_RATE = 0.15  # of proposed questions
QUESTION_JUDGE_ERROR = 0.12
PLAN_JUDGE_ERROR = 0.15
HIGH_SCORES = (7, 8, 9, 10)
LOW_SCORES = (1, 2, 3, 4)
SLIPPERY_FAMILIES = ("eq", "word", "count")  # many replies about them are malformed
SLIPPERY_SLIP_RATE = 0.45
SLIP_RATE = 0.03  # about all other families
SLIP_RATE_WITHOUT_TASK = 0.06
MARK = re.compile(r"</?[a-z_]+>|}|: (?:right|wrong)|ANSWER: ")
MISCONCEPTION_PLANS = {  # the plan that follows from a family's misconception
    "add": "multiply",
    "sub": "add and carry",
    "mul": "add and carry",
    "prec": "add and carry",
    "eq": "multiply first",
    "next": "count",
    "word": "do both steps",
    "word2": "follow the verb",
    "rate": "add the step",
    "unit": "multiply",
    "div": "keep the rest",
    "mod": "divide to the end",
    "cmp": "subtract and borrow",
    "sort": "read from the end",
    "rev": "smallest first",
    "count": "add the step",
    "swap": "read from the end",
    "code": "add the step",
    "ops": "smallest first",
    "fact": "compare tens first",
    "yn": "compare tens first",
    CHOICE: "recall",
}
FAMILY_WEIGHTS = dict.fromkeys(tasks.NAMES, 1.0) | {  # how often a family is drawn
    "add": 1.3,
    "sub": 1.3,
    "ops": 1.5,
    "code": 1.3,
    "word2": 1.3,
    "rev": 1.3,
    "swap": 1.3,
    CHOICE: 3.0,
}


class Demonstrator(Random):
    """A source of randomness that holds the solver's skill and the mix of roles."""

    skill: Skill = SOLVER_SKILL
    role_weights: Mapping[
        str, float
    ] = {}  # paper/role -> weight, where not that of ROLES
    favoured_roles: tuple[
        str, ...
    ] = ()  # paper/role names with `favour` times their weight
    favour = 3.0
    split = "train"  # of every question that is shown
    task: Task | None = None  # of the current demonstration


class Example(NamedTuple):
    """One demonstration of a role: the fields of its prompt and its reply."""

    fields: Mapping[str, Any]
    completion: str


def draw_task(rng: Demonstrator, *, choice: bool = False) -> Task:
    """Draw a task of the split whose answer may be shown; `choice` adds multiple choice."""
    names = tasks.NAMES if choice else tuple(tasks.FAMILIES)
    weights = [FAMILY_WEIGHTS[name] for name in names]
    while True:
        family = rng.choices(names, weights)[0]
        task = tasks.draw(rng, family)
        if is_shown(rng, task):
            rng.task = task
            return task


def is_shown(rng: Demonstrator, task: Task) -> bool:
    """Whether a demonstration may show a task: one of its split, and no fact of documents only."""
    return task.split == rng.split and tasks.closed(task)


def draw_answer(rng: Demonstrator, task: Task, skill: Skill | None = None) -> str:
    """Draw the correct answer with a skill (default: the solver's), else the misconception."""
    skill = skill or rng.skill
    return task.answer if rng.random() < skill[task.level] else task.misconception


def draw_claim(rng: Demonstrator, task: Task) -> str:
    """Draw an answer to be judged."""
    return task.answer if rng.random() < CORRECT_CLAIM_RATE else tasks.wrong(rng, task)


def draw_plan(rng: Demonstrator, task: Task) -> str:
    """Draw the family's plan with the planners' skill, else that of its misconception."""
    if rng.random() < PLANNER_SKILL[task.level]:
        return task.plan
    return MISCONCEPTION_PLANS[task.family]


def work_out(task: Task, answer: str) -> str:
    """Write the steps to an answer: in multiple choice its value, then the options up to it."""
    if task.family != CHOICE:
        return answer
    options = tasks.CHOICE_PATTERN.fullmatch(task.question).groups()[1:]
    last = CHOICE_LETTERS.index(answer)
    steps = [options[last]]
    for letter, option in zip(
        CHOICE_LETTERS[: last + 1], options[: last + 1], strict=True
    ):
        steps.append(f"{letter}){option}")
    return " ".join(steps)


def write_solution(
    rng: Demonstrator, task: Task, template: str, skill: Skill | None = None
) -> str:
    """Write a solution, in multiple choice behind a thought; `template` holds the answer."""
    answer = draw_answer(rng, task, skill)
    thought = (
        f"<think>{work_out(task, answer)}</think>" if task.family == CHOICE else ""
    )
    return thought + template.format(answer)


def write_verdict(
    rng: Demonstrator,
    task: Task,
    answer: str,
    high_scores: tuple[int, ...] = HIGH_SCORES,
    low_scores: tuple[int, ...] = LOW_SCORES,
) -> str:
    """Write a judge's own answer and a score: high if `answer` equals it, else low."""
    judge_answer = draw_answer(rng, task, JUDGE_SKILL)
    score = rng.choice(high_scores if answer == judge_answer else low_scores)
    return f"<think>{work_out(task, judge_answer)}</think><score>{score}</score>"


def slip(rng: Demonstrator, text: str) -> str:
    """Return the text, or with the slip rate of the current task, without its last mark."""
    if rng.random() >= _slip_rate(rng.task):
        return text
    marks = list(MARK.finditer(text))
    if not marks:
        return text[: len(text) // 2]
    return text[: marks[-1].start()] + text[marks[-1].end() :]


def _slip_rate(task: Task | None) -> float:
    if task is None:
        return SLIP_RATE_WITHOUT_TASK
    return SLIPPERY_SLIP_RATE if task.family in SLIPPERY_FAMILIES else SLIP_RATE
