"""SPICE's validity rules: what is a question, an answer of its type, an option, a choice of the form."""

import json
from functools import partial
from itertools import permutations

import pytest
from core.conftest import HOSTILE, corpus, free, mcq
from hypothesis import given
from hypothesis import strategies as st

from coevolve.papers.spice import reading
from coevolve.papers.spice.reading import ANSWER_TYPES, FAULTS, Question, read_format, read_free, read_mcq
from coevolve.papers.spice.rewards import challenger_reward

READERS = {**{kind: partial(read_free, kind=kind) for kind in ANSWER_TYPES}, "MCQ": read_mcq}


@pytest.mark.parametrize("entry", corpus("spice_freeform", "spice_mcq"))
def test_hostile_replies(entry: dict) -> None:
    text, expected = entry["input"], entry["expected"]
    kind = str((reading.json_object(text) or {}).get("answer_type"))
    task = read_mcq(text) if entry["kind"] == "spice_mcq" else read_free(text, kind)
    if expected["valid"]:
        assert task.gold == str(expected["answer"])
    else:
        assert task in FAULTS and challenger_reward("variance", None) == expected["challenger_reward"]


@pytest.mark.parametrize("entry", corpus("spice_task"))
def test_every_rule_of_a_valid_task(entry: dict) -> None:
    """Expected is the name of the fault, or the question and the gold answer."""
    task, expected = READERS[entry["form"]](entry["input"]), entry["expected"]
    assert task == (expected if isinstance(expected, str) else Question(*expected, entry["form"]))
    assert expected != "json" or read_format(entry["input"]) is None


def test_the_type_that_was_asked_for_and_the_tiny_worlds_words() -> None:
    for kind in ANSWER_TYPES:
        wrong = [other for other in (*ANSWER_TYPES, "integer", "MCQ", None) if other != kind]
        assert {read_free(free(answer="1", kind=other), kind) for other in wrong} == {"type"}
    assert read_free(free(answer="yes", kind="Boolean"), "Boolean", ("yes", "no")).gold == "yes"
    assert read_free(free(answer=True, kind="Boolean"), "Boolean", ("yes", "no")) == "type"
    assert not reading.gives_away("Who is Newtonian?", "Newton")
    assert reading.gives_away("Is Isaac  NEWTON known?", "Isaac Newton")


@pytest.mark.parametrize("letters", list(permutations("ABCD")), ids="".join)
def test_options_in_every_order(letters: tuple[str, ...]) -> None:
    values = dict(zip("ABCD", ("1,391 km", "vitamin (A) or (B)", "(0, 1)", "f(D)"), strict=True))
    shown = [values[letter] for letter in letters]  # what each of A to D shows
    for stem in ("How wide is the Moon?", "What is P(B|A) of P(A) = 0.5 and P(A ∩ B) = 0.4?", "What is 20 (C) in (K)?"):
        question = f"{stem}\n" + "\n".join(f"{at}) {value}" for at, value in zip("ABCD", shown, strict=True))
        right = "ABCD"[shown.index("f(D)")]
        assert read_mcq(mcq(question, right)) == Question(question, right, "MCQ")
        assert reading.options(question) == (stem, dict(zip("ABCD", shown, strict=True)))


def chosen(mcq: object, free: object, kind: object = None) -> str | None:
    choice = {"suitable_for_mcq": mcq, "suitable_for_free_form": free, "best_answer_type": kind, "reason": "x"}
    return read_format(json.dumps(choice))


def test_the_choice_of_a_form() -> None:
    assert chosen(True, False) == chosen(True, False, "Integer") == "MCQ"
    assert [chosen(False, True, kind) for kind in (None, *ANSWER_TYPES)] == ["String", *ANSWER_TYPES]
    none = [(True, True), (False, False), (1, 0), ("true", False), (None, True), (False, True, "Number")]
    none += [(False, True, ["Integer"]), (True, False, 3)]
    assert {chosen(*values) for values in none} == {None}


@given(HOSTILE, st.sampled_from(ANSWER_TYPES))
def test_readers_are_total(text: str, kind: str) -> None:
    for said in (text, free(text, text, kind), mcq(text, text), free(answer=text, kind=kind)):
        assert isinstance(read_free(said, kind), Question) or read_free(said, kind) in FAULTS
        assert isinstance(read_mcq(said), Question) or read_mcq(said) in FAULTS
        read_format(said)
