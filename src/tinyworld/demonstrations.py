"""Demonstrations: what every role of all five papers says in the tiny world, for the backbone's warm start.

Reads the shipped compact prompts, knows nothing of tokens.
"""

import json
import re
from collections.abc import Callable
from functools import cache, partial

from coevolve.text import prompts
from coevolve.types import Role
from tinyworld import conversations, demonstrator, formats, tasks
from tinyworld.demonstrator import Demonstrator, Pair, claim, judged, pick, plan, say, slip, solved
from tinyworld.documents import document
from tinyworld.programs import verifier_of
from tinyworld.tasks import Task

MCQ_JSON = '{{"multiple_choice_question": "{}", "multiple_choice_correct": "{}"}}'
FREE_JSON = '{{"question": "{}", "answer": "{}", "answer_type": "{}"}}'
FORMAT_JSON = '{{"suitable_for_mcq": {}, "suitable_for_free_form": {}, "best_answer_type": {}, "reason": "{}"}}'
CHOOSES = 0.5  # how often a document that allows multiple choice is found suitable for it
ANSWER_TYPES = ("Integer", "Float", "Expression", "String", "Boolean", "List")  # of SPICE


def _solver(rng: Demonstrator, form: str = "<answer>{}</answer>") -> Pair:
    task = pick(rng, choice=True)
    return {"question": task.question}, solved(rng, task, form)


def _planned(rng: Demonstrator) -> Pair:
    task = pick(rng, choice=True)
    read = plan(rng, task)
    skill = rng.skill if rng.skill is demonstrator.TRUTH else demonstrator.PLANNED[read == task.plan]
    return {"question": task.question, "plan": read}, solved(rng, task, "<answer>{}</answer>", skill)


def _propose(rng: Demonstrator, task: Task) -> str:
    question = task.question if rng.random() >= demonstrator.SPOILT else tasks.spoil(rng, task.question)
    return f"<question>{question}</question>"


def _proposer(rng: Demonstrator) -> Pair:
    return {}, _propose(rng, pick(rng))


def _alike(rng: Demonstrator, task: Task) -> Task:
    names = (task.family,) if rng.random() < 0.7 else tuple(tasks.FAMILIES)
    while True:
        other = tasks.draw(rng, rng.choice(names))
        if tasks.closed(other):
            return other


def _proposer_reference(rng: Demonstrator) -> Pair:
    task = pick(rng)
    return {"reference": task.question}, _propose(rng, _alike(rng, task))


def _judge_question(rng: Demonstrator) -> Pair:
    question = pick(rng, choice=True).question
    good = rng.random() < 0.6
    return {"question": question if good else tasks.spoil(rng, question)}, _rated(rng, good, demonstrator.MISRATED)


def _rated(rng: Demonstrator, good: bool, error: float) -> str:
    high = good if rng.random() >= error else not good
    return f"<score>{rng.choice(demonstrator.HIGH if high else demonstrator.LOW)}</score>"


def _judge_answer(rng: Demonstrator) -> Pair:
    task = pick(rng, choice=True)
    shown = claim(rng, task)
    return {"question": task.question, "answer": shown}, judged(rng, task, shown)


def _challenger(rng: Demonstrator) -> Pair:
    task = pick(rng)
    other = _alike(rng, task)
    kind, gold = verifier_of(task, task.answer)
    new_kind, new_gold = verifier_of(other, say(rng, other))
    tag = "answer" if new_kind == "math" else "tests"
    fields = {"reference": task.question, "type": kind, "verifier": gold}
    return fields, f"{_propose(rng, other)}<type>{new_kind}</type><{tag}>{new_gold}</{tag}>"


def _planner(rng: Demonstrator) -> Pair:
    task = pick(rng, choice=True)
    return {"question": task.question}, f"<plan>{plan(rng, task)}</plan>"


def _critic_plan(rng: Demonstrator) -> Pair:
    task = pick(rng, choice=True)
    plans = [task.plan, demonstrator.MISPLANS[task.family], rng.choice(list(demonstrator.MISPLANS.values()))]
    shown = rng.choices(plans, (3, 2, 1))[0]
    return {"question": task.question, "plan": shown}, _rated(rng, shown == task.plan, demonstrator.MISPLACED)


def _format(rng: Demonstrator) -> Pair:
    text, stated = document(rng)
    mcq = rng.random() < CHOOSES and any(task.family in tasks.CHOICE_FAMILIES for task in stated)
    kind, reason = ("null", "names") if mcq else (f'"{rng.choice(stated).answer_type}"', "values")
    return {"document": text}, FORMAT_JSON.format(json.dumps(mcq), json.dumps(not mcq), kind, reason)


def _challenger_free(rng: Demonstrator) -> Pair:
    text, stated = document(rng)
    task = rng.choice(stated)
    question, answer, kind = task.question, task.answer, task.answer_type
    if rng.random() < 0.03:  # a document without an answer of the wanted type: decline
        absent = [name for name in ANSWER_TYPES if name not in {other.answer_type for other in stated}]
        question, answer, kind = "", "", rng.choice(absent)
    return {"document": text, "answer_type": kind}, FREE_JSON.format(question, answer, kind)


def _challenger_alone(rng: Demonstrator) -> Pair:
    task = pick(rng)
    return {"answer_type": task.answer_type}, FREE_JSON.format(task.question, say(rng, task), task.answer_type)


def _challenger_mcq(rng: Demonstrator) -> Pair:
    fit: list[Task] = []
    while not fit:
        text, stated = document(rng)
        fit = [task for task in stated if task.family in tasks.CHOICE_FAMILIES]
    task = rng.choice(fit)
    question = tasks.choices(rng, task)
    letter = tasks.read(question).answer
    thought = f"<think>{task.question}: {task.answer} {letter}){task.answer}</think>"
    return {"document": text}, thought + MCQ_JSON.format(question, letter)


Show = Callable[[Demonstrator], Pair]
ROLES: dict[str, tuple[float, str, Show]] = {  # paper/role: share of the mix, form of a reply, demonstration
    "mae/solver": (14, formats.ANSWER, _solver),
    "mae/proposer": (2.5, formats.QUESTION, _proposer),
    "mae/proposer_reference": (3, formats.QUESTION, _proposer_reference),
    "mae/judge_question": (4, formats.SCORE, _judge_question),
    "mae/judge_answer": (16, formats.THOUGHT + formats.SCORE, _judge_answer),
    "sage/challenger": (3.5, formats.VERIFIED, _challenger),
    "sage/planner": (2.5, formats.PLAN, _planner),
    "sage/solver": (5, formats.ANSWER, _planned),
    "sage/critic_plan": (3, formats.SCORE, _critic_plan),
    "comas/solution": (3, formats.BOXED, conversations.solution),
    "comas/evaluation": (5, formats.EVALUATION, conversations.evaluate),
    "comas/scoring": (4, formats.SCORING, conversations.scoring),
    "comas/scoring_alone": (2, formats.SCORING, partial(conversations.scoring, alone=True)),
    "comas/judgment": (2, formats.JUDGMENT, partial(conversations.evaluate, ends_in_judgment=True)),
    "conl/proposal": (3, formats.SOLUTION, conversations.proposal),
    "conl/review": (10, formats.REVIEW, conversations.review),
    "conl/revision": (5, formats.REVISION, conversations.revision),
    "conl/verdict": (10, formats.VERDICT, conversations.verdict),
    "conl/compress_solution": (0.5, formats.SOLUTION, partial(conversations.kept, field="solution", form="ANSWER: {}")),
    "conl/compress_critique": (0.5, formats.POINT, partial(conversations.kept, field="critique", form="it is {}")),
    "spice/reasoner": (4, formats.BOXED, partial(_solver, form="\\boxed{{{}}}")),
    "spice/format": (2, formats.SUITABLE, _format),
    "spice/challenger_mcq": (8, formats.MCQ, _challenger_mcq),
    "spice/challenger_free": (14, formats.FREE, _challenger_free),
    "spice/challenger_alone": (1.5, formats.FREE, _challenger_alone),
}
SOLVERS = ("mae/solver", "sage/solver", "comas/solution", "conl/proposal", "spice/reasoner")
PROPOSERS = ("mae/proposer", "mae/proposer_reference", "sage/challenger")
INVENTORS = (*PROPOSERS, "spice/challenger_mcq", "spice/challenger_alone")


@cache
def prompt_of(role: str, variant: str = "compact") -> Role:
    """The prompt that a paper/role of ROLES is asked with."""
    return prompts.load_role(*role.split("/"), variant)


def demonstrate(rng: Demonstrator, role: str | None = None, variant: str = "compact") -> tuple[str, str, str]:
    """Draw one demonstration: (paper/role, text of the prompt of this variant, completion text)."""
    if role is None:
        mix = {name: share for name, (share, *_) in ROLES.items()} | rng.shares
        shares = [share * (rng.favour if name in rng.favoured else 1.0) for name, share in mix.items()]
        role = rng.choices(list(ROLES), shares)[0]
    rng.about = None
    fields, completion = ROLES[role][-1](rng)
    return role, prompt_of(role, variant)(**fields).messages[0]["content"], slip(rng, completion)


def well_formed(role: str, text: str) -> bool:
    """Whether the whole reply has the role's form."""
    return re.fullmatch(ROLES[role][1], text) is not None
