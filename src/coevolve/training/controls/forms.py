"""The form that each prompt asks for, and whether a reply has it."""

from collections.abc import Callable

from coevolve.methods.base import Method
from coevolve.methods.format_reward import verifier_tag
from coevolve.text import parse
from coevolve.types import Reply, Turn

# Marks of a reply, by the source of its prompt: paper/prompt. A word in capitals is `ANSWER` or a
# form of `READERS`; any other word is a tag that must stand there once, around some text.
FORMS: dict[str, tuple[str, ...]] = {
    "mae/proposer": ("question",),
    "mae/proposer_reference": ("question",),
    "mae/solver": ("answer",),
    "mae/judge_question": ("score",),
    "mae/judge_answer": ("score",),
    "azr/proposer": ("question",),
    "sage/challenger": ("question", "type", "VERIFIER"),
    "sage/planner": ("plan",),
    "sage/solver": ("ANSWER",),
    "sage/solver_unplanned": ("ANSWER",),
    "sage/critic_question": ("score",),
    "sage/critic_plan": ("score",),
    "comas/solver": ("BOX",),
    "comas/solution": ("BOX",),
    "comas/scoring": ("score",),
    "comas/scoring_alone": ("score",),
    "comas/judgment": ("judgment",),
    "conl/plain": ("ANSWER LINE",),
    "conl/proposal": ("ANSWER LINE",),
    "conl/review": ("initial_ranking",),
    "conl/revision": ("revised_solution",),
    "conl/verdict": ("final_ranking",),
    "spice/reasoner": ("BOX",),
    "spice/reasoner_conversation": ("BOX",),
    "spice/format": ("OBJECT",),
    "spice/challenger_free": ("OBJECT",),
    "spice/challenger_alone": ("OBJECT",),
    "spice/challenger_mcq": ("OBJECT",),
}


def _last_object(text: str) -> str | None:
    """Return what begins at the last opening brace, if the text ends with a closing one."""
    start = text.rfind("{")
    body = text[start:].rstrip() if start >= 0 else ""
    return body if body.endswith("}") else None


def _verifier(text: str) -> str | None:
    """Return what checks the answers to a task of SAGE, in the tag that its type asks for."""
    kind = parse.tag(text, "type")
    tag = verifier_tag(kind) if kind else None
    return parse.tag(text, tag) if tag else None


ANSWER = "ANSWER"  # what the method reads as an answer
READERS: dict[str, Callable[[str], str | None]] = {
    "BOX": parse.boxed,
    "ANSWER LINE": parse.answer_line,
    "OBJECT": _last_object,
    "VERIFIER": _verifier,
}


def has_form(reply: Reply, method: Method) -> bool:
    """Whether a reply is finished and has the form that its prompt asks for.

    Of prompts without an entry in FORMS, such as a user's own, the one for test questions asks for
    an answer that the method can read; any other asks for some text.
    """
    turn = reply.turn
    if not reply.finished or not reply.text.strip():
        return False
    if turn.source in FORMS:
        marks = FORMS[turn.source]
        return all(_has_mark(reply.text, mark, method) for mark in marks)
    if is_test_prompt(turn, method):
        return method.read_answer(reply.text) is not None
    return True


def is_test_prompt(turn: Turn, method: Method) -> bool:
    """Whether a turn asks for an answer as test questions do."""
    answering = method.answering
    is_same_role = turn.role == answering.name
    return is_same_role and turn.fields.keys() == answering.fields


def _has_mark(text: str, mark: str, method: Method) -> bool:
    if mark == ANSWER:
        return method.read_answer(text) is not None
    if mark in READERS:
        return READERS[mark](text) is not None
    return parse.tag(text, mark) is not None
