"""Answers against gold answers: formulas, letters, spellings, numbers; hostile text; what a gold answer has to be."""

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from codesandbox import level
from coevolve import verify as package
from coevolve.verify import Verdict, maths, plain, valid, verify, verify_many

ROWS = [json.loads(line) for line in (Path(__file__).parents[1] / "data" / "hostile_strings.jsonl").open()]
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "sandbox.py"
BOMBS = runpy.run_path(str(BENCHMARK))["BOMBS"]
EQUIVALENT = [
    (row["id"], {"math_equiv": "math", "string_equiv": "exact"}[row["kind"]], json.loads(row["input"]), row["expected"])
    for row in ROWS
    if row["kind"] in ("math_equiv", "string_equiv")
]


def once(answer, gold):
    """The verdict on a formula, which has to come within 2.5 s whatever the answer is and however busy the machine."""
    level.formulas()  # the first servers start before any clock does
    start = time.monotonic()
    said = verify("math", answer, gold)
    assert time.monotonic() - start < 2.5, said
    return said


def judged(answer, gold):
    """The same, again where the machine had no time for it: that says nothing about the formula."""
    tries = (once(answer, gold) for _ in range(3))
    return next((said for said in tries if "starved" not in said.detail), None) or once(answer, gold)


@pytest.mark.parametrize(("name", "kind", "pair", "expected"), EQUIVALENT)
def test_hostile_pairs(name, kind, pair, expected):
    said = judged(pair["pred"], pair["gold"]) if kind == "math" else verify(kind, pair["pred"], pair["gold"])
    assert said.correct is expected, said


def test_there_are_hostile_pairs():
    assert len(EQUIVALENT) >= 15


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("1/2", "0.5", True),
        ("x^2-1", "(x-1)(x+1)", True),
        (r"2\sqrt{3}", r"\sqrt{12}", True),
        ("42", "042", True),
        (r"\frac{3}{4}", r"$\frac{6}{8}$", True),
        ("1,000", "1000", True),
        ("5", "x = 5", True),
        ("4", "2+2=4", True),
        (r"\{1,2,3\}", r"\{3,1,2\}", True),
        (r"42\%", "0.42", True),
        ("5", r"5\text{ cm}", True),
        ("even", "Even", True),
        ("0.1", "0.10", True),
        ("x=5", "5", True),
        (r"\frac{1}{3}", r"\dfrac{1}{3}", True),
        ("7", r"\boxed{7}", True),
        # what math-verify calls equal and is not
        ("42", "43=42", False),
        ("42", "42=43", False),
        ("42", r"42\%", False),
        ("42", "42%", False),
        ("0.000000001", "0.000000002", False),
        ("5 cm", "5 m", False),
        ("CAT", "ACT", False),
        ("10^{-9}", "0.000000002", False),
        # several answers, near misses, other digits
        ("42", "42 or 43", False),
        ("42", r"\boxed{41}\boxed{42}", False),
        ("42", "41, 42", False),
        ("42", "41.9999999", False),
        ("3.14159", r"\pi", False),
        ("0.0000001", "0", False),
        ("42", "\u0664\u0662", False),
        ("42", "\uff14\uff12", False),
        ("42", "4 2", False),
        ("(1,2)", "(2,1)", False),
        ("[1,2)", "(1,2]", False),
        ("42", "", False),
        ("5x", "5y", False),
    ],
)
def test_formulas(gold, answer, right):
    assert verify("math", answer, gold).correct is right


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb[:24])
def test_a_hostile_formula_is_wrong_in_time_and_the_next_one_is_judged(bomb):
    said = judged(bomb, "42")
    assert said.correct is False and said.verdict in ("timeout", "memory", "error", "wrong"), said
    assert judged("2x", "x+x").correct is True


@pytest.mark.parametrize("first", ["lost", "starved", "late"])
def test_a_process_that_hangs_without_computing_is_given_up_in_time(monkeypatch, first):
    real, asked = level.formulas(), []

    class Hanging:
        def run(self, job, *rest):
            asked.append(rest[2])
            if len(asked) == 1 and first != "late":
                time.sleep(0.5)
                return SimpleNamespace(why=first, frames=[])
            time.sleep(4)

    monkeypatch.setattr(level, "formulas", Hanging)
    assert once("x+x", "2x").correct is None
    assert len(asked) == 1 + (first != "late") and max(asked) < 2.5
    monkeypatch.setattr(level, "formulas", lambda: real)
    assert judged("x+x", "2x").correct is True


@pytest.mark.parametrize("sent", [signal.SIGSTOP, signal.SIGKILL])
def test_a_server_that_has_to_be_replaced_holds_nobody_up(monkeypatch, sent):
    monkeypatch.setattr(level, "_pools", {})
    level.formulas()
    (server,) = level.formulas().idle
    os.kill(server.process.pid, sent)
    said = [once("x+x", "2x").correct for _ in range(8)]
    assert None in said or sent == signal.SIGKILL, "the call that got it"
    assert said[-1] is True and False not in said
    level.close()


def test_a_comparison_that_got_no_processor_is_made_once_more(monkeypatch):
    real, asked = level.formulas(), []

    class Busy:
        def run(self, *job):
            asked.append(job)
            child = real.run(*job)
            child.why, child.frames = ("starved", []) if len(asked) == 1 else (child.why, child.frames)
            return child

    monkeypatch.setattr(level, "formulas", Busy)
    assert verify("math", "x+x", "2x").verdict == "pass" and len(asked) == 2


def test_a_formula_stopped_by_the_clock_alone_was_starved():
    child = level.formulas().run(["math", "2x", r"(1+\sqrt{2})^{100000}"], (), 60.0, 0.2, 900)
    assert child.why == "starved"


@pytest.mark.parametrize(
    "text",
    [
        "1" * 61,
        "(" * 25 + "1" + ")" * 25,
        "x+" * 300,
        "\\boxed{" * 20_000,
        "$" * 50_000,
        " " * 200_000,
        "\ud800",
        "\x00",
        "-" * 400 + "1",
        "__import__('os').system('touch /tmp/pwned_formula')",
    ],
)
def test_hostile_formulas_are_wrong(text):
    assert verify("math", text, "42").verdict in ("wrong", "timeout", "error")
    assert not Path("/tmp/pwned_formula").exists()


def test_a_long_answer_is_refused_without_a_process(monkeypatch):
    monkeypatch.setattr(maths.level, "formulas", lambda: pytest.fail("asked math-verify"))
    assert verify("math", "x+" * 257, "42").detail == "over 512 characters"
    assert verify("math", "7" * 61, "42").detail == "over 60 digits in a row"
    assert verify("math", "{" * 25 + "}" * 25, "42").detail == "nested over 24 deep"
    assert verify("math", "41", "42").verdict == "wrong"


@pytest.mark.parametrize("gold", ["", "x+" * 300, "9" * 61, "9^{9^9}", "\\"])
def test_a_gold_formula_that_cannot_be_read_leaves_the_answer_unscored(gold):
    assert verify("math", "42", gold).correct is None


def test_what_can_be_a_gold_answer():
    assert valid("math", "x^2") and valid("math", "-7") and valid("math", "prime") and valid("math", r"\boxed{3}")
    assert not valid("math", "") and not valid("math", "9" * 61) and not valid("math", "9^{9^9}")
    assert valid("code", "assert f(3) == 9") and not valid("code", "assert f(3) ==")
    assert valid("choice", "B") and not valid("exact", "") and not valid("exact", [""]) and not valid("exact", None)
    assert valid("exact", 0) and valid("alias", ["", "x"]) and valid("float", 0.0) and not valid("float", None)


def test_every_hostile_formula_gets_an_allowed_verdict_in_little_memory():
    done = subprocess.run([sys.executable, BENCHMARK, "formulas", "1"], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["not_allowed"] == [] and found["hostile"] >= 24
    assert 0 < found["honest_peak_mib"] <= found["hostile_peak_mib"] < 1024


def test_a_dead_server_of_formulas_is_not_the_models_fault(monkeypatch):
    monkeypatch.setattr(maths, "_run", lambda gold, answer, until: ("lost", {"guarded": None}))
    assert verify("math", "x+1", "1+x").correct is None


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        ("B", "B", True),
        ("b", "B", True),
        ("(B)", "B", True),
        ("B.", "B", True),
        (" b) ", "B", True),
        ("**B**", "B", True),
        (r"\text{B}", "B", True),
        ("$B$", "B", True),
        ("C", "B", False),
        ("B) Paris", "B", False),
        ("A or B", "B", False),
        ("AB", "B", False),
        ("", "B", False),
        ("A" * 10_000, "A", False),
        ("\u0412", "B", False),
        ("(B", "B", True),
    ],
)
def test_choices(answer, gold, right):
    assert verify("choice", answer, gold).correct is right


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        ("Paris", "paris", True),
        ("  New   York ", "new york", True),
        ("1,2 , 3", "1, 2, 3", True),
        ("yes.", "yes", True),
        ("'Yes'", "yes", True),
        ("Newton", ["Sir Isaac", "newton"], True),
        ("Isaac Newton", "Newton", False),
        ("ACT", "CAT", False),
        ("", "", False),
        ("", ["", "x"], False),
        ("caf\u00e9", "cafe\u0301", True),
        ("x" * 5000, "x" * 5000, False),
        ("Pa\u200bris", "Paris", False),
        ("no", ["yes", "maybe"], False),
    ],
)
def test_spellings(answer, gold, right):
    assert verify("exact", answer, gold).correct is right
    assert verify("alias", answer, gold) == verify("exact", answer, gold)


@pytest.mark.parametrize(
    ("answer", "gold", "tolerance", "right"),
    [
        ("3.14", "3.14", 1e-6, True),
        ("3.1400031", "3.14", 1e-6, True),
        ("3.1400032", "3.14", 1e-6, False),  # 3.14e-6
        ("0.0000009", "0", 1e-6, True),
        ("0.0000011", "0", 1e-6, False),
        ("1,234", 1234, 1e-6, True),
        ("12,34", 1234, 1e-6, False),
        ("1/3", "0.3333333", 1e-6, True),
        ("-5", "5", 1e-6, False),
        ("2e3", "2000", 0.0, True),
        ("105", "100", 0.05, True),
        ("106", "100", 0.05, False),
        ("nan", "1", 1e-6, False),
        ("inf", "1", 1e-6, False),
        ("1_0", "10", 1e-6, False),
        ("\u0667", "7", 1e-6, False),
        ("9" * 100_000, "9", 1e-6, False),
        ("1e999999999", "1", 1e-6, False),
        ("1/0", "1", 1e-6, False),
    ],
)
def test_numbers_with_a_tolerance(answer, gold, tolerance, right):
    assert verify("float", answer, gold, tolerance=tolerance).correct is right


def test_a_gold_that_is_no_number_leaves_the_answer_unscored():
    assert verify("float", "3", "three").correct is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("-0.5", -0.5),
        (".5", 0.5),
        ("5.", 5),
        ("1,234,567.5", 1234567.5),
        ("2E-2", 0.02),
        ("3/4", 0.75),
        (r"\frac{3}{4}", 0.75),
        (r"-\tfrac{3}{4}", -0.75),
        ("1,23", None),
        ("e5", None),
        (".", None),
        ("", None),
        ("1e1000", None),
        ("--1", None),
        ("1/0", None),
        ("0x10", None),
        ("1 2", None),
        ("9" * 61, None),
        ("+7", 7),
    ],
)
def test_plain_numbers(text, value):
    assert plain.rational(text) == (None if value is None else plain.Fraction(str(value)))


@pytest.mark.parametrize(
    ("kind", "answer", "gold", "right"),
    [
        ("math", 42, "42", True),
        ("math", "42", 42, True),
        ("math", 0.5, "1/2", True),
        ("math", 41, 42, False),
        ("float", 3.14, 3.14, True),
        ("float", 3, 3.0, True),
        ("float", 1e-9, "0", True),
        ("float", 3.15, 3.14, False),
        ("float", float("nan"), 1, False),
        ("code", 5, "assert f() == 5", False),
        ("exact", "5", 5, True),
        ("exact", 5, "5", True),
        ("exact", 5, [4, 5], True),
        ("exact", 5, (4, 6), False),
        ("exact", "5", {4, 5}, True),
        ("exact", True, "true", True),
        ("exact", 0, 0, True),
        ("alias", "6", 5, False),
        ("choice", "2", 2, False),
    ],
)
def test_what_is_no_text_is_compared_as_its_text(kind, answer, gold, right):
    assert verify(kind, answer, gold).correct is right


@pytest.mark.parametrize("kind", ["math", "float"])
def test_a_number_too_long_to_write_is_no_answer_and_no_gold(kind):
    assert verify(kind, 10**5000, 1).correct is False and verify(kind, 1, 10**5000).correct is None


@pytest.mark.parametrize("kind", package.KINDS)
def test_no_answer_is_wrong(kind):
    assert verify(kind, None, "x").verdict == "wrong"


def test_an_unknown_kind_is_the_users_error():
    with pytest.raises(ValueError, match="kind='latex': allowed is math, choice, exact, alias, float, code"):
        verify("latex", "1", "1")
    with pytest.raises(ValueError, match="kind='latex'"):
        valid("latex", "1")


def test_only_a_pass_is_correct_and_unscored_is_neither():
    assert Verdict("pass").correct is True and Verdict("unscored").correct is None
    assert [Verdict(name).correct for name in ("wrong", "error", "timeout", "memory", "output")] == [False] * 5


def test_many_come_back_in_order():
    items = [
        ("exact", "a", "a"),
        ("math", "x+x", "2x"),
        ("math", "9^{9^9}", "42"),
        ("choice", "A", "B"),
        ("code", "def f(x): return x", "assert f(1) == 1"),
        ("math", "x+x", "3x"),
        ("exact", None, "a"),
    ]
    assert [said.correct for said in verify_many(items)] == [True, True, False, False, True, False, False]
