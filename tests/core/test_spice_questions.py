"""SPICE's validity rules: what is a question, an answer of its type, an option, a choice of the form."""

import json
from itertools import permutations

import pytest
from core.conftest import HOSTILE, corpus
from hypothesis import given
from hypothesis import strategies as st

from coevolve.papers.spice.reading import (
    ANSWER_TYPES,
    FAULTS,
    Question,
    gives_away,
    json_object,
    options,
    read_format,
    read_free,
    read_mcq,
)
from coevolve.papers.spice.rewards import challenger_reward


def free(question: object = "How many moons has Mars?", answer: object = 2, kind: object = "Integer") -> str:
    return json.dumps({"question": question, "answer": answer, "answer_type": kind})


def mcq(question: object = "Which? A) 1 B) 2 C) 3 D) 4", letter: object = "B") -> str:
    return json.dumps({"multiple_choice_question": question, "multiple_choice_correct": letter})


def read(answer: object, kind: str) -> Question | str:
    return read_free(free(answer=answer, kind=kind), kind)


@pytest.mark.parametrize("entry", corpus("spice_freeform", "spice_mcq"))
def test_hostile_replies(entry: dict) -> None:
    text, expected = entry["input"], entry["expected"]
    kind = str((json_object(text) or {}).get("answer_type"))
    task = read_mcq(text) if entry["kind"] == "spice_mcq" else read_free(text, kind)
    if expected["valid"]:
        assert task.gold == str(expected["answer"])
    else:
        assert task in FAULTS and challenger_reward("variance", None) == expected["challenger_reward"]


OF_ITS_TYPE = [
    (42, "Integer", "42"), ("42", "Integer", "42"), (" -7 ", "Integer", "-7"), (3.14, "Float", "3.14"),
    ("0.50", "Float", "0.50"), (3, "Float", "3"), ("2*x + 5", "Expression", "2*x + 5"), ("Paris", "String", "Paris"),
    ("gradient descent step", "String", "gradient descent step"), (True, "Boolean", "true"), ("false", "Boolean", "false"),
    ("apple, banana", "List", "apple, banana"), (0.00005, "Float", "0.00005"), (1e16, "Float", "10000000000000000"),
    (-2.5e-7, "Float", "-0.00000025"), (0.1, "Float", "0.1"),
]  # fmt: skip
OF_ANOTHER = [
    (2.5, "Integer"), ("2.0", "Integer"), ("1/2", "Integer"), ("two", "Integer"), ("1-3", "Integer"), (True, "Integer"),
    ("٣", "Integer"), ("9" * 61, "Integer"), ("22/7", "Float"), ("pi", "Float"), ("1e5", "Float"), (False, "Float"),
    ("four words are many", "String"), ("yes", "Boolean"), ("True", "Boolean"), (1, "Boolean"), ("x" * 513, "Expression"),
    ("a\nb", "List"), (1e300, "Float"), (42.0, "Integer"),
]  # fmt: skip
NO_VALUE = [[42], {"value": 42}, None, "", "  ", [], ["a", "b"]]


def test_answers_have_the_type_that_was_asked_for() -> None:
    assert [read(answer, kind) for answer, kind, _ in OF_ITS_TYPE] == [
        Question("How many moons has Mars?", gold, kind) for _, kind, gold in OF_ITS_TYPE
    ]
    assert [case for case in OF_ANOTHER if read(*case) != "type"] == []
    assert [case for case in NO_VALUE if (read(case, "Integer"), read(case, "List")) != ("answer", "answer")] == []
    for kind in ANSWER_TYPES:
        wrong = [other for other in (*ANSWER_TYPES, "integer", "MCQ", None) if other != kind]
        assert {read_free(free(answer="1", kind=other), kind) for other in wrong} == {"type"}
    assert read_free('{"question": "Q?", "answer": 1}', "Integer") == "type"
    assert read_free(free(answer="yes", kind="Boolean"), "Boolean", ("yes", "no")).gold == "yes", (
        "the tiny world's words"
    )
    assert read_free(free(answer=True, kind="Boolean"), "Boolean", ("yes", "no")) == "type"


@pytest.mark.parametrize(
    ("question", "fault"),
    [
        ("", "declined"), ("  ", "declined"), (["Q1", "Q2"], "question"), (7, "question"), (None, "question"),
        ("According to the text, how many moons has Mars?", "document"), ("How many are in the document?", "document"),
        ("As mentioned, Mars has how many?", "document"), ("What does the passage state about Mars?", "document"),
        ("Based on the analysis, how many?", "document"), ("How many does this article count?", "document"),
        ("What does paragraph 2 say about Mars?", "document"), ("How many, according to the author?", "document"),
        ("How many moons are named above, as stated?", "document"), ("What is the main idea of the text?", "document"),
        ("How many moons does the above passage name?", "document"), ("How many, as described above?", "document"),
    ],
)  # fmt: skip
def test_a_question_that_cannot_stand_alone(question: object, fault: str) -> None:
    assert read_free(free(question), "Integer") == fault
    stem = f"{question} A) 1 B) 2 C) 3 D) 4" if fault == "document" else question
    assert read_mcq(mcq(stem)) == fault


STANDING_ALONE = [
    "Which documents of 1776 name Mars?", "How long is a text message?", "Has it?", "Which author lived in Kiel?",
    "In which year did the passage of the Stamp Act take place?", "Who wrote the text of the anthem?",
    "How long does the passage from Kiel to Oslo take?", "Which force acts as described by Newton's second law?",
    "How many signers did the document known as the Magna Carta have?", "Is 2 even, and 2 prime?",
]  # fmt: skip
LEAKS = {
    ("Newton wrote Principia. Who wrote it?", "newton"): True, ("Is Isaac  NEWTON known?", "Isaac Newton"): True,
    ("Who is Newtonian?", "Newton"): False, ("Newton and Isaac?", "Isaac Newton"): False, ("Which?", "?!"): False,
}  # fmt: skip


def test_words_that_only_look_like_the_document_and_answers_that_are_given_away() -> None:
    assert [
        question for question in STANDING_ALONE if not isinstance(read_free(free(question), "Integer"), Question)
    ] == []
    leaks = {(q, gold): read_free(free(q, gold, "String"), "String") == "leak" for q, gold in LEAKS}
    assert leaks == LEAKS == {(q, gold): gives_away(q, gold) for q, gold in LEAKS}


NO_OBJECT = [
    "", "no object", f"```json\n{free()}\n```", f"{free()} and more", free() * 2, f"{{{free()}}}", f"[{free()}]", "{}",
    '{"question": "Q?", "answer": NaN, "answer_type": "Float"}', '{"question": "Q?", "answer": Infinity}', free()[:-1],
    '{"question": "Q?"}', '{"question": "Q?", "question": "R?", "answer": 2, "answer_type": "Integer"}',
    "{'question': 'Q?'}", '{"question": "Q?", "answer": ' + "9" * 5000 + ', "answer_type": "Integer"}',
    '{"a": ' * 50_000, '{"question": ' + "[" * 100_000, '{"' * 50_000, '{"a":{}' * 20_000,
]  # fmt: skip


@pytest.mark.parametrize("text", NO_OBJECT, ids=range(len(NO_OBJECT)))
def test_a_reply_that_is_no_single_json_object(text: str) -> None:
    assert read_free(text, "Integer") == "json" == read_mcq(text) and read_format(text) is None


@pytest.mark.parametrize("thought", ["Let me think.\n", r"With \frac{1}{2} and the set {a, b}: {} ", '{"broken": } '])
def test_thinking_may_come_first(thought: str) -> None:
    assert read_free(f"{thought}{free()} \n", "Integer").gold == "2" and read_mcq(thought + mcq()).gold == "B"


@pytest.mark.parametrize("letters", list(permutations("ABCD")), ids="".join)
def test_options_in_every_order(letters: tuple[str, ...]) -> None:
    values = dict(zip("ABCD", ("1,391 km", "3,475 km", "34,750 km", "347,500 km"), strict=True))
    shown = [values[letter] for letter in letters]  # what each of A to D shows
    question = "How wide is the Moon?\n" + "\n".join(f"{at}) {value}" for at, value in zip("ABCD", shown, strict=True))
    right = "ABCD"[shown.index("3,475 km")]
    assert read_mcq(mcq(question, right)) == Question(question, right, "MCQ")
    assert options(question) == ("How wide is the Moon?", dict(zip("ABCD", shown, strict=True)))


NOT_FOUR = [
    "Which? A) 1 B) 2 C) 3", "Which? A) 1 B) 2 C) 3 D) 4 E) 5", "Which? A) 1 B) 2 D) 4 C) 3", "Which?",
    "Which? A) 1 B) 2 C) 2 D) 4", "Which? A) Yes B) no C) NO D) x", "Which? A) 1 B) C) 3 D) 4", "A) 1 B) 2 C) 3 D) 4",
    "Which? a) 1 b) 2 c) 3 d) 4", "Which? A) 1 A) 2 C) 3 D) 4", "A) " * 100_000, "(" * 100_000 + "A) 1", "(A" * 100_000,
]  # fmt: skip
STEMS = [
    "Two events have P(A) = 0.5 and P(A ∩ B) = 0.4: what is P(B|A)?", "Which algorithm sorts in O(N) time?",
    "How much is 20 degrees Celsius (C) in Kelvin (K)?",
]  # fmt: skip


def test_four_distinct_options_and_the_letter_of_one() -> None:
    assert [question[:50] for question in NOT_FOUR if read_mcq(mcq(question)) != "options"] == []
    assert {read_mcq(mcq(letter=letter)) for letter in ("B) 2", "E", "b", "", None, 2, ["B"], "AB")} == {"letter"}
    for question in ("Which? (A) 1 (B) 2 (C) 3 (D) 4", "Which?\nA) (0, 1] B) [0, 1) C) 1 D) 2"):
        assert read_mcq(mcq(question, "A")) == Question(question, "A", "MCQ")
    values = ["0.8", "vitamin (A) or (B)", "(0, 1)", "f(D)"]  # a letter in parentheses is no option
    for stem in STEMS:
        for between in (" ", "\n", "\n  "):
            question = stem + "".join(f"{between}{at}) {value}" for at, value in zip("ABCD", values, strict=True))
            assert options(question) == (stem, dict(zip("ABCD", values, strict=True)))
            assert read_mcq(mcq(question, "C")) == Question(question, "C", "MCQ")


def chosen(mcq: object, free: object, kind: object = None) -> tuple | None:
    choice = {"suitable_for_mcq": mcq, "suitable_for_free_form": free, "best_answer_type": kind, "reason": "x"}
    return read_format(json.dumps(choice))


def test_the_choice_of_a_form() -> None:
    assert chosen(True, False) == ("MCQ", None) == chosen(True, False, "Integer") and chosen(False, True) == (
        "free",
        None,
    )
    assert [chosen(False, True, kind) for kind in ANSWER_TYPES] == [("free", kind) for kind in ANSWER_TYPES]
    none = [(True, True), (False, False), (1, 0), ("true", False), (None, True), (False, True, "Number")]
    none += [(False, True, ["Integer"]), (True, False, 3)]
    assert {chosen(*values) for values in none} == {None}


@given(HOSTILE, st.sampled_from(ANSWER_TYPES))
def test_readers_are_total(text: str, kind: str) -> None:
    for said in (text, free(text, text, kind), mcq(text, text), free(answer=text, kind=kind)):
        assert isinstance(read_free(said, kind), Question) or read_free(said, kind) in FAULTS
        assert isinstance(read_mcq(said), Question) or read_mcq(said) in FAULTS
        read_format(said)
