"""Reads the Challenger's replies (Figures 9 and 10) into valid tasks, or names the broken rule.

Every function is total and takes linear time; no text is evaluated. A `Question` carries the gold
answer; the method decides who may see it.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from coevolve.text.parse import boxed, offers_alternatives

ANSWER_TYPES = ("Integer", "Float", "Expression", "String", "Boolean", "List")
MCQ = "MCQ"
LETTERS = "ABCD"
BOOLEANS = ("true", "false")  # Figure 10; the tiny world uses yes and no
MAX_STRING_WORDS = 3
MAX_ANSWER_CHARACTERS = 512  # a longer answer is not a short, checkable one
FAULTS = (
    "json",
    "declined",
    "question",
    "answer",
    "type",
    "document",
    "leak",
    "options",
    "letter",
)
NUMBERS = {
    "Integer": re.compile(r"[+-]?[0-9]{1,60}"),
    "Float": re.compile(r"[+-]?[0-9]{1,60}(?:\.[0-9]{1,60})?"),
}
OPENING = re.compile(r'\{\s*"')
MAX_OPENINGS = (
    64  # places where an object may begin before the reply counts as unreadable
)
OPTION_MARK = re.compile(r"(?<![A-Za-z0-9])([A-Z])\)")
OPTION_LINE = re.compile(r"^[ \t]*([A-Z])\)", re.MULTILINE)
# In P(A) or f(a, B) the letter before the closing parenthesis is not an option mark.
PARENTHESES = re.compile(r"\([^()\n]*\)")
WORD = re.compile(r"\w+")
TEXT_NOUN = r"(?:text|document|passage|article|excerpt)"
# Phrases that refer the Reasoner to a text that it cannot see. "The passage of a law" does not.
DOCUMENT_REFERENCE = re.compile(
    rf"\b(?:above|given|provided|following) {TEXT_NOUN}\b|\b(?:the|this|that) {TEXT_NOUN}\b"
    r"(?! (?:of|from|between|through|across|known|called|titled|entitled|signed|that)\b)"
    r"|\baccording to (?:the|this) (?:author|writer|narrator|source|paragraph|section)\b"
    r"|\bparagraph [0-9]"
    r"|\bas (?:mentioned|stated|described|noted|discussed)"
    r"(?=\s*(?:[,.;:?!)]|$|above|earlier|before|previously|here))"
    r"|\bbased on the analysis\b|\b(?:mentioned|described|stated|discussed) above\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Question:
    """A valid task: the text for the Reasoner, and the gold answer for the verifier only."""

    text: str
    gold: str
    kind: str  # one of ANSWER_TYPES, or MCQ


def _object_with_distinct_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a key occurs twice")
    return fields


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


DECODER = json.JSONDecoder(
    object_pairs_hook=_object_with_distinct_keys,
    parse_constant=_reject_constant,
)


def json_object(text: str) -> dict[str, object] | None:
    """Return the JSON object that ends the text; anything may precede it.

    None if there is no such object, if text or a second object follows it, and for NaN, repeated
    keys, numbers of thousands of digits and nesting too deep to read. Braces without a key, which
    LaTeX has many of, are ordinary text.
    """
    text = text.rstrip()
    position = 0
    for _ in range(MAX_OPENINGS):
        opening = OPENING.search(text, position)
        if opening is None:
            return None
        try:
            fields, end = DECODER.raw_decode(text, opening.start())
        except json.JSONDecodeError as error:
            # Up to the error it was one broken object, and an object inside it is not the reply.
            position = max(error.pos, opening.start() + 1)
        except (ValueError, RecursionError):
            return None
        else:
            return fields if end == len(text) else None
    return None


def scalar(value: object) -> str | None:
    """Write a JSON string, number or boolean as text.

    None for a list, an object, null and a blank string.
    """
    if isinstance(value, int):
        return str(value).lower()  # booleans are integers in Python
    if isinstance(value, float):
        return f"{Decimal(repr(value)):f}"  # without an exponent
    if isinstance(value, str):
        return value.strip() or None
    return None


def fits(gold: str, kind: str, booleans: tuple[str, str] = BOOLEANS) -> bool:
    """Return whether an answer has the form of its type (Figure 10, step 4).

    An answer that would not be read from a box, such as "2 or 3", fits no type.
    """
    if len(gold) > MAX_ANSWER_CHARACTERS or "\n" in gold:
        return False
    if boxed(f"\\boxed{{{gold}}}") is None or offers_alternatives(gold):
        return False
    if kind in NUMBERS:
        return NUMBERS[kind].fullmatch(gold) is not None
    if kind == "Boolean":
        return gold in booleans
    if kind == "String":
        return len(gold.split()) <= MAX_STRING_WORDS
    return kind in ANSWER_TYPES


def gives_away(question: str, gold: str) -> bool:
    """Return whether a question contains the words of its answer, in their order."""
    question_words = WORD.findall(question.casefold())
    gold_words = WORD.findall(gold.casefold())
    if not gold_words:
        return False
    count = len(gold_words)
    starts = range(len(question_words) - count + 1)
    return any(question_words[i : i + count] == gold_words for i in starts)


def read_free(
    text: str, kind: str, booleans: tuple[str, str] = BOOLEANS
) -> Question | str:
    """Read a free-form task of this answer type; return the name of the fault if it is invalid.

    The names are those of FAULTS.
    """
    fields = json_object(text) or {}
    fault = _question_fault(fields, "question", "answer")
    if fault is not None:
        return fault
    question = str(fields["question"]).strip()
    gold = scalar(fields["answer"])
    if gold is None:
        return "answer"
    if fields.get("answer_type") != kind or not fits(gold, kind, booleans):
        return "type"
    if DOCUMENT_REFERENCE.search(question):
        return "document"
    if kind == "String" and gives_away(question, gold):
        return "leak"
    return Question(question, gold, kind)


def read_mcq(text: str) -> Question | str:
    """Read a multiple-choice task: four distinct options and the letter of one.

    Return the name of the fault (see FAULTS) if it is invalid.
    """
    fields = json_object(text) or {}
    fault = _question_fault(
        fields, "multiple_choice_question", "multiple_choice_correct"
    )
    if fault is not None:
        return fault
    question = str(fields["multiple_choice_question"]).strip()
    letter = fields["multiple_choice_correct"]
    if options(question) is None:
        return "options"
    if not isinstance(letter, str) or letter.strip() not in tuple(LETTERS):
        return "letter"
    if DOCUMENT_REFERENCE.search(question):
        return "document"
    return Question(question, letter.strip(), MCQ)


def _question_fault(
    fields: dict[str, object], question_key: str, answer_key: str
) -> str | None:
    """Return the name of what is wrong with a task's question; None if nothing is."""
    if question_key not in fields or answer_key not in fields:
        return "json"
    question = fields[question_key]
    if not isinstance(question, str):
        return "question"
    if not question.strip():
        return "declined"
    return None


def options(question: str) -> tuple[str, dict[str, str]] | None:
    """Split "stem A) .. B) .. C) .. D) .." into the stem and the options by letter.

    None for any other form. A letter before ")" is an option mark at the start of a line, else
    outside of parentheses, else anywhere; the first of these readings that gives A to D counts.
    """
    for marks in _readings(question):
        letters = "".join(mark[1] for mark in marks)
        if letters == LETTERS:
            return _split_at(marks, question)
    return None


def _readings(question: str) -> Iterator[list[re.Match[str]]]:
    """Yield the option marks of a question, by stricter readings first."""
    yield list(OPTION_LINE.finditer(question))
    marks = list(OPTION_MARK.finditer(question))
    closings = {match.end() for match in PARENTHESES.finditer(question)}
    yield [mark for mark in marks if mark.end() not in closings]
    yield marks


def _split_at(
    marks: list[re.Match[str]], question: str
) -> tuple[str, dict[str, str]] | None:
    """Return stem and options; None unless there is a stem and all options differ and have text."""
    stem = question[: marks[0].start()].strip()
    option_ends = [mark.start() for mark in marks[1:]]
    option_ends.append(len(question))
    option_of = {}
    for mark, end in zip(marks, option_ends, strict=True):
        option_of[mark[1]] = question[mark.end() : end].strip()
    distinct = {option.casefold() for option in option_of.values()}
    if not stem or len(distinct) < len(LETTERS) or not all(distinct):
        return None
    return stem, option_of


def stem(task: Question) -> str:
    """Return a task's question without the options of a multiple-choice task."""
    split = options(task.text) if task.kind == MCQ else None
    if split is None:
        return task.text
    question_stem, _ = split
    return question_stem


def read_format(text: str) -> str | None:
    """Read a format selection (Figure 9): MCQ, or the answer type of a free-form task.

    The answer type is String if none is named. None if unreadable: exactly one of the two forms
    must be called suitable.
    """
    fields = json_object(text)
    if fields is None:
        return None
    mcq = fields.get("suitable_for_mcq")
    free_form = fields.get("suitable_for_free_form")
    if type(mcq) is not bool or type(free_form) is not bool or mcq == free_form:
        return None
    if mcq:
        return MCQ
    answer_type = fields.get("best_answer_type")
    if answer_type is not None and answer_type not in ANSWER_TYPES:
        return None
    return "String" if answer_type is None else str(answer_type)
