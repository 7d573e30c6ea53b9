"""SPICE's validity rules: what is a question, an answer of its type, an option, a choice of the form."""

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


def test_the_type_that_was_asked_for_and_the_tiny_worlds_words() -> None:
    for kind in ANSWER_TYPES:
        wrong = [other for other in (*ANSWER_TYPES, "integer", "MCQ", None) if other != kind]
        assert {read_free(free(answer="1", kind=other), kind) for other in wrong} == {"type"}
    assert read_free(free(answer="yes", kind="Boolean"), "Boolean", ("yes", "no")).gold == "yes"
    assert read_free(free(answer=True, kind="Boolean"), "Boolean", ("yes", "no")) == "type"
    assert read_free(free(answer="life or death", kind="String"), "String") == "type", "no answer is read as that"
    assert not parsing.gives_away("Who is Newtonian?", "Newton")
    assert parsing.gives_away("Is Isaac  NEWTON known?", "Isaac Newton")


@pytest.mark.parametrize("letters", list(permutations("ABCD")), ids="".join)
def test_options_in_every_order(letters: tuple[str, ...]) -> None:
    values = dict(zip("ABCD", ("1,391 km", "vitamin (A) or (B)", "(0, 1)", "f(D)"), strict=True))
    shown = [values[letter] for letter in letters]  # what each of A to D shows
    for stem in ("How wide is the Moon?", "What is P(B|A) of P(A) = 0.5 and P(A ∩ B) = 0.4?", "What is 20 (C) in (K)?"):
        question = f"{stem}\n" + "\n".join(f"{at}) {value}" for at, value in zip("ABCD", shown, strict=True))
        right = "ABCD"[shown.index("f(D)")]
        assert read_mcq(mcq(question, right)) == Question(question, right, "MCQ")
        assert parsing.options(question) == (stem, dict(zip("ABCD", shown, strict=True)))


@given(HOSTILE, st.sampled_from(ANSWER_TYPES))
def test_readers_are_total(text: str, kind: str) -> None:
    for said in (text, free(text, text, kind), mcq(text, text), free(answer=text, kind=kind)):
        assert isinstance(read_free(said, kind), Question) or read_free(said, kind) in FAULTS
        assert isinstance(read_mcq(said), Question) or read_mcq(said) in FAULTS
        read_format(said)
