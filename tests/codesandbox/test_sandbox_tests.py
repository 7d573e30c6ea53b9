"""Tests that may be a model's own: their verdicts, and what crosses between them and the program."""

import pytest
from data_files import tables

from codesandbox import run_calls, run_tests, texts, valid_tests

CASES = tables("sandbox")
pytestmark = pytest.mark.usefixtures("landlock")


def listed(table: str) -> list[tuple[str, str]]:
    """Texts of a table, each with its verdict."""
    return [(text, verdict) for verdict, texts in CASES[table].items() for text in texts]


ENDLESS = [("(" * 50_000, "unscored"), ("-" * 20_000 + "f(1)", "unscored")]


@pytest.mark.parametrize(("tests", "verdict"), listed("tests") + ENDLESS)
def test_tests(tests, verdict):
    said = run_tests(CASES["SQUARE"], tests, cpu_seconds=0.5, wall_seconds=2.0, memory_mb=256)
    assert said.verdict == verdict, said


@pytest.mark.parametrize(("program", "verdict"), listed("wrong"))
def test_a_wrong_program_against_tests_that_run(program, verdict):
    tests = "for i in range(1, 4):\n    assert f(i) == i * i"
    assert run_tests(program, tests, cpu_seconds=0.5, wall_seconds=2.0).verdict == verdict


@pytest.mark.parametrize("program", CASES["pretenders"])
def test_no_program_can_call_itself_unscored(program):
    tests = "import time\ntime.sleep(0.2)\nfor i in range(1, 4):\n    assert f(i) == i * i"
    limits = {"cpu_seconds": 0.3, "wall_seconds": 1.0}
    assert run_tests(CASES["SEND"] + program, tests, **limits).correct is False
    assert run_calls(CASES["SEND"] + program, "f", [(1,)], [1], **limits).correct is False


def test_the_tests_are_not_in_the_candidates_memory():
    tests = "expected = 'SECRET-OF-TESTS'\nfor i in [1]:\n    assert f(i) is False"
    assert run_tests(CASES["SEARCH"], tests).verdict == "pass"


def test_valid_tests_fail_where_a_function_returns_nothing():
    valid = "assert f(3) == 9", "assert len(f(3)) == 2"
    others = "f(3)", "assert f(3) ==", "", "assert False"
    assert [tests for tests in (*valid, *others) if valid_tests(tests)] == [*valid]


def test_an_entry_is_the_only_name_that_asks_the_candidate():
    assert run_tests(CASES["SQUARE"], "g = f\nassert g(2) == 4", entry="f").verdict == "pass"
    assert run_tests(CASES["SQUARE"], "assert h(f(2)) == 4", entry="f").verdict == "unscored"  # h is nobody's


def test_tests_are_read_here_without_being_run():
    assert texts.literal_asserts("assert f(1, 'a') == [2]\nassert g() == -3") == [("f", (1, "a"), [2]), ("g", (), -3)]
    others = "assert f(1) == x", "assert f(x=1) == 2", "assert f(1) != 2", "x = 1", "assert f(*[1]) == 2", "assert f(1)"
    for text in others:
        assert texts.literal_asserts(text) == [], text
    used = "import math as m\ndef g(a): return f(a) + m.pi\nfor i in [1]: print(g(i), h)"
    assert texts.free_names(used) == ["f", "h"]
    assert texts.free_names("if __name__ == '__main__': f(") == [] == texts.free_names("x" * 20_001)


@pytest.mark.parametrize("case", CASES["arguments"])
def test_what_a_call_does_to_its_arguments_is_seen_by_the_tests(case):
    said = run_tests(f"def f(x, y=None):\n    {case['body']}", case["tests"])
    assert said.verdict == case["verdict"], said


@pytest.mark.parametrize("tests", CASES["objects"])
def test_tests_that_need_objects_of_the_program_say_nothing(tests):
    for program in (CASES["STACK"], "def f(x): return x", ""):
        said = run_tests(program, tests)
        assert (said.verdict, "more than plain data" in said.detail) == ("unscored", True)
    assert not valid_tests(tests)


@pytest.mark.parametrize("tests", CASES["data"])
def test_tests_that_need_data_only_are_run(tests):
    assert not texts.beyond_data(tests, texts.free_names(tests))
