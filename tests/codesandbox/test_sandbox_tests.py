"""Tests that a model may have written: their verdicts, and what passes to and from the program."""

import pytest
from data_files import tables

from codesandbox import run_calls, run_tests, texts, valid_tests

CASES = tables("sandbox")
pytestmark = pytest.mark.usefixtures("landlock")


def with_verdicts(table: str) -> list[tuple[str, str]]:
    """Return the texts of a table, each with its verdict."""
    cases = []
    for verdict, case_texts in CASES[table].items():
        cases += [(text, verdict) for text in case_texts]
    return cases


TESTS_WITH_VERDICTS = [
    *with_verdicts("tests"),
    ("(" * 50_000, "unscored"),
    ("-" * 20_000 + "f(1)", "unscored"),
]


@pytest.mark.parametrize(("tests", "verdict"), TESTS_WITH_VERDICTS)
def test_tests_of_a_correct_program_get_their_verdict(tests, verdict):
    limits = {"cpu_seconds": 0.5, "wall_seconds": 2.0, "memory_mb": 256}
    result = run_tests(CASES["SQUARE"], tests, **limits)
    assert result.verdict == verdict, result


@pytest.mark.parametrize(("program", "verdict"), with_verdicts("wrong"))
def test_a_wrong_program_gets_its_verdict_from_tests_that_run(program, verdict):
    tests = "for i in range(1, 4):\n    assert f(i) == i * i"
    result = run_tests(program, tests, cpu_seconds=0.5, wall_seconds=2.0)
    assert result.verdict == verdict


@pytest.mark.parametrize("pretender", CASES["pretenders"])
def test_no_program_can_call_itself_unscored(pretender):
    program = CASES["SEND"] + pretender
    tests = (
        "import time\ntime.sleep(0.2)\nfor i in range(1, 4):\n    assert f(i) == i * i"
    )
    limits = {"cpu_seconds": 0.3, "wall_seconds": 1.0}
    assert run_tests(program, tests, **limits).correct is False
    assert run_calls(program, "f", [(1,)], [1], **limits).correct is False


def test_the_tests_are_not_in_the_candidates_memory():
    tests = "expected = 'SECRET-OF-TESTS'\nfor i in [1]:\n    assert f(i) is False"
    assert run_tests(CASES["SEARCH"], tests).verdict == "pass"


@pytest.mark.parametrize("tests", ["assert f(3) == 9", "assert len(f(3)) == 2"])
def test_tests_are_valid_if_they_fail_where_every_function_returns_none(tests):
    assert valid_tests(tests)


@pytest.mark.parametrize("tests", ["f(3)", "assert f(3) ==", "", "assert False"])
def test_tests_are_invalid_if_they_pass_do_not_parse_or_ask_nothing(tests):
    assert not valid_tests(tests)


def test_an_entry_is_the_only_name_that_asks_the_candidate():
    square = CASES["SQUARE"]
    assert run_tests(square, "g = f\nassert g(2) == 4", entry="f").verdict == "pass"
    undefined_h = "assert h(f(2)) == 4"
    assert run_tests(square, undefined_h, entry="f").verdict == "unscored"


def test_asserts_of_literals_are_read_as_calls():
    tests = "assert f(1, 'a') == [2]\nassert g() == -3"
    assert texts.literal_asserts(tests) == [
        texts.LiteralAssert("f", (1, "a"), [2]),
        texts.LiteralAssert("g", (), -3),
    ]


@pytest.mark.parametrize(
    "tests",
    [
        "assert f(1) == x",
        "assert f(x=1) == 2",
        "assert f(1) != 2",
        "x = 1",
        "assert f(*[1]) == 2",
        "assert f(1)",
    ],
)
def test_other_tests_are_not_read_as_calls(tests):
    assert texts.literal_asserts(tests) == []


def test_free_names_are_used_and_neither_defined_nor_builtin():
    tests = (
        "import math as m\ndef g(a): return f(a) + m.pi\nfor i in [1]: print(g(i), h)"
    )
    assert texts.free_names(tests) == ["f", "h"]


@pytest.mark.parametrize("tests", ["if __name__ == '__main__': f(", "x" * 20_001])
def test_tests_that_do_not_parse_or_are_too_long_have_no_free_names(tests):
    assert texts.free_names(tests) == []


@pytest.mark.parametrize("case", CASES["arguments"])
def test_tests_see_what_a_call_does_to_its_arguments(case):
    program = f"def f(x, y=None):\n    {case['body']}"
    result = run_tests(program, case["tests"])
    assert result.verdict == case["verdict"], result


@pytest.mark.parametrize("tests", CASES["objects"])
def test_tests_that_need_objects_of_the_program_are_unscored(tests):
    for program in (CASES["STACK"], "def f(x): return x", ""):
        result = run_tests(program, tests)
        assert result.verdict == "unscored"
        assert "more than plain data" in result.detail
    assert not valid_tests(tests)


@pytest.mark.parametrize("tests", CASES["data"])
def test_tests_that_need_data_only_are_run(tests):
    assert not texts.needs_more_than_data(tests, texts.free_names(tests))
