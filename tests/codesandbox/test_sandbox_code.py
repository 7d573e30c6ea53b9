"""Programs judged by calls and by standard output: values, verdicts, limits."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import pytest
from data_files import tables

from codesandbox import CodeResult, run_calls, run_stdio, run_tests

CASES = tables("sandbox")
pytestmark = pytest.mark.usefixtures("landlock")


def judge_f_of_3(program: str, expected: object, **options) -> CodeResult:
    """Judge the program's f by one call, f(3)."""
    return run_calls(program, "f", [(3,)], [expected], **options)


# Expressions that f returns, each with an expected value.
SAME_VALUES = [
    ("9", 9),
    ("[1, (2, 'x')]", [1, (2, "x")]),
    ("{1, 2}", {2, 1}),
    ("b'ab'", b"ab"),
    ("-0.0", 0.0),
    ("float('nan')", float("nan")),
    ("10**400", 10**400),
    ("'\\ud800'", "\ud800"),
]
EQUAL_VALUES_OF_OTHER_TYPES = [
    ("9.0", 9),
    ("True", 1),
    ("frozenset({1})", {1}),
    ("{1: {2.0}}", {1: {2}}),
]
OTHER_VALUES = [
    ("(1, 2)", [1, 2]),
    ("0.1 + 0.2", 0.3),
]


def strict_and_loose_verdicts(expression: str, expected: object) -> tuple[str, str]:
    """Judge a program whose f returns the expression, by types and by Python's ==."""
    program = f"def f(x): return {expression}"
    strict = judge_f_of_3(program, expected)
    loose = judge_f_of_3(program, expected, strict=False)
    return strict.verdict, loose.verdict


@pytest.mark.parametrize(("expression", "expected"), SAME_VALUES)
def test_values_come_back_as_data_and_the_caller_compares_them(expression, expected):
    assert strict_and_loose_verdicts(expression, expected) == ("pass", "pass")


@pytest.mark.parametrize(("expression", "expected"), EQUAL_VALUES_OF_OTHER_TYPES)
def test_equal_values_of_other_types_are_wrong_only_where_strict(expression, expected):
    assert strict_and_loose_verdicts(expression, expected) == ("wrong", "pass")


@pytest.mark.parametrize(("expression", "expected"), OTHER_VALUES)
def test_other_values_are_wrong(expression, expected):
    assert strict_and_loose_verdicts(expression, expected) == ("wrong", "wrong")


class PlainData(NamedTuple):
    """An object of a class derived from a plain type, the data in it, and other data."""

    expression: str
    data: object
    other: object


OBJECTS_OF_PLAIN_DATA = [
    PlainData("Counter('aab')", {"a": 2, "b": 1}, {"a": 2}),
    PlainData("Pair(1, [2])", (1, [2]), [1, [2]]),
    PlainData("[Size.LARGE]", [2], [1]),
    # These classes have methods that lie about the content.
    PlainData("F(2.0)", 2, 9),
    PlainData("E([1, 2])", {1, 2}, {9}),
    PlainData("D(a=1)", {"a": 1}, {9: 9}),
    PlainData("[L([I(1)])]", [[1]], [[9]]),
    PlainData("bytearray(b'ab')", b"ab", b"9"),
]


@pytest.mark.parametrize("case", OBJECTS_OF_PLAIN_DATA)
def test_objects_of_plain_data_count_as_the_data_in_them(case):
    program = f"{CASES['CLASSES']}def f(x): return {case.expression}"
    assert run_tests(program, f"assert f(3) == {case.data!r}").verdict == "pass"
    assert run_tests(program, f"assert f(3) == {case.other!r}").verdict == "wrong"
    strict_verdict = "wrong" if "bytearray" in case.expression else "error"
    assert judge_f_of_3(program, case.data).verdict == strict_verdict


def test_a_failing_call_does_not_stop_the_next_one():
    program = "def f(x): return 6 // x"
    calls = [(1,), (0,), (2,), (3,)]
    result = run_calls(program, "f", calls, expected=[6, 0, 3, 9])
    assert result.verdict == "error"
    assert result.correct is False
    assert (result.passed, result.total) == (2, 4)
    assert result.detail.startswith("ZeroDivisionError")


def test_every_call_with_the_expected_value_counts_as_passed():
    result = run_calls(CASES["SQUARE"], "f", [(1,), (2,), (3,)], [1, 5, 9])
    assert result.passed == 2


def test_arguments_are_fresh_for_every_call_but_the_program_keeps_its_state():
    program = """
seen = []
def f(x):
    x.append(1)
    seen.append(len(x))
    return list(seen)
"""
    assert run_calls(program, "f", [([],), ([],)], [[1], [1, 1]]).verdict == "pass"


def test_dict_arguments_keep_their_order():
    tests = "assert f({'b': 1, 'a': 2}) == ['b', 'a']"
    assert run_tests("def f(x): return list(x)", tests).verdict == "pass"


@pytest.mark.parametrize(
    ("calls", "expected"),
    [([], []), ([(1,)], []), ([(1,)], [1, 2])],
)
def test_calls_and_expected_values_must_match_in_number(calls, expected):
    with pytest.raises(ValueError, match="allowed is one each"):
        run_calls(CASES["SQUARE"], "f", calls, expected)


def test_arguments_must_be_plain_data():
    with pytest.raises(TypeError, match="only plain data"):
        run_calls(CASES["SQUARE"], "f", [(object(),)], [1])


def test_an_unknown_limit_is_the_callers_error():
    with pytest.raises(TypeError, match="seconds"):
        run_stdio("", "", "", seconds=3)


def programs_with_verdicts() -> list[tuple[str, str]]:
    """Return programs that misbehave when called, each with its verdict."""
    cases = []
    for verdict, programs in CASES["verdicts"].items():
        cases += [(program, verdict) for program in programs]
    for verdict, functions in CASES["classes"].items():
        cases += [(CASES["CLASSES"] + function, verdict) for function in functions]
    return cases


@pytest.mark.parametrize(("program", "verdict"), programs_with_verdicts())
def test_a_misbehaving_program_gets_its_verdict(program, verdict):
    limits = {"cpu_seconds": 1.0, "wall_seconds": 1.5, "memory_mb": 256}
    result = judge_f_of_3(program, 9, strict=False, **limits)
    assert (result.verdict, result.passed) == (verdict, 0)


def test_details_are_short_and_printable():
    program = "def f(x): raise ValueError('\\x1b[2J\\ud800' + 'y' * 10**6)"
    detail = judge_f_of_3(program, 9).detail
    assert detail.isprintable()
    assert detail.startswith("ValueError")
    assert len(detail) <= 400


@pytest.mark.parametrize("case", CASES["scripts"])
def test_a_script_passes_only_with_the_expected_output_and_an_orderly_end(case):
    result = run_stdio(case["program"], "3\n", case["expected"])
    assert (result.verdict == "pass") is case["correct"], result


def test_a_script_may_print_as_much_as_is_expected_and_little_more():
    program = "print('y' * 200_000)"
    assert run_stdio(program, "", expected="y" * 200_000).verdict == "pass"
    assert run_stdio(program, "", expected="y").verdict == "output"
    assert (
        run_stdio("while True: print('y' * 1000)", "", expected="y").verdict == "output"
    )


def test_many_checks_at_once_come_back_in_order():
    checks = [partial(judge_f_of_3, f"def f(x): return {i}", i) for i in range(10)]
    linked_tests = partial(run_tests, CASES["SQUARE"], "for i in [2]: assert f(i) == 4")
    checks.insert(3, linked_tests)
    endless = "def f(x):\n    while True: pass"
    checks.insert(5, partial(judge_f_of_3, endless, 9, cpu_seconds=0.2))
    with ThreadPoolExecutor() as threads:
        results = list(threads.map(lambda check: check(), checks))
    expected = ["pass"] * 12
    expected[5] = "timeout"
    assert [result.verdict for result in results] == expected
