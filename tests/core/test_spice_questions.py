"""SPICE's validity rules, one test each, and its reward equations by hand."""

import json
import math
import random
import time
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevolve.papers.spice import reading as questions
from coevolve.papers.spice import rewards as spice
from coevolve.papers.spice.reading import (
    ANSWER_TYPES,
    FAULTS,
    Question,
    json_object,
    options,
    read_format,
    read_free,
    read_mcq,
)

CORPUS = [json.loads(line) for line in (Path(__file__).parents[1] / "data" / "hostile_strings.jsonl").open("rb")]


def free(question: object = "How many moons has Mars?", answer: object = 2, kind: object = "Integer") -> str:
    return json.dumps({"question": question, "answer": answer, "answer_type": kind})


def mcq(question: object = "Which? A) 1 B) 2 C) 3 D) 4", letter: object = "B") -> str:
    return json.dumps({"multiple_choice_question": question, "multiple_choice_correct": letter})


@pytest.mark.parametrize(
    "entry", [e for e in CORPUS if e["kind"] in ("spice_freeform", "spice_mcq")], ids=lambda entry: entry["id"]
)
def test_hostile_replies(entry: dict) -> None:
    text, start = entry["input"], time.perf_counter()
    reply = json_object(text) or {}
    task = read_mcq(text) if entry["kind"] == "spice_mcq" else read_free(text, str(reply.get("answer_type")))
    assert time.perf_counter() - start < 5, "not linear"
    if not entry["expected"]["valid"]:
        assert task in FAULTS
        assert spice.challenger_reward("variance", None) == entry["expected"]["challenger_reward"]
    else:
        assert task.gold == str(entry["expected"]["answer"])


@pytest.mark.parametrize(
    ("answer", "kind", "gold"),
    [
        (42, "Integer", "42"),
        ("42", "Integer", "42"),
        (" -7 ", "Integer", "-7"),
        (3.14, "Float", "3.14"),
        ("0.50", "Float", "0.50"),
        (3, "Float", "3"),
        ("2*x + 5", "Expression", "2*x + 5"),
        ("Paris", "String", "Paris"),
        ("gradient descent step", "String", "gradient descent step"),
        (True, "Boolean", "true"),
        ("false", "Boolean", "false"),
        ("apple, banana", "List", "apple, banana"),
        (0.00005, "Float", "0.00005"),
        (1e16, "Float", "10000000000000000"),
        (-2.5e-7, "Float", "-0.00000025"),
        (0.1, "Float", "0.1"),
    ],
)
def test_an_answer_of_each_type(answer: object, kind: str, gold: str) -> None:
    assert read_free(free(answer=answer, kind=kind), kind) == Question("How many moons has Mars?", gold, kind)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (2.5, "Integer"),
        ("2.0", "Integer"),
        ("1/2", "Integer"),
        ("two", "Integer"),
        ("1-3", "Integer"),
        (True, "Integer"),
        ("٣", "Integer"),
        ("9" * 61, "Integer"),
        ("22/7", "Float"),
        ("pi", "Float"),
        ("1e5", "Float"),
        (False, "Float"),
        ("four words are many", "String"),
        ("yes", "Boolean"),
        ("True", "Boolean"),
        (1, "Boolean"),
        ("x" * 513, "Expression"),
        ("a\nb", "List"),
        (1e300, "Float"),
        (42.0, "Integer"),
    ],
)
def test_an_answer_that_is_not_of_its_type(answer: object, kind: str) -> None:
    assert read_free(free(answer=answer, kind=kind), kind) == "type"


@pytest.mark.parametrize("answer", [[42], {"value": 42}, None, "", "  ", [], ["a", "b"]])
def test_an_answer_that_is_no_simple_value(answer: object) -> None:
    assert read_free(free(answer=answer), "Integer") == "answer"
    assert read_free(free(answer=answer, kind="List"), "List") == "answer"


def test_the_type_must_be_the_one_that_was_asked_for() -> None:
    for kind in ANSWER_TYPES:
        wrong = [other for other in (*ANSWER_TYPES, "integer", "MCQ", None) if other != kind]
        assert {read_free(free(answer="1", kind=other), kind) for other in wrong} == {"type"}
    assert read_free('{"question": "Q?", "answer": 1}', "Integer") == "type"


def test_the_tiny_world_says_yes_and_no() -> None:
    text = free(answer="yes", kind="Boolean")
    assert read_free(text, "Boolean") == "type"
    assert read_free(text, "Boolean", ("yes", "no")).gold == "yes"
    assert read_free(free(answer=True, kind="Boolean"), "Boolean", ("yes", "no")) == "type"


@pytest.mark.parametrize(
    ("question", "fault"),
    [
        ("", "declined"),
        ("  ", "declined"),
        (["Q1", "Q2"], "question"),
        (7, "question"),
        (None, "question"),
        ("According to the text, how many moons has Mars?", "document"),
        ("How many are in the document?", "document"),
        ("As mentioned, Mars has how many?", "document"),
        ("What does the passage state about Mars?", "document"),
        ("Based on the analysis, how many?", "document"),
        ("How many does this article count?", "document"),
        ("What does paragraph 2 say about Mars?", "document"),
        ("How many, according to the author?", "document"),
        ("How many moons are named above, as stated?", "document"),
        ("What is the main idea of the text?", "document"),
        ("How many moons does the above passage name?", "document"),
        ("How many, as described above?", "document"),
    ],
)
def test_a_question_that_cannot_stand_alone(question: object, fault: str) -> None:
    assert read_free(free(question), "Integer") == fault
    stem = f"{question} A) 1 B) 2 C) 3 D) 4" if isinstance(question, str) and question.strip() else question
    assert read_mcq(mcq(stem)) == fault


@pytest.mark.parametrize(
    "question",
    [
        "Which documents of 1776 name Mars?",
        "How long is a text message?",
        "Has it?",
        "In which year did the passage of the Stamp Act take place?",
        "How long does the passage from Kiel to Oslo take?",
        "Which force acts as described by Newton's second law?",
        "Who wrote the text of the anthem?",
        "How many signers did the document known as the Magna Carta have?",
        "Which author lived in Kiel?",
    ],
)
def test_words_that_only_look_like_the_document(question: str) -> None:
    assert isinstance(read_free(free(question), "Integer"), Question)


@pytest.mark.parametrize(
    ("question", "gold", "leaks"),
    [
        ("Newton wrote Principia. Who wrote it?", "newton", True),
        ("Is Isaac  NEWTON known?", "Isaac Newton", True),
        ("Who is Newtonian?", "Newton", False),
        ("Newton and Isaac?", "Isaac Newton", False),
        ("Which?", "?!", False),
    ],
)
def test_a_string_answer_may_not_stand_in_the_question(question: str, gold: str, leaks: bool) -> None:
    assert (read_free(free(question, gold, "String"), "String") == "leak") is leaks
    assert isinstance(read_free(free("Is 2 even, and 2 prime?", 2), "Integer"), Question), "strings only"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no object",
        "```json\n" + free() + "\n```",
        free() + " and more",
        free() + free(),
        "{" + free() + "}",
        '{"question": "Q?", "answer": NaN, "answer_type": "Float"}',
        "[" + free() + "]",
        '{"question": "Q?", "answer": Infinity, "answer_type": "Float"}',
        free()[:-1],
        "{}",
        '{"question": "Q?"}',
        '{"question": "Q?", "question": "R?", "answer": 2, "answer_type": "Integer"}',
        "{'question': 'Q?'}",
        '{"question": "Q?", "answer": ' + "9" * 5000 + ', "answer_type": "Integer"}',
        '{"a": ' * 50_000,
        '{"question": ' + "[" * 100_000,
        '{"' * 50_000,
        '{"a":{}' * 20_000,
    ],
    ids=range(19),
)
def test_a_reply_that_is_no_single_json_object(text: str) -> None:
    assert read_free(text, "Integer") == "json" == read_mcq(text)
    assert read_format(text) is None


@pytest.mark.parametrize("thought", ["Let me think.\n", r"With \frac{1}{2} and the set {a, b}: {} ", '{"broken": } '])
def test_thinking_may_come_first(thought: str) -> None:
    assert read_free(thought + free() + " \n", "Integer").gold == "2"
    assert read_mcq(thought + mcq()).gold == "B"


@pytest.mark.parametrize("letters", list(permutations("ABCD")), ids="".join)
def test_options_in_every_order(letters: tuple[str, ...]) -> None:
    values = dict(zip("ABCD", ("1,391 km", "3,475 km", "34,750 km", "347,500 km"), strict=True))
    shown = [values[letter] for letter in letters]  # what each of A to D shows
    question = "How wide is the Moon?\n" + "\n".join(f"{at}) {value}" for at, value in zip("ABCD", shown, strict=True))
    right = "ABCD"[shown.index("3,475 km")]
    assert read_mcq(mcq(question, right)) == Question(question, right, "MCQ")
    stem, parts = options(question)
    assert stem == "How wide is the Moon?" and parts[right] == "3,475 km" and list(parts.values()) == shown


@pytest.mark.parametrize(
    "question",
    [
        "Which? A) 1 B) 2 C) 3",
        "Which? A) 1 B) 2 C) 3 D) 4 E) 5",
        "Which? A) 1 B) 2 D) 4 C) 3",
        "Which?",
        "Which? A) 1 B) 2 C) 2 D) 4",
        "Which? A) Yes B) no C) NO D) x",
        "Which? A) 1 B) C) 3 D) 4",
        "A) 1 B) 2 C) 3 D) 4",
        "Which? a) 1 b) 2 c) 3 d) 4",
        "Which? A) 1 A) 2 C) 3 D) 4",
    ],
)
def test_four_distinct_options(question: str) -> None:
    assert read_mcq(mcq(question)) == "options"


@pytest.mark.parametrize(
    "stem",
    [
        "Two events have P(A) = 0.5 and P(A ∩ B) = 0.4: what is P(B|A)?",
        "Which algorithm sorts in O(N) time?",
        "How much is 20 degrees Celsius (C) in Kelvin (K)?",
    ],
)
@pytest.mark.parametrize("between", [" ", "\n", "\n  "])
def test_a_letter_in_parentheses_is_no_option(stem: str, between: str) -> None:
    values = ["0.8", "vitamin (A) or (B)", "(0, 1)", "f(D)"]
    question = stem + "".join(f"{between}{letter}) {value}" for letter, value in zip("ABCD", values, strict=True))
    assert options(question) == (stem, dict(zip("ABCD", values, strict=True)))
    assert read_mcq(mcq(question, "C")) == Question(question, "C", "MCQ")


@pytest.mark.parametrize("question", ["Which? (A) 1 (B) 2 (C) 3 (D) 4", "Which?\nA) (0, 1] B) [0, 1) C) 1 D) 2"])
def test_other_forms_of_options(question: str) -> None:
    assert read_mcq(mcq(question, "A")) == Question(question, "A", "MCQ")


def test_many_marks_take_linear_time() -> None:
    for text in ("A) " * 100_000, "(" * 100_000 + "A) 1", "(A" * 100_000, "\n" * 100_000 + "A)"):
        assert options(text) is None


@pytest.mark.parametrize("letter", ["B) 2", "E", "b", "", None, 2, ["B"], "AB"])
def test_the_letter_is_one_of_the_four(letter: object) -> None:
    assert read_mcq(mcq(letter=letter)) == "letter"


def chosen(mcq: object, free: object, kind: object = None) -> tuple | None:
    return read_format(
        json.dumps({"suitable_for_mcq": mcq, "suitable_for_free_form": free, "best_answer_type": kind, "reason": "x"})
    )


def test_the_choice_of_a_form() -> None:
    assert chosen(True, False) == ("MCQ", None) == chosen(True, False, "Integer")
    assert [chosen(False, True, kind) for kind in ANSWER_TYPES] == [("free", kind) for kind in ANSWER_TYPES]
    assert chosen(False, True) == ("free", None)


@pytest.mark.parametrize(
    "values",
    [
        (True, True),
        (False, False),
        (1, 0),
        ("true", False),
        (None, True),
        (False, True, "Number"),
        (False, True, ["Integer"]),
        (True, False, 3),
    ],
)
def test_a_choice_that_is_none(values: tuple) -> None:
    assert chosen(*values) is None


@given(st.text(), st.sampled_from(ANSWER_TYPES))
def test_readers_are_total(text: str, kind: str) -> None:
    for said in (text, free(text, text, kind), mcq(text, text), free(answer=text, kind=kind)):
        assert isinstance(read_free(said, kind), Question) or read_free(said, kind) in FAULTS
        assert isinstance(read_mcq(said), Question) or read_mcq(said) in FAULTS
        read_format(said), questions.gives_away(said, said)


def test_the_gaussian_by_hand() -> None:
    assert spice.gaussian(0.5) == 1.0
    # p = 1/4: variance 3/16, off by 1/16, squared 1/256, over 0.02: 0.1953125
    assert spice.gaussian(0.25) == spice.gaussian(0.75) == pytest.approx(math.exp(-0.1953125))
    # p = 3/8: variance 15/64, off by 1/64
    assert spice.gaussian(3 / 8) == pytest.approx(math.exp(-1 / 4096 / 0.02)) == pytest.approx(0.987867, abs=1e-6)
    assert (
        spice.gaussian(0.0)
        == spice.gaussian(1.0)
        == pytest.approx(math.exp(-3.125))
        == pytest.approx(0.043937, abs=1e-6)
    )
    assert spice.gaussian(0.5, optimum=0.16) == pytest.approx(math.exp(-(0.09**2) / 0.02))
    assert spice.gaussian(0.0, tau=0.1) == pytest.approx(math.exp(-0.3125))


def test_the_variance_is_the_populations() -> None:
    for hits in range(9):
        verdicts = [1] * hits + [0] * (8 - hits)
        by_hand = sum((v - hits / 8) ** 2 for v in verdicts) / 8  # and not over 7
        assert spice.variance(hits / 8) == pytest.approx(by_hand)
    assert max(range(9), key=lambda hits: spice.gaussian(hits / 8)) == 4


def test_the_other_rewards_by_hand() -> None:
    assert [spice.one_minus(p) for p in (0.0, 0.125, 0.5, 0.875, 1.0)] == [0.0, 0.875, 0.5, 0.125, 0.0]
    assert [spice.threshold(p) for p in (0.0, 0.125, 0.5, 0.875, 1.0)] == [0.0, 1.0, 1.0, 1.0, 0.0]
    assert [spice.uncertainty(p) for p in (0.0, 0.125, 0.5, 0.75, 1.0)] == [0.0, 0.25, 1.0, 0.5, 0.0]
    assert [spice.reasoner_reward(right) for right in (True, False)] == [1.0, 0.0]


def test_the_rewards_of_table_4_by_name() -> None:
    paid = {kind: spice.challenger_reward(kind, 0.25) for kind in spice.CHALLENGER}
    assert paid == {
        "variance": pytest.approx(math.exp(-0.1953125)),
        "absolute_zero": 0.75,
        "threshold": 1.0,
        "rzero": 0.5,
    }
    assert {spice.challenger_reward(kind, None) for kind in spice.CHALLENGER} == {-0.1}
    assert spice.challenger_reward("threshold", None, penalty=-1.0) == -1.0


def test_every_reward_lies_in_the_unit_interval_and_is_symmetric_but_one() -> None:
    rng = random.Random(0)
    for p in (rng.random() for _ in range(200)):
        for kind, reward in spice.CHALLENGER.items():
            assert 0 <= reward(p) <= 1
            if kind != "absolute_zero":
                assert reward(p) == pytest.approx(reward(1 - p))
