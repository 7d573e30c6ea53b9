"""Answers against gold answers: formulas, letters, spellings, numbers; hostile text; what a gold answer has to be."""

from pathlib import Path

import pytest
from data_files import tables

from benchmarks import attacks
from coevolve.text.verify import KINDS, Verdict, exact, math, valid, verify, verify_many

JUDGED = tables("answers")["judged"]
LONG = [  # kind, gold answer, and what is wrong: too many boxes or characters
    ("math", "42", "".join(rf"\boxed{{42.{0:0{n}}}}" for n in range(1, 10))),
    ("choice", "B", "B" * 10_000),
    ("exact", "x" * 5000, "x" * 5000),
]
JUDGED += [
    {"kind": kind, "gold": gold, "wrong": [answer]} for kind, gold, answer in LONG
]


@pytest.mark.parametrize(
    "row", JUDGED, ids=lambda row: f"{row['kind']} {row['gold']}"[:24]
)
def test_answers_that_are_right_and_wrong(row):
    kind, gold, right, wrong = (
        row["kind"],
        row["gold"],
        row.get("right", []),
        row.get("wrong", []),
    )
    assert [
        answer for answer in right if verify(kind, answer, gold).correct is not True
    ] == []
    assert [
        answer for answer in wrong if verify(kind, answer, gold).correct is not False
    ] == []


def test_a_tolerance_is_a_share_of_the_gold_number_and_words_have_none():
    assert [
        verify("float", answer, "100", tolerance=0.05).correct
        for answer in ("104", "106")
    ] == [True, False]
    assert verify("float", "3", "three").correct is None


BOMBS = [
    "(5^(5^(5^(5^5))-4)-5)/16",
    "9^{9^9}",
    "(10^{10})!",
    "42=9^{9^9}",
    r"(1+\sqrt{2})^{100000}",
]
BOMBS += [
    r"\int_{-\infty}^{\infty} e^{-x^{x}} dx",
    "x+" * 400,
    "(" * 25 + "1" + ")" * 25,
    "\\boxed{" * 20_000,
]
BOMBS += [
    " " * 200_000,
    "\ud800",
    "-" * 400 + "1",
    "__import__('os').system('touch /tmp/pwned_formula')",
]


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: repr(bomb[:24]))
def test_a_hostile_formula_is_wrong_and_the_next_one_is_judged(bomb):
    said = verify("math", bomb, "42")
    assert said.verdict in ("wrong", "timeout", "memory", "error"), said
    assert verify("math", "2x", "x+x").correct is True
    assert not Path("/tmp/pwned_formula").exists()


def test_no_attack_earns_anything_of_an_exact_verifier_but_for_a_number_in_prose(
    landlock,
):
    found = attacks.measured([*KINDS, "tests", "oracle"])
    earned = {
        (row["attack"], kind): row[kind]["earned"]
        for row in found["rows"]
        for kind in found["items"]
    }
    paid = {pair: value for pair, value in earned.items() if value}
    assert len(earned) == 60 and not found["payload_ran"]
    assert [paid.pop((attacks.CONTROL, kind)) for kind in found["items"]] == [1.0] * 6
    assert paid.keys() == {
        ("gold inside noise", "math"),
        ("gold and answer swapped", "math"),
    }


def test_what_needs_no_algebra_is_decided_without_a_process(monkeypatch):
    monkeypatch.setattr(
        math, "_guarded_equal", lambda: pytest.fail("asked math-verify")
    )
    assert verify("math", "x+" * 257, "42").detail == "over 512 characters"
    assert verify("math", "7" * 61, "42").detail == "over 60 digits in a row"
    assert verify("math", "{" * 25 + "}" * 25, "42").detail == "nested over 24 deep"
    assert verify("math", "41", "42").verdict == "wrong"


@pytest.mark.parametrize("gold", ["", "x+" * 300, "9" * 61, "9^{9^9}", "\\"])
def test_a_gold_formula_that_cannot_be_read_leaves_the_answer_unscored(gold):
    assert verify("math", "42", gold).correct is None


@pytest.mark.parametrize(
    ("why", "verdict"),
    [("lost", "unscored"), ("timeout", "timeout"), ("memory", "memory")],
)
def test_a_fault_of_the_machine_is_not_the_models(monkeypatch, why, verdict):
    from codesandbox.trusted import Answer

    monkeypatch.setattr(
        math,
        "_guarded_equal",
        lambda: lambda gold, answer: Answer(why=why) if answer else Answer(True),
    )
    assert verify("math", "x+1", "1+x").verdict == verdict


def test_what_can_be_a_gold_answer():
    assert (
        valid("math", "x^2")
        and valid("math", "-7")
        and valid("math", "prime")
        and valid("math", r"\boxed{3}")
    )
    assert (
        not valid("math", "")
        and not valid("math", "9" * 61)
        and not valid("math", "9^{9^9}")
    )
    assert valid("choice", "B") and not valid("exact", "")


def test_plain_numbers():
    read = {
        "-0.5": -0.5,
        ".5": 0.5,
        "5.": 5,
        "1,234,567.5": 1234567.5,
        "2E-2": 0.02,
        "3/4": 0.75,
        "+7": 7,
    }
    read |= {r"\frac{3}{4}": 0.75, r"-\tfrac{3}{4}": -0.75}
    assert {text: exact.rational(text) for text in read} == {
        text: exact.Fraction(str(v)) for text, v in read.items()
    }
    for text in (
        "1,23",
        "e5",
        ".",
        "",
        "1e1000",
        "--1",
        "1/0",
        "0x10",
        "1 2",
        "9" * 61,
    ):
        assert exact.rational(text) is None


def test_no_answer_is_wrong_and_an_unknown_kind_the_users_error():
    assert [verify(kind, None, "x").verdict for kind in KINDS] == ["wrong"] * 4
    for ask in (lambda: verify("latex", "1", "1"), lambda: valid("latex", "1")):
        with pytest.raises(
            ValueError,
            match="kind must be one of math, choice, exact, float, got 'latex'",
        ):
            ask()


def test_only_a_pass_is_correct_and_unscored_is_neither():
    names = ("pass", "unscored", "wrong", "error", "timeout", "memory", "output")
    assert [Verdict(name).correct for name in names] == [True, None] + [False] * 5


def test_many_come_back_in_order():
    items = [
        ("exact", "a", "a"),
        ("math", "x+x", "2x"),
        ("math", "9^{9^9}", "42"),
        ("choice", "A", "B"),
    ]
    items += [("math", "x+x", "3x"), ("exact", None, "a")]
    assert [said.correct for said in verify_many(items)] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]
