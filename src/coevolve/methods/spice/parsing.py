"""What SPICE's Challenger says (Figures 9 and 10) as a checked question, or the name of the rule that it breaks.

Every function is total and takes linear time; no text is evaluated. A question holds the gold answer; who may
see it is the method's business.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from coevolve.text.parse import BOX, boxed

ANSWER_TYPES = ("Integer", "Float", "Expression", "String", "Boolean", "List")
MCQ = "MCQ"
LETTERS = "ABCD"
BOOLEANS = ("true", "false")  # Figure 10; the tiny world says yes and no
WORDS = 3  # most words of a String answer
LONGEST = 512  # characters of an answer; a longer one is no short, checkable answer
FAULTS = ("json", "declined", "question", "answer", "type", "document", "leak", "options", "letter")
NUMBERS = {"Integer": re.compile(r"[+-]?[0-9]{1,60}"), "Float": re.compile(r"[+-]?[0-9]{1,60}(?:\.[0-9]{1,60})?")}
OPENING = re.compile(r'\{\s*"')
ATTEMPTS = 64  # places where an object may begin before the reply is given up
MARKER = re.compile(r"(?<![A-Za-z0-9])([A-Z])\)")
LINE = re.compile(r"^[ \t]*([A-Z])\)", re.MULTILINE)
INSIDE = re.compile(r"\([^()\n]*\)")  # P(A), f(a, B): the letter before their ")" begins no option
WORD = re.compile(r"\w+")
SOURCE = r"(?:text|document|passage|article|excerpt)"
DOCUMENT = re.compile(  # words that send a reader to a text that is not there; "the passage of a law" does not
    rf"\b(?:above|given|provided|following) {SOURCE}\b|\b(?:the|this|that) {SOURCE}\b"
    r"(?! (?:of|from|between|through|across|known|called|titled|entitled|signed|that)\b)"
    r"|\baccording to (?:the|this) (?:author|writer|narrator|source|paragraph|section)\b|\bparagraph [0-9]"
    r"|\bas (?:mentioned|stated|described|noted|discussed)(?=\s*(?:[,.;:?!)]|$|above|earlier|before|previously|here))"
    r"|\bbased on the analysis\b|\b(?:mentioned|described|stated|discussed) above\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Question:
    """A valid task: what the Reasoner reads, and the gold answer that only the verifier reads."""

    text: str
    gold: str
    kind: str  # one of ANSWER_TYPES, or MCQ


def _pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant)


def json_object(text: str) -> dict[str, object] | None:
    """Return the one JSON object that ends the text; anything may stand before it.

    None when there is none, when text or a second object follows, and for NaN, repeated keys, numbers of
    thousands of digits and nesting that cannot be read. Braces without a key (LaTeX has many) are ordinary text.
    """
    text, at = text.rstrip(), 0
    for _ in range(ATTEMPTS):
        start = OPENING.search(text, at)
        if start is None:
            return None
        try:
            found, end = DECODER.raw_decode(text, start.start())
            return found if end == len(text) else None
        except json.JSONDecodeError as error:
            at = max(error.pos, start.start() + 1)  # up to there it was one broken object: inside it is no reply
        except (ValueError, RecursionError):
            return None
    return None


def scalar(value: object) -> str | None:
    """Write a JSON string, number or boolean as text; None for a list, an object, null or a blank."""
    if isinstance(value, int):
        return str(value).lower()  # True and False are integers
    if isinstance(value, float):
        return f"{Decimal(repr(value)):f}"  # without an exponent
    return value.strip() or None if isinstance(value, str) else None


def fits(gold: str, kind: str, booleans: tuple[str, str] = BOOLEANS) -> bool:
    """Tell whether an answer has the form of its type (Figure 10, step 4) and can be given: "2 or 3" reads as none."""
    if len(gold) > LONGEST or "\n" in gold or boxed(f"{BOX}{gold}}}") is None:
        return False
    if kind in NUMBERS:
        return NUMBERS[kind].fullmatch(gold) is not None
    if kind == "Boolean":
        return gold in booleans
    return kind in ANSWER_TYPES and (kind != "String" or len(gold.split()) <= WORDS)


def gives_away(question: str, gold: str) -> bool:
    """Tell whether a question holds the words of its answer, in their order."""
    asked, words = WORD.findall(question.casefold()), WORD.findall(gold.casefold())
    return bool(words) and any(asked[i : i + len(words)] == words for i in range(len(asked) - len(words) + 1))


def read_free(text: str, kind: str, booleans: tuple[str, str] = BOOLEANS) -> Question | str:
    """Read a free-form task of the wanted answer type; return the fault's name (see FAULTS) if it is invalid."""
    reply, question, fault = _asked(text, "question", "answer")
    gold = scalar(reply.get("answer"))
    if fault:
        return fault
    if gold is None:
        return "answer"
    if reply.get("answer_type") != kind or not fits(gold, kind, booleans):
        return "type"
    if DOCUMENT.search(question):
        return "document"
    return "leak" if kind == "String" and gives_away(question, gold) else Question(question, gold, kind)


def _asked(text: str, asks: str, answers: str) -> tuple[dict[str, object], str, str]:
    """Return a task's JSON object, the question under the key `asks`, and the name of the fault of either, or ""."""
    reply = json_object(text)
    if reply is None or not {asks, answers} <= reply.keys():
        return {}, "", "json"
    question = reply[asks]
    if not isinstance(question, str):
        return reply, "", "question"
    return reply, question.strip(), "" if question.strip() else "declined"


def options(question: str) -> tuple[str, dict[str, str]] | None:
    """Split "stem A) .. B) .. C) .. D) .." into the stem and the options by letter; None for any other form.

    A letter before ")" is a mark at the start of a line, else outside of parentheses, else wherever it stands: the
    first of these readings that gives A to D counts.
    """
    marks = next((marks for marks in _readings(question) if "".join(mark[1] for mark in marks) == LETTERS), None)
    if marks is None:
        return None
    ends = [mark.start() for mark in marks[1:]] + [len(question)]
    parts = {mark[1]: question[mark.end() : end].strip() for mark, end in zip(marks, ends, strict=True)}
    stem = question[: marks[0].start()].strip()
    distinct = len({part.casefold() for part in parts.values()}) == len(LETTERS)
    return (stem, parts) if stem and distinct and all(parts.values()) else None


def stem(task: Question) -> str:
    """What a task asks: its text, without the options of a multiple-choice task."""
    parts = options(task.text) if task.kind == MCQ else None
    return task.text if parts is None else parts[0]


def _readings(question: str) -> Iterator[list[re.Match[str]]]:
    yield list(LINE.finditer(question))
    marks = list(MARKER.finditer(question))
    inside = {match.end() for match in INSIDE.finditer(question)}
    yield [mark for mark in marks if mark.end() not in inside]
    yield marks


def read_mcq(text: str) -> Question | str:
    """Read a multiple-choice task: four distinct options and the letter of one; else the fault's name."""
    reply, question, fault = _asked(text, "multiple_choice_question", "multiple_choice_correct")
    letter = reply.get("multiple_choice_correct")
    if fault:
        return fault
    if options(question) is None:
        return "options"
    if not isinstance(letter, str) or letter.strip() not in tuple(LETTERS):
        return "letter"
    return "document" if DOCUMENT.search(question) else Question(question, letter.strip(), MCQ)


def read_format(text: str) -> str | None:
    """Read a format selection (Figure 9): MCQ, or a free-form task's answer type, String where none is named.

    None if unreadable: exactly one of the two forms must be called suitable.
    """
    reply = json_object(text)
    if reply is None:
        return None
    mcq, free = reply.get("suitable_for_mcq"), reply.get("suitable_for_free_form")
    kind = reply.get("best_answer_type")
    if type(mcq) is not bool or type(free) is not bool or mcq == free or kind not in (None, *ANSWER_TYPES):
        return None
    return MCQ if mcq else kind or "String"
