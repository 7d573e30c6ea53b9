"""Tests that may be a model's own: their verdicts, and what crosses between them and the program."""

import pytest

from codesandbox import run_calls, run_tests, texts, valid_tests

SQUARE = "def f(x):\n    return x * x\n"
pytestmark = pytest.mark.usefixtures("landlock")


TESTS = [
    ("assert f(3) == 9", "pass"),
    ("assert f(3) == 8", "wrong"),
    # these run in a second process
    ("for i in range(5):\n    assert f(i) == i * i", "pass"),
    ("for i in range(5):\n    assert f(i) == i", "wrong"),
    ("def check(g):\n    assert g(2) == 4\n    assert g(-3) == 9\ncheck(f)", "pass"),
    ("import math\nassert math.isclose(f(0.5), 0.25)", "pass"),
    ("try:\n    f('a')\nexcept TypeError:\n    pass\nelse:\n    assert False", "pass"),
    ("assert f(2j) == -4", "unscored"),
    ("import unittest as u\nclass T(u.TestCase):\n    def test(self): self.assertEqual(f(3), 9)\nu.main()", "pass"),
    ("f(1)\nwhile True: pass", "timeout"),
    # faults of the tests
    ("assert f(3) ==", "unscored"),
    ("import nowhere\nassert f(3) == 9 == 9", "unscored"),
    ("", "unscored"),
    ("(" * 50_000, "unscored"),
    ("-" * 20_000 + "f(1)", "unscored"),
]


@pytest.mark.parametrize(("tests", "verdict"), TESTS)
def test_tests(tests, verdict):
    said = run_tests(SQUARE, tests, cpu_seconds=0.5, wall_seconds=2.0, memory_mb=256)
    assert said.verdict == verdict, said


WRONG = [
    ("def f(x): return None", "wrong"),
    ("def f(x): raise ValueError('no')", "error"),
    ("def f(x):\n    while True: pass", "timeout"),
    ("def f(x): return 'y' * 2_000_000", "error"),
    ("class Any:\n    def __eq__(self, other): return True\ndef f(x): return Any()", "error"),
    ("import builtins, sys\nbuiltins.AssertionError = ValueError\nsys.exit = None\ndef f(x): return -1", "wrong"),
]


@pytest.mark.parametrize(("program", "verdict"), WRONG)
def test_a_wrong_program_against_tests_that_run(program, verdict):
    tests = "for i in range(1, 4):\n    assert f(i) == i * i"
    assert run_tests(program, tests, cpu_seconds=0.5, wall_seconds=2.0).verdict == verdict


PRETENDERS = [
    # leaves after it has claimed to be ready; answers what takes the tests too long to look at; answers unasked
    "send(['ready'], ['end'])\nos._exit(0)",
    "send(b'x')",
    "def f(x):\n    send(['v', ['s', [['i', hex(i * (2**61 - 1))] for i in range(9000)]]])\n    time.sleep(9)",
    "send(['ready'], *[['v', True]] * 50)\ntime.sleep(9)",
    "send(['v'])",
    "def f(x):\n    for fd in range(3, 64):\n        try: os.ftruncate(fd, 0)\n        except OSError: pass\n    os._exit(0)",
]


@pytest.mark.parametrize("program", PRETENDERS)
def test_no_program_can_call_itself_unscored(program):
    send = """import json, os, time
def send(*frames):
    for frame in frames:
        data = frame if isinstance(frame, bytes) else json.dumps(frame).encode()
        for fd in range(3, 64):
            try: os.write(fd, data + b"\\n")
            except OSError: pass
"""
    tests = "import time\ntime.sleep(0.2)\nfor i in range(1, 4):\n    assert f(i) == i * i"
    limits = {"cpu_seconds": 0.3, "wall_seconds": 1.0}
    assert run_tests(send + program, tests, **limits).correct is False
    assert run_calls(send + program, "f", [(1,)], [1], **limits).correct is False


def test_the_tests_are_not_in_the_candidates_memory():
    program = """
import gc, sys
def f(x):
    words = [o for o in gc.get_objects() if isinstance(o, (list, dict, tuple))]
    return any("-".join(["SECRET", "OF", "TESTS"]) in str(o)[:2000] for o in words if o is not words)
"""
    tests = "expected = 'SECRET-OF-TESTS'\nfor i in [1]:\n    assert f(i) is False"
    assert run_tests(program, tests).verdict == "pass"


def test_valid_tests_fail_where_a_function_returns_nothing():
    valid = "assert f(3) == 9", "assert len(f(3)) == 2"
    others = "f(3)", "assert f(3) ==", "", "assert False"
    assert [tests for tests in (*valid, *others) if valid_tests(tests)] == [*valid]


def test_an_entry_is_the_only_name_that_asks_the_candidate():
    assert run_tests(SQUARE, "g = f\nassert g(2) == 4", entry="f").verdict == "pass"
    assert run_tests(SQUARE, "assert h(f(2)) == 4", entry="f").verdict == "unscored"  # h is nobody's


def test_tests_are_read_here_without_being_run():
    assert texts.literal_asserts("assert f(1, 'a') == [2]\nassert g() == -3") == [("f", (1, "a"), [2]), ("g", (), -3)]
    others = "assert f(1) == x", "assert f(x=1) == 2", "assert f(1) != 2", "x = 1", "assert f(*[1]) == 2", "assert f(1)"
    for text in others:
        assert texts.literal_asserts(text) == [], text
    used = "import math as m\ndef g(a): return f(a) + m.pi\nfor i in [1]: print(g(i), h)"
    assert texts.free_names(used) == ["f", "h"]
    assert texts.free_names("if __name__ == '__main__': f(") == [] == texts.free_names("x" * 20_001)


ARGUMENTS = [
    ("x.sort()", "x = [3, 1]\nf(x)\nassert x == [1, 3]", "pass"),
    ("pass", "x = [3, 1]\nf(x)\nassert x == [1, 3]", "wrong"),
    ("return sorted(x)", "x = [3, 1]\nassert f(x) == [1, 3] and x == [3, 1]", "pass"),
    ("x.sort(); return x", "x = [3, 1]\nassert f(x) == [1, 3] and x == [3, 1]", "wrong"),
    ("x.sort()", "x = y = [3, 1]\nf(x=x)\nassert y == [1, 3] and y is x", "pass"),
    ("x['a'] = x.pop('b')", "d = {'b': [1]}\nf(d)\nassert d == {'a': [1]}", "pass"),
    ("y.add(len(x)); y.discard(5)", "s = {5}\nf('ab', y=s)\nassert s == {2}", "pass"),
    ("y.reverse()", "b = bytearray(b'ab')\nf(1, b)\nassert b == b'ba'", "pass"),
    ("x.append(x)", "x = [3, 1]\nf(x)\nassert x == [3, 1]", "error"),
    ("x.extend([1] * 100_000)", "x = [3, 1]\nf(x)\nassert x == [3, 1]", "wrong"),
    ("while True: yield x", "assert list(f(3)) == [0, 1, 2]", "error"),
]


@pytest.mark.parametrize(("body", "tests", "verdict"), ARGUMENTS)
def test_what_a_call_does_to_its_arguments_is_seen_by_the_tests(body, tests, verdict):
    said = run_tests(f"def f(x, y=None):\n    {body}", tests)
    assert said.verdict == verdict, said


STACK = """class Stack:
    def __init__(self): self.kept = []
    def push(self, x): self.kept.append(x)
    def pop(self): return self.kept.pop()
"""
OBJECTS = [
    "s = Stack()\ns.push(1)\nassert s.kept == [1]",
    "class T:\n    def run(self):\n        self.s = Stack()\n        self.s.push(1)",
    "assert f(3).name == 'x'",
    "assert Stack.kind == 1",
    "assert isinstance(f(1), Stack)",
    "assert f(lambda x: x, [1]) == [1]",
    "assert f(Stack()) == 0",
    "g = f(3)\nassert next(g) == 0",
    "import asyncio\nassert asyncio.run(f(3)) == 0",
    "assert f(3)(4) == 7",
    "try: f(1)\nexcept Oops: pass",
    "@f\ndef g(): return 1\nassert g() == 1",
    "import pytest\nwith pytest.raises(Oops): f(1)",
    "a, b = f(3)\nassert a.name == 'x'",
]
DATA = [
    "assert f('ab').strip().split() == ['ab']",
    "assert list(map(f, [1])) == [2]",
    "d = f(3)\nd['a'].append(1)",
    "assert Diff([1], [2]) == {1}",
    "import math\nassert math.isclose(f(x=[1, (2,)]), 2.0)",
    "def check(g):\n    assert g(2) == 4\ncheck(f)",
    "for input in [1]: assert f(input) == 2",
    "assert isinstance(f(3), (int, str))",
]


@pytest.mark.parametrize("tests", OBJECTS)
def test_tests_that_need_objects_of_the_program_say_nothing(tests):
    for program in (STACK, "def f(x): return x", ""):
        said = run_tests(program, tests)
        assert (said.verdict, "more than plain data" in said.detail) == ("unscored", True)
    assert not valid_tests(tests)


@pytest.mark.parametrize("tests", DATA)
def test_tests_that_need_data_only_are_run(tests):
    assert not texts.beyond_data(tests, texts.free_names(tests))
