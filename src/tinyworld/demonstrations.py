"""Demonstrations of every role of all five papers in the tiny world, for the warm start.

Fills the shipped compact prompts; knows nothing of tokens.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

from coevolve.text import prompts
from coevolve.types import Role
from tinyworld import conversations, demonstrator, formats, tasks
from tinyworld.demonstrator import (
    Demonstrator,
    Example,
    draw_answer,
    draw_claim,
    draw_plan,
    draw_task,
    is_shown,
    write_solution,
    write_verdict,
)
from tinyworld.documents import document
from tinyworld.programs import verifier_of
from tinyworld.tasks import Task

MCQ_JSON = '{{"multiple_choice_question": "{}", "multiple_choice_correct": "{}"}}'
FREE_JSON = '{{"question": "{}", "answer": "{}", "answer_type": "{}"}}'
FORMAT_JSON = (
    '{{"suitable_for_mcq": {}, "suitable_for_free_form": {}, '
    '"best_answer_type": {}, "reason": "{}"}}'
)
# Of SPICE.
ANSWER_TYPES = (
    "Integer",
    "Float",
    "Expression",
    "String",
    "Boolean",
    "List",
)
CHOICE_RATE = 0.5  # of documents that allow multiple choice: found suitable for it
DECLINE_RATE = 0.03  # of free questions: declined for want of an answer type
WELL_FORMED_RATE = 0.6  # of questions to be judged
SAME_FAMILY_RATE = 0.7  # of questions asked after a reference
# Of plans to be judged: correct, of the misconception, of any family.
PLAN_WEIGHTS = (
    3,
    2,
    1,
)


# MAE


def _solver(rng: Demonstrator, template: str = "<answer>{}</answer>") -> Example:
    task = draw_task(rng, choice=True)
    return Example({"question": task.question}, write_solution(rng, task, template))


def _proposer(rng: Demonstrator) -> Example:
    task = draw_task(rng)
    return Example({}, _propose(rng, task))


def _proposer_reference(rng: Demonstrator) -> Example:
    reference = draw_task(rng)
    task = _draw_similar_task(rng, reference)
    return Example({"reference": reference.question}, _propose(rng, task))


def _propose(rng: Demonstrator, task: Task) -> str:
    question = task.question
    if rng.random() < demonstrator.ILL_FORMED_RATE:
        question = tasks.spoil(rng, question)
    return f"<question>{question}</question>"


def _draw_similar_task(rng: Demonstrator, reference: Task) -> Task:
    same_family = rng.random() < SAME_FAMILY_RATE
    families = (reference.family,) if same_family else tuple(tasks.FAMILIES)
    while True:
        task = tasks.draw(rng, rng.choice(families))
        if is_shown(rng, task):
            return task


def _judge_question(rng: Demonstrator) -> Example:
    question = draw_task(rng, choice=True).question
    is_well_formed = rng.random() < WELL_FORMED_RATE
    if not is_well_formed:
        question = tasks.spoil(rng, question)
    score = _write_score(rng, is_well_formed, demonstrator.QUESTION_JUDGE_ERROR)
    return Example({"question": question}, score)


def _write_score(rng: Demonstrator, is_good: bool, error_rate: float) -> str:
    is_error = rng.random() < error_rate
    scores = (
        demonstrator.LOW_SCORES if is_good == is_error else demonstrator.HIGH_SCORES
    )
    return f"<score>{rng.choice(scores)}</score>"


def _judge_answer(rng: Demonstrator) -> Example:
    task = draw_task(rng, choice=True)
    answer = draw_claim(rng, task)
    fields = {"question": task.question, "answer": answer}
    return Example(fields, write_verdict(rng, task, answer))


# SAGE


def _challenger(rng: Demonstrator) -> Example:
    reference = draw_task(rng)
    task = _draw_similar_task(rng, reference)
    reference_kind, reference_verifier = verifier_of(reference, reference.answer)
    kind, verifier = verifier_of(task, draw_answer(rng, task))
    fields = {
        "reference": reference.question,
        "type": reference_kind,
        "verifier": reference_verifier,
    }
    question = _propose(rng, task)
    tag = "answer" if kind == "math" else "tests"
    return Example(fields, f"{question}<type>{kind}</type><{tag}>{verifier}</{tag}>")


def _planner(rng: Demonstrator) -> Example:
    task = draw_task(rng, choice=True)
    return Example({"question": task.question}, f"<plan>{draw_plan(rng, task)}</plan>")


def _planned_solver(rng: Demonstrator) -> Example:
    task = draw_task(rng, choice=True)
    plan = draw_plan(rng, task)
    skill = rng.skill
    if skill is not demonstrator.PERFECT_SKILL:
        skill = demonstrator.SKILL_WITH_PLAN[plan == task.plan]
    fields = {"question": task.question, "plan": plan}
    return Example(fields, write_solution(rng, task, "<answer>{}</answer>", skill))


def _critic_plan(rng: Demonstrator) -> Example:
    task = draw_task(rng, choice=True)
    plans = [
        task.plan,
        demonstrator.MISCONCEPTION_PLANS[task.family],
        rng.choice(list(demonstrator.MISCONCEPTION_PLANS.values())),
    ]
    plan = rng.choices(plans, PLAN_WEIGHTS)[0]
    fields = {"question": task.question, "plan": plan}
    return Example(
        fields, _write_score(rng, plan == task.plan, demonstrator.PLAN_JUDGE_ERROR)
    )


# SPICE


def _allows_choice(task: Task) -> bool:
    return task.family in tasks.CHOICE_FAMILIES


def _format(rng: Demonstrator) -> Example:
    text, stated = document(rng)
    is_choice = rng.random() < CHOICE_RATE and any(map(_allows_choice, stated))
    if is_choice:
        completion = FORMAT_JSON.format("true", "false", "null", "names")
    else:
        answer_type = json.dumps(rng.choice(stated).answer_type)
        completion = FORMAT_JSON.format("false", "true", answer_type, "values")
    return Example({"document": text}, completion)


def _challenger_mcq(rng: Demonstrator) -> Example:
    suitable: list[Task] = []
    while not suitable:
        text, stated = document(rng)
        suitable = [task for task in stated if _allows_choice(task)]
    task = rng.choice(suitable)
    question = tasks.choices(rng, task)
    letter = tasks.read(question).answer
    thought = f"<think>{task.question}: {task.answer} {letter}){task.answer}</think>"
    return Example({"document": text}, thought + MCQ_JSON.format(question, letter))


def _challenger_free(rng: Demonstrator) -> Example:
    text, stated = document(rng)
    task = rng.choice(stated)
    if rng.random() < DECLINE_RATE:
        stated_types = {other.answer_type for other in stated}
        answer_type = rng.choice(
            [name for name in ANSWER_TYPES if name not in stated_types]
        )
        completion = FREE_JSON.format("", "", answer_type)
    else:
        answer_type = task.answer_type
        completion = FREE_JSON.format(task.question, task.answer, answer_type)
    return Example({"document": text, "answer_type": answer_type}, completion)


def _challenger_alone(rng: Demonstrator) -> Example:
    task = draw_task(rng)
    answer = draw_answer(rng, task)
    completion = FREE_JSON.format(task.question, answer, task.answer_type)
    return Example({"answer_type": task.answer_type}, completion)


# All roles


@dataclass(frozen=True)
class RoleDemonstration:
    """The weight of a role in the mix, the pattern of its replies, and how it is demonstrated."""

    weight: float
    pattern: str
    draw: Callable[[Demonstrator], Example]


_boxed_solver = partial(_solver, template="\\boxed{{{}}}")
ROLES: dict[str, RoleDemonstration] = {  # by paper/role
    "mae/solver": RoleDemonstration(14, formats.ANSWER, _solver),
    "mae/proposer": RoleDemonstration(2.5, formats.QUESTION, _proposer),
    "mae/proposer_reference": RoleDemonstration(
        3, formats.QUESTION, _proposer_reference
    ),
    "mae/judge_question": RoleDemonstration(4, formats.SCORE, _judge_question),
    "mae/judge_answer": RoleDemonstration(
        16, formats.THOUGHT + formats.SCORE, _judge_answer
    ),
    "sage/challenger": RoleDemonstration(3.5, formats.VERIFIED, _challenger),
    "sage/planner": RoleDemonstration(2.5, formats.PLAN, _planner),
    "sage/solver": RoleDemonstration(5, formats.ANSWER, _planned_solver),
    "sage/critic_plan": RoleDemonstration(3, formats.SCORE, _critic_plan),
    "comas/solution": RoleDemonstration(3, formats.BOXED, conversations.solution),
    "comas/evaluation": RoleDemonstration(
        5, formats.EVALUATION, conversations.evaluation
    ),
    "comas/scoring": RoleDemonstration(4, formats.SCORING, conversations.scoring),
    "comas/scoring_alone": RoleDemonstration(
        2, formats.SCORING, conversations.scoring_alone
    ),
    "comas/judgment": RoleDemonstration(2, formats.JUDGMENT, conversations.judgment),
    "conl/proposal": RoleDemonstration(3, formats.SOLUTION, conversations.proposal),
    "conl/review": RoleDemonstration(10, formats.REVIEW, conversations.review),
    "conl/revision": RoleDemonstration(5, formats.REVISION, conversations.revision),
    "conl/verdict": RoleDemonstration(10, formats.VERDICT, conversations.verdict),
    "conl/compress_solution": RoleDemonstration(
        0.5, formats.SOLUTION, conversations.compress_solution
    ),
    "conl/compress_critique": RoleDemonstration(
        0.5, formats.POINT, conversations.compress_critique
    ),
    "spice/reasoner": RoleDemonstration(4, formats.BOXED, _boxed_solver),
    "spice/format": RoleDemonstration(2, formats.SUITABLE, _format),
    "spice/challenger_mcq": RoleDemonstration(8, formats.MCQ, _challenger_mcq),
    "spice/challenger_free": RoleDemonstration(14, formats.FREE, _challenger_free),
    "spice/challenger_alone": RoleDemonstration(1.5, formats.FREE, _challenger_alone),
}
SOLVERS = (
    "mae/solver",
    "sage/solver",
    "comas/solution",
    "conl/proposal",
    "spice/reasoner",
)
PROPOSERS = ("mae/proposer", "mae/proposer_reference", "sage/challenger")
INVENTORS = (*PROPOSERS, "spice/challenger_mcq", "spice/challenger_alone")


class Demonstration(NamedTuple):
    """A demonstration as text: its paper/role, the prompt and the reply."""

    role: str
    prompt: str
    completion: str


@cache
def prompt_of(role: str, variant: str = "compact") -> Role:
    """Return the prompt of a paper/role of ROLES."""
    return prompts.load_role(*role.split("/"), variant)


def demonstrate(
    rng: Demonstrator, role: str | None = None, variant: str = "compact"
) -> Demonstration:
    """Draw a demonstration of a role (None: any of the mix) in a variant of the prompts."""
    if role is None:
        role = _draw_role(rng)
    rng.task = None
    fields, completion = ROLES[role].draw(rng)
    prompt = prompt_of(role, variant)(**fields).messages[0]["content"]
    return Demonstration(role, prompt, demonstrator.slip(rng, completion))


def _draw_role(rng: Demonstrator) -> str:
    weights = []
    for name, role in ROLES.items():
        weight = rng.role_weights.get(name, role.weight)
        weights.append(weight * (rng.favour if name in rng.favoured_roles else 1.0))
    return rng.choices(list(ROLES), weights)[0]


def well_formed(role: str, text: str) -> bool:
    """Whether a whole reply has the form of its role."""
    return re.fullmatch(ROLES[role].pattern, text) is not None
