"""Programs judged by calls and by standard output: values, verdicts, limits."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from data_files import tables

from codesandbox import run_calls, run_stdio, run_tests

CASES = tables("sandbox")
pytestmark = pytest.mark.usefixtures("landlock")


def judged(program, expected, **options):
    return run_calls(program, "f", [(3,)], [expected], **options)


SAME = [("9", 9), ("[1, (2, 'x')]", [1, (2, "x")]), ("{1, 2}", {2, 1}), ("b'ab'", b"ab"), ("-0.0", 0.0)]
SAME += [("float('nan')", float("nan")), ("10**400", 10**400), ("'\\ud800'", "\ud800")]
ALIKE = [("9.0", 9), ("True", 1), ("frozenset({1})", {1}), ("{1: {2.0}}", {1: {2}})]  # of equal value and another type
VALUES = [(*pair, "pass", "pass") for pair in SAME] + [(*pair, "wrong", "pass") for pair in ALIKE]
VALUES += [("(1, 2)", [1, 2], "wrong", "wrong"), ("0.1 + 0.2", 0.3, "wrong", "wrong")]


@pytest.mark.parametrize(("expression", "expected", "strict", "loose"), VALUES)
def test_values_come_back_as_data_and_are_compared_here(expression, expected, strict, loose):
    program = f"def f(x): return {expression}"
    assert (judged(program, expected).verdict, judged(program, expected, strict=False).verdict) == (strict, loose)


DATA_CLASSES = [
    ("Counter('aab')", {"a": 2, "b": 1}, {"a": 2}),
    ("Pair(1, [2])", (1, [2]), [1, [2]]),
    ("[Size.LARGE]", [2], [1]),
    # the content counts, not what methods say of it
    ("F(2.0)", 2, 9),
    ("E([1, 2])", {1, 2}, {9}),
    ("D(a=1)", {"a": 1}, {9: 9}),
    ("[L([I(1)])]", [[1]], [[9]]),
    ("bytearray(b'ab')", b"ab", b"9"),
]


@pytest.mark.parametrize(("expression", "expected", "other"), DATA_CLASSES)
def test_classes_of_plain_data_count_as_the_data_in_them(expression, expected, other):
    program = f"{CASES['CLASSES']}def f(x): return {expression}"
    assert run_tests(program, f"assert f(3) == {expected!r}").verdict == "pass"
    assert run_tests(program, f"assert f(3) == {other!r}").verdict == "wrong"
    assert judged(program, expected).verdict == ("wrong" if "bytearray" in expression else "error")


def test_every_call_counts_and_a_failing_one_does_not_stop_the_next():
    said = run_calls("def f(x): return 6 // x", "f", [(1,), (0,), (2,), (3,)], [6, 0, 3, 9])
    assert (said.verdict, said.passed, said.total, said.correct) == ("error", 2, 4, False)
    assert said.detail.startswith("ZeroDivisionError")
    assert run_calls(CASES["SQUARE"], "f", [(1,), (2,), (3,)], [1, 5, 9]).passed == 2


def test_arguments_are_fresh_for_every_call_but_the_program_keeps_its_state():
    program = "seen = []\ndef f(x):\n    x.append(1)\n    seen.append(len(x))\n    return list(seen)"
    assert run_calls(program, "f", [([],), ([],)], [[1], [1, 1]]).verdict == "pass"
    assert run_tests("def f(x): return list(x)", "assert f({'b': 1, 'a': 2}) == ['b', 'a']").verdict == "pass"


def test_the_callers_errors_are_raised():
    for calls, expected in (([], []), ([(1,)], []), ([(1,)], [1, 2])):
        with pytest.raises(ValueError, match="allowed is one each"):
            run_calls(CASES["SQUARE"], "f", calls, expected)
    with pytest.raises(TypeError, match="only plain data"):
        run_calls(CASES["SQUARE"], "f", [(object(),)], [1])
    with pytest.raises(TypeError, match="seconds"):
        run_stdio("", "", "", seconds=3)


VERDICTS = [(program, verdict) for verdict, programs in CASES["verdicts"].items() for program in programs]
VERDICTS += [(CASES["CLASSES"] + end, verdict) for verdict, ends in CASES["classes"].items() for end in ends]


@pytest.mark.parametrize(("program", "verdict"), VERDICTS)
def test_verdicts(program, verdict):
    said = judged(program, 9, strict=False, cpu_seconds=1.0, wall_seconds=1.5, memory_mb=256)
    assert (said.verdict, said.passed) == (verdict, 0)


def test_details_are_short_and_printable():
    said = judged("def f(x): raise ValueError('\\x1b[2J\\ud800' + 'y' * 10**6)", 9)
    assert said.detail.isprintable() and said.detail.startswith("ValueError") and len(said.detail) <= 400


@pytest.mark.parametrize("case", CASES["scripts"])
def test_scripts(case):
    said = run_stdio(case["program"], "3\n", case["expected"])
    assert (said.verdict == "pass") is case["right"], said


def test_a_script_may_print_as_much_as_is_expected_and_little_more():
    text = "y" * 200_000
    assert run_stdio("print('y' * 200_000)", "", text).verdict == "pass"
    assert run_stdio("print('y' * 200_000)", "", "y").verdict == "output"
    assert run_stdio("while True: print('y' * 1000)", "", "y").verdict == "output"


def test_many_at_once_come_back_in_order():
    jobs = [partial(judged, f"def f(x): return {i}", i) for i in range(10)]
    jobs.insert(3, partial(run_tests, CASES["SQUARE"], "for i in [2]: assert f(i) == 4"))
    jobs.insert(5, partial(judged, "def f(x):\n    while True: pass", 9, cpu_seconds=0.2))
    with ThreadPoolExecutor() as threads:
        found = [said.verdict for said in threads.map(lambda job: job(), jobs)]
    assert found == ["timeout" if i == 5 else "pass" for i in range(12)]
