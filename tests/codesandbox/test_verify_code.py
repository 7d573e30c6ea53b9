"""Programs judged by calls, by standard output and by tests that may be a model's own."""

from functools import partial

import pytest

from codesandbox import level, texts
from codesandbox.code import run_calls, run_many, run_stdio, run_tests, valid_tests
from coevolve.verify import verify

SQUARE = "def f(x):\n    return x * x\n"


pytestmark = pytest.mark.usefixtures("landlock")


def judged(program, expected, **options):
    return run_calls(program, "f", [(3,)], [expected], **options)


@pytest.mark.parametrize(
    ("expression", "expected", "strict", "loose"),
    [
        ("9", 9, True, True),
        ("9.0", 9, False, True),
        ("True", 1, False, True),
        ("'9'", 9, False, False),
        ("8", 9, False, False),
        ("[1, (2, 'x')]", [1, (2, "x")], True, True),
        ("(1, 2)", [1, 2], False, False),
        ("{1, 2}", {2, 1}, True, True),
        ("frozenset({1})", {1}, False, True),
        ("{'b': 1, 'a': [2]}", {"a": [2], "b": 1}, True, True),
        ("{1: 2}", {1: 3}, False, False),
        ("None", None, True, True),
        ("b'ab'", b"ab", True, True),
        ("-0.0", 0.0, True, True),
        ("float('nan')", float("nan"), True, True),
        ("10**400", 10**400, True, True),
        ("0.1 + 0.2", 0.3, False, False),
        ("{1: {2.0}}", {1: {2}}, False, True),
        ("'\\ud800'", "\ud800", True, True),
        ("[]", (), False, False),
        ("False", 0, False, True),
        ("{}", set(), False, False),
    ],
)
def test_values_come_back_as_data_and_are_compared_here(expression, expected, strict, loose):
    program = f"def f(x): return {expression}"
    assert judged(program, expected).verdict == ("pass" if strict else "wrong")
    assert judged(program, expected, strict=False).verdict == ("pass" if loose else "wrong")


@pytest.mark.parametrize(
    ("value", "expected", "tolerance", "right"),
    [
        (1.0000001, 1.0, 1e-6, True),
        (1.00001, 1.0, 1e-6, False),
        ([0.1 + 0.2, "a"], [0.3, "a"], 1e-9, True),
        ({"k": 2.5000001}, {"k": 2.5}, 1e-6, True),
        ([0.1, 0.2], [0.1], 1e-6, False),
        (3, 4, 10.0, False),
        (1e308, float("inf"), 1e-6, False),
        (["r", "0x1"], ["r", "0x2"], 5.0, False),
        ({"a": 1.0}, {"b": 1.0}, 9.0, False),
    ],
)
def test_floats_within_a_tolerance(value, expected, tolerance, right):
    program = f"inf = float('inf')\ndef f(x): return {value!r}"
    assert (judged(program, expected, tolerance=tolerance).verdict == "pass") is right


def test_every_call_counts_and_a_failing_one_does_not_stop_the_next():
    program = "def f(x): return 6 // x"
    said = run_calls(program, "f", [(1,), (0,), (2,), (3,)], [6, 0, 3, 9])
    assert (said.verdict, said.passed, said.total) == ("error", 2, 4)
    assert said.detail.startswith("ZeroDivisionError") and said.correct is False
    assert run_calls(SQUARE, "f", [(1,), (2,), (3,)], [1, 5, 9]).passed == 2


def test_arguments_are_fresh_for_every_call_but_the_program_keeps_its_state():
    program = "seen = []\ndef f(x):\n    x.append(1)\n    seen.append(len(x))\n    return list(seen)"
    assert run_calls(program, "f", [([],), ([],)], [[1], [1, 1]]).verdict == "pass"


@pytest.mark.parametrize(("calls", "expected"), [([], []), ([(1,)], []), ([(1,)], [1, 2])])
def test_calls_and_expected_values_come_in_pairs(calls, expected):
    with pytest.raises(ValueError, match="allowed is one each"):
        run_calls(SQUARE, "f", calls, expected)


def test_what_is_no_data_is_the_callers_error():
    with pytest.raises(TypeError, match="only plain data"):
        run_calls(SQUARE, "f", [(object(),)], [1])


@pytest.mark.parametrize(
    ("program", "verdict"),
    [
        ("def f(x):\n    while True: pass", "timeout"),
        ("import time\ndef f(x): time.sleep(60)", "timeout"),
        ("def f(x): return [0] * 10**9", "memory"),
        ("def f(x): return 'a' * 2_000_000", "output"),
        ("def f(x): return [x] * 2_000_000", "output"),
        ("def f(x): return object()", "error"),
        ("def f(x: return", "error"),
        ("x = 1", "error"),
        ("f = 3", "error"),
        ("raise SystemExit(0)", "error"),
        ("import os\nos._exit(0)", "error"),
        ("def f(x): raise KeyboardInterrupt", "error"),
        ("def f(x): yield 9", "error"),
        ("def f(x):\n    return f(x)", "error"),
        ("import os\ndef f(x): os.kill(os.getpid(), 9)", "error"),
        ("def f(x): a = []; a.append(a); return a", "output"),
        (
            "kept = []\ndef f(x):\n    for size in (1 << 22, 1 << 16, 1 << 10, 64, 1):\n        try:\n"
            "            while True: kept.append(bytearray(size))\n        except MemoryError: pass\n    raise MemoryError",
            "memory",
        ),
    ],
)
def test_verdicts(program, verdict):
    said = judged(program, 9, cpu_seconds=0.3, wall_seconds=1.0, memory_mb=256)
    assert (said.verdict, said.passed) == (verdict, 0)


def test_details_are_short_and_printable():
    said = judged("def f(x): raise ValueError('\\x1b[2J\\ud800' + 'y' * 10**6)", 9)
    assert said.detail.isprintable() and said.detail.startswith("ValueError") and len(said.detail) <= 400


@pytest.mark.parametrize(
    ("program", "expected", "right"),
    [
        ("print(int(input()) + 1)", "4", True),
        ("print('4  ')", "4\n", True),
        ("print(4, end='')", "4", True),
        ("print(4); print()", "4", False),
        ("print(' 4')", "4", False),
        ("print('4\\n4')", "4", False),
        ("print(4)", "5", False),
        ("print(4)\nexit()", "4", True),
        ("import sys\nprint(4)\nsys.exit(0)", "4", True),
        ("print(4)\nraise ValueError", "4", False),
        ("print(4)\nimport sys; sys.exit(1)", "4", False),
        ("print(4)\nimport os; os._exit(0)", "4", False),
        ("if __name__ == '__main__':\n    print(4)", "4", True),
        ("import os\nos.write(1, b'4\\n')", "4", True),
        ("import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.2), print(4))).start()", "4", True),
        ("import atexit\natexit.register(print, 4)", "4", True),
        ("import sys\nprint('log', file=sys.stderr)\nprint(4)", "4", True),
        ("import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read().replace(b'3', b'4'))", "4", True),
        (
            "import io, sys, atexit\na, sys.stdout = sys.stdout, io.StringIO()\natexit.register(lambda: a.write('4'))",
            "4",
            True,
        ),
        ("print(sum(int(line) for line in open(0)) + 1)", "4", True),
        ("print('\u00e9')", "\u00e9", True),
    ],
)
def test_scripts(program, expected, right):
    said = run_stdio(program, "3\n", expected)
    assert (said.verdict == "pass") is right, said


def test_a_script_may_print_as_much_as_is_expected_and_little_more():
    text = "y" * 200_000
    assert run_stdio("print('y' * 200_000)", "", text).verdict == "pass"
    assert run_stdio("print('y' * 200_000)", "", "y").verdict == "output"
    assert run_stdio("while True: print('y' * 1000)", "", "y").verdict == "output"


@pytest.mark.parametrize(
    ("tests", "verdict"),
    [
        ("assert f(3) == 9", "pass"),
        ("assert f(3) == 9\nassert f(-2) == 4, 'square'", "pass"),
        ("assert f(3) == 9.0", "pass"),
        ("assert f(3) == 8", "wrong"),
        ("assert f(2) == 4\nassert f(3) == 8", "wrong"),
        # these run in a second process
        ("for i in range(5):\n    assert f(i) == i * i", "pass"),
        ("for i in range(5):\n    assert f(i) == i", "wrong"),
        ("def check(g):\n    assert g(2) == 4\n    assert g(-3) == 9\ncheck(f)", "pass"),
        ("assert f(x=3) == 9", "pass"),
        ("import math\nassert math.isclose(f(0.5), 0.25)", "pass"),
        ("assert f(2) == 4 and f(3) == 9", "pass"),
        ("try:\n    f('a')\nexcept TypeError:\n    pass\nelse:\n    assert False", "pass"),
        ("assert f(2j) == -4", "unscored"),
        (
            "import unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(f(3), 9)\n"
            "if __name__ == '__main__': unittest.main()",
            "pass",
        ),
        ("f(1)\nwhile True: pass", "timeout"),
        # faults of the tests
        ("assert f(3) ==", "unscored"),
        ("assert 1 == 1", "unscored"),
        ("import nowhere\nassert f(3) == 9 == 9", "unscored"),
        ("while True: f", "unscored"),
        ("x = [0] * 10**9\nf(1)", "unscored"),
        ("", "unscored"),
        ("(" * 50_000, "unscored"),
        ("\x00", "unscored"),
        ("-" * 20_000 + "f(1)", "unscored"),
    ],
)
def test_tests(tests, verdict):
    said = run_tests(SQUARE, tests, cpu_seconds=0.5, wall_seconds=2.0, memory_mb=256)
    assert said.verdict == verdict, said


@pytest.mark.parametrize(
    ("program", "verdict"),
    [
        ("def f(x): return None", "wrong"),
        ("def f(x): raise ValueError('no')", "error"),
        ("def f(x", "error"),
        ("", "error"),
        ("def f(x):\n    while True: pass", "timeout"),
        ("import os\ndef f(x): os._exit(0)", "error"),
        ("def f(x): return object()", "error"),
        ("def f(x): return 'y' * 2_000_000", "error"),
        ("class Any:\n    def __eq__(self, other): return True\ndef f(x): return Any()", "error"),
        ("import builtins, sys\nbuiltins.AssertionError = ValueError\nsys.exit = None\ndef f(x): return -1", "wrong"),
    ],
)
def test_a_wrong_program_against_tests_that_run(program, verdict):
    tests = "for i in range(1, 4):\n    assert f(i) == i * i"
    assert run_tests(program, tests, cpu_seconds=0.5, wall_seconds=2.0).verdict == verdict


@pytest.mark.parametrize(
    "program",
    [
        # leaves after it has claimed to be ready; answers what takes the tests too long to look at; answers unasked
        "send(['ready'])\nos._exit(0)",
        "send(['ready'], ['end'])\nos._exit(0)",
        "send(b'x')",
        "def f(x):\n    send(['v', ['s', [['i', hex(i * (2**61 - 1))] for i in range(9000)]]])\n    time.sleep(9)",
        "send(['ready'], *[['v', True]] * 50)\ntime.sleep(9)",
        "def f(x): send(['x', [], {}])\n",
        "send(['v'])",
    ],
)
def test_no_program_can_call_itself_unscored(program):
    send = """import json, os, struct, time
def send(*frames):
    for frame in frames:
        data = frame if isinstance(frame, bytes) else json.dumps(frame).encode()
        for fd in range(3, 64):
            try: os.write(fd, struct.pack(">I", len(data)) + data)
            except OSError: pass
"""
    tests = "import time\ntime.sleep(0.2)\nfor i in range(1, 4):\n    assert f(i) == i * i"
    for said in (
        run_tests(send + program, tests, cpu_seconds=0.3, wall_seconds=1.0),
        run_calls(send + program, "f", [(1,)], [1], cpu_seconds=0.3, wall_seconds=1.0),
    ):
        assert said.correct is False, said


def test_the_tests_are_not_in_the_candidates_memory():
    program = """
import gc, sys
def f(x):
    words = [o for o in gc.get_objects() if isinstance(o, (list, dict, tuple))]
    return any("-".join(["SECRET", "OF", "TESTS"]) in str(o)[:2000] for o in words if o is not words)
"""
    tests = "expected = 'SECRET-OF-TESTS'\nfor i in [1]:\n    assert f(i) is False"
    assert run_tests(program, tests).verdict == "pass"


def test_an_entry_is_the_only_name_that_asks_the_candidate():
    assert run_tests(SQUARE, "g = f\nassert g(2) == 4", entry="f").verdict == "pass"
    assert run_tests(SQUARE, "assert h(f(2)) == 4", entry="f").verdict == "unscored"  # h is nobody's


@pytest.mark.parametrize(
    ("tests", "valid"),
    [
        ("assert f(3) == 9", True),
        ("assert g('ab') == 'ba'\nassert g('') == ''", True),
        ("for i in [1]: assert f(i) == i", True),
        ("assert f(3) == None", False),
        ("f(3)", False),
        ("assert f(3) ==", False),
        ("assert True", False),
        ("", False),
        ("assert f(3) is None", False),
        ("assert False", False),
        ("import nowhere\nassert f(1) == f(2) + 1", False),
        ("while True: f(1)", False),
        ("assert len(f(3)) == 2", True),
    ],
)
def test_valid_tests(tests, valid):
    assert valid_tests(tests) is valid


def test_valid_tests_must_use_the_entry():
    assert valid_tests("assert f(1) == 2", entry="f") and not valid_tests("assert g(1) == 2", entry="f")


def test_tests_are_read_here_without_being_run():
    assert texts.literal_asserts("assert f(1, 'a') == [2]\nassert g() == -3") == [("f", (1, "a"), [2]), ("g", (), -3)]
    others = "assert f(1) == x", "assert f(x=1) == 2", "assert f(1) != 2", "x = 1", "assert f(*[1]) == 2", "assert f(1)"
    for text in others:
        assert texts.literal_asserts(text) == [], text
    used = "import math as m\ndef g(a): return f(a) + m.pi\nfor i in [1]: print(g(i), h)"
    assert texts.free_names(used) == ["f", "h"]
    assert texts.free_names("if __name__ == '__main__': f(") == [] == texts.free_names("x" * 20_001)


def test_many_at_once_come_back_in_order():
    jobs = [partial(judged, f"def f(x): return {i}", i) for i in range(30)]
    jobs.insert(7, partial(run_tests, SQUARE, "for i in [2]: assert f(i) == 4"))
    jobs.insert(9, partial(judged, "def f(x):\n    while True: pass", 9, cpu_seconds=0.2))
    assert [said.verdict for said in run_many(jobs)] == ["timeout" if i == 9 else "pass" for i in range(32)]


def test_code_behind_the_one_call():
    assert verify("code", SQUARE, "assert f(3) == 9").correct is True
    assert verify("code", SQUARE, {"entry": "f", "calls": [(3,)], "expected": [8]}).verdict == "wrong"
    said = verify("code", "print(input())", {"stdin": "a\n", "expected": "a"})
    assert (said.correct, said.level) == (True, level.programs().reported)
