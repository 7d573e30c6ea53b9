"""SPICE's validity rules: questions, answers of each type, options, and choices of the form."""

from itertools import permutations

import pytest
from core.conftest import HOSTILE, free, mcq
from hypothesis import given
from hypothesis import strategies as st

from coevolve.methods.spice import parsing
from coevolve.methods.spice.parsing import (
    ANSWER_TYPES,
    FAULTS,
    Question,
    read_format,
    read_free,
    read_mcq,
)

YES_NO = ("yes", "no")
OPTIONS = {"A": "1,391 km", "B": "vitamin (A) or (B)", "C": "(0, 1)", "D": "f(D)"}
STEMS = [
    "How wide is the Moon?",
    "What is P(B|A) of P(A) = 0.5 and P(A ∩ B) = 0.4?",
    "What is 20 (C) in (K)?",
]


@pytest.mark.parametrize("kind", ANSWER_TYPES)
def test_an_answer_of_another_type_than_asked_for_is_a_fault(kind: str) -> None:
    for other in (*ANSWER_TYPES, "integer", "MCQ", None):
        if other != kind:
            assert read_free(free(answer="1", kind=other), kind) == "type"


def test_booleans_are_the_words_of_the_tiny_world() -> None:
    task = read_free(free(answer="yes", kind="Boolean"), "Boolean", YES_NO)
    assert task.gold == "yes"
    json_true = free(answer=True, kind="Boolean")
    assert read_free(json_true, "Boolean", YES_NO) == "type"


def test_an_answer_that_hedges_fits_no_type() -> None:
    hedged = free(answer="life or death", kind="String")
    assert read_free(hedged, "String") == "type"


def test_only_whole_words_give_an_answer_away() -> None:
    assert not parsing.gives_away("Who is Newtonian?", "Newton")
    assert parsing.gives_away("Is Isaac  NEWTON known?", "Isaac Newton")


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("order", list(permutations("ABCD")), ids="".join)
def test_options_in_every_order(order: tuple[str, ...], stem: str) -> None:
    shown = {}  # option by the letter that it is shown under
    for letter, original in zip("ABCD", order, strict=True):
        shown[letter] = OPTIONS[original]
    lines = [f"{letter}) {option}" for letter, option in shown.items()]
    question = "\n".join([stem, *lines])
    correct = "ABCD"[order.index("D")]
    assert read_mcq(mcq(question, correct)) == Question(question, correct, "MCQ")
    assert parsing.options(question) == (stem, shown)


@given(HOSTILE, st.sampled_from(ANSWER_TYPES))
def test_readers_are_total(text: str, kind: str) -> None:
    replies = [
        text,
        free(text, text, kind),
        mcq(text, text),
        free(answer=text, kind=kind),
    ]
    for reply in replies:
        for task in (read_free(reply, kind), read_mcq(reply)):
            assert isinstance(task, Question) or task in FAULTS
        read_format(reply)
