"""What a world's oracle says of a reply, for readers of a transcript."""

from dataclasses import dataclass

from coevolve.methods.base import Method
from coevolve.runs.show import CORRECT, WRONG
from coevolve.text.parse import tag
from coevolve.training.controls.oracle_judge import has_judge
from coevolve.training.controls.rewards import question_in_prompt
from coevolve.types import Reply


@dataclass(frozen=True)
class Verdict:
    """Whether a reply is correct; as text with the right answer, where one is known."""

    is_correct: bool | None  # None: nobody can tell
    note: str

    @property
    def mark(self) -> str:
        """A tick, a cross or a question mark."""
        return {True: CORRECT, False: WRONG, None: "?"}[self.is_correct]


def verdict_on(method: Method, reply: Reply) -> Verdict | None:
    """Return the verdict on a reply that answers or asks a question; None for any other reply.

    A reply answers a question if its prompt holds one, asks no judge, and has an answer that the
    method can read. It asks one if it has a <question> pair.
    """
    question = question_in_prompt(reply)
    if question is not None and not has_judge([reply.turn.source]):
        answer = method.read_answer(reply.text)
        if answer is not None:
            return _verdict_on_answer(method, question, answer)
    proposed = tag(reply.text, "question")
    if question is None and proposed is not None:
        return _verdict_on_question(method, proposed)
    return None


def _verdict_on_answer(method: Method, question: str, answer: str) -> Verdict:
    is_correct = method.world.is_correct(question, answer)
    if is_correct is None:
        return Verdict(None, "no oracle can read the question")
    if is_correct:
        return Verdict(True, "right")
    right_answer = method.world.right_answer(question)
    note = "wrong" if right_answer is None else f"wrong, right is {right_answer}"
    return Verdict(False, note)


def _verdict_on_question(method: Method, question: str) -> Verdict | None:
    is_valid = method.world.valid(question)
    if is_valid is None:
        return None
    if not is_valid:
        return Verdict(False, "no well-formed question")
    note = f"level {method.world.level(question)}"
    right_answer = method.world.right_answer(question)
    if right_answer is not None:
        note += f", right answer {right_answer}"
    return Verdict(True, note)
