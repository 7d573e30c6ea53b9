"""Demonstrations: what every role of all five papers says in the tiny world, for the backbone's warm start.

Reads the shipped compact prompts, knows nothing of tokens.
"""

import json
from collections.abc import Callable
from functools import partial

from coevolve import prompts
from tinyworld import conversations
from tinyworld import tasks as tiny
from tinyworld.demonstrator import JUDGE_SKILL, Demonstrator, Pair, claim, judged, pick, say, solved
from tinyworld.programs import verifier_of
from tinyworld.tasks import Task

MCQ_JSON = '{{"multiple_choice_question": "{}", "multiple_choice_correct": "{}"}}'
FREE_JSON = '{{"question": "{}", "answer": "{}", "answer_type": "{}"}}'
FORMAT_JSON = '{{"suitable_for_mcq": {}, "suitable_for_free_form": {}, "best_answer_type": {}, "reason": "{}"}}'


def _solver(rng: Demonstrator, form: str = "<answer>{}</answer>") -> Pair:
    task = pick(rng)
    return {"question": task.question}, solved(rng, task, form)


def _planned(rng: Demonstrator) -> Pair:
    task = pick(rng)
    return {"question": task.question, "plan": task.plan}, solved(rng, task, "<answer>{}</answer>")


def _propose(rng: Demonstrator, task: Task) -> str:
    question = task.question if rng.random() < 0.92 else tiny.spoil(rng, task.question)
    return f"<question>{question}</question>"


def _proposer(rng: Demonstrator) -> Pair:
    return {}, _propose(rng, pick(rng, choice=False))


def _alike(rng: Demonstrator, task: Task) -> Task:
    names = (task.family,) if rng.random() < 0.7 else tuple(tiny.FAMILIES)
    while True:
        other = tiny.draw(rng, rng.choice(names))
        if tiny.closed(other):
            return other


def _proposer_reference(rng: Demonstrator) -> Pair:
    task = pick(rng, choice=False)
    return {"reference": task.question}, _propose(rng, _alike(rng, task))


def _judge_question(rng: Demonstrator) -> Pair:
    question = pick(rng).question
    good = rng.random() < 0.6
    shown = question if good else tiny.spoil(rng, question)
    return {"question": shown}, f"<score>{8 if good else 2}</score>"


def _judge_answer(rng: Demonstrator) -> Pair:
    task = pick(rng, choice=False)
    shown = claim(rng, task)
    return {"question": task.question, "answer": shown}, judged(rng, say(rng, task, JUDGE_SKILL), shown)


def _challenger(rng: Demonstrator) -> Pair:
    task = pick(rng, choice=False)
    other = _alike(rng, task)
    kind, gold = verifier_of(task, task.answer)
    new_kind, new_gold = verifier_of(other, say(rng, other))
    tag = "answer" if new_kind == "math" else "tests"
    fields = {"reference": task.question, "type": kind, "verifier": gold}
    return fields, f"{_propose(rng, other)}<type>{new_kind}</type><{tag}>{new_gold}</{tag}>"


def _planner(rng: Demonstrator) -> Pair:
    task = pick(rng)
    return {"question": task.question}, f"<plan>{task.plan}</plan>"


def _critic_plan(rng: Demonstrator) -> Pair:
    task, other = pick(rng), pick(rng)
    plan = task.plan if rng.random() < 0.5 else other.plan
    return {"question": task.question, "plan": plan}, f"<score>{8 if plan == task.plan else 2}</score>"


def _format(rng: Demonstrator) -> Pair:
    text, tasks = tiny.document(rng)
    mcq = all(task.answer_type in ("String", "Boolean") for task in tasks)
    kind = "null" if mcq else f'"{tasks[0].answer_type}"'
    reason = "names" if mcq else "values"
    return {"document": text}, FORMAT_JSON.format(json.dumps(mcq), json.dumps(not mcq), kind, reason)


def _challenger_free(rng: Demonstrator) -> Pair:
    text, tasks = tiny.document(rng)
    task = rng.choice(tasks)
    kind = task.answer_type
    if rng.random() < 0.03:  # a document without an answer of the wanted type: decline
        kind = rng.choice(
            [
                t
                for t in ("Integer", "Float", "Expression", "String", "Boolean", "List")
                if t not in {other.answer_type for other in tasks}
            ]
        )
        return {"document": text, "answer_type": kind}, FREE_JSON.format("", "", kind)
    return {"document": text, "answer_type": kind}, FREE_JSON.format(task.question, task.answer, kind)


def _challenger_alone(rng: Demonstrator) -> Pair:
    task = pick(rng, choice=False)
    return {"answer_type": task.answer_type}, FREE_JSON.format(task.question, say(rng, task), task.answer_type)


def _challenger_mcq(rng: Demonstrator) -> Pair:
    while True:
        text, tasks = tiny.document(rng)
        fit = [task for task in tasks if task.family in tiny.CHOICE_FAMILIES]
        if fit:
            task = rng.choice(fit)
            question = tiny.choices(rng, task)
            letter = tiny.read(question).answer
            return {"document": text}, f"<think>{task.answer}</think>" + MCQ_JSON.format(question, letter)


ROLES: dict[str, tuple[float, Callable[[Demonstrator], Pair]]] = {  # paper/role: (share of the mix, demonstrator)
    "mae/solver": (14, _solver),
    "mae/proposer": (2.5, _proposer),
    "mae/proposer_reference": (3, _proposer_reference),
    "mae/judge_question": (4, _judge_question),
    "mae/judge_answer": (16, _judge_answer),
    "sage/challenger": (3.5, _challenger),
    "sage/planner": (1, _planner),
    "sage/solver": (2, _planned),
    "sage/critic_plan": (1.5, _critic_plan),
    "comas/solution": (3, conversations.solution),
    "comas/evaluation": (5, conversations.evaluate),
    "comas/scoring": (4, conversations.scoring),
    "comas/scoring_alone": (2, partial(conversations.scoring, alone=True)),
    "comas/judgment": (2, partial(conversations.evaluate, ends_in_judgment=True)),
    "conl/proposal": (3, conversations.proposal),
    "conl/review": (5, conversations.review),
    "conl/revision": (3, conversations.revision),
    "conl/verdict": (4, conversations.verdict),
    "conl/compress_solution": (0.5, conversations.compress_solution),
    "conl/compress_critique": (0.5, conversations.compress_critique),
    "spice/reasoner": (4, partial(_solver, form="\\boxed{{{}}}")),
    "spice/format": (1, _format),
    "spice/challenger_mcq": (2, _challenger_mcq),
    "spice/challenger_free": (14, _challenger_free),
    "spice/challenger_alone": (1.5, _challenger_alone),
}
SOLVERS = ("mae/solver", "sage/solver", "comas/solution", "conl/proposal", "spice/reasoner")
INVENTORS = (
    "mae/proposer",
    "mae/proposer_reference",
    "sage/challenger",
    "spice/challenger_mcq",
    "spice/challenger_alone",
)
SEASONED = ("conl/review", "conl/revision", "conl/verdict")  # what the backbone for CoNL is shown most of
PROMPTS = {name: prompts.load(*name.split("/"), "compact") for name in ROLES}


def demonstrate(rng: Demonstrator, role: str | None = None) -> tuple[str, str, str]:
    """Draw one demonstration: (paper/role, prompt text, completion text)."""
    if role is None:
        shares = [share * (rng.favour if name in rng.favoured else 1.0) for name, (share, _) in ROLES.items()]
        role = rng.choices(list(ROLES), shares)[0]
    fields, completion = ROLES[role][1](rng)
    return role, PROMPTS[role](**fields).messages[0]["content"], completion
