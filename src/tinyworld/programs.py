"""Programs of the tiny world: answers as Python source, unit tests as verifiers.

Nothing in this module runs a program: the sandbox does (codesandbox.code). Where there is none,
`interpret` reads the two forms of answers that the tiny world knows.
"""

import re
from functools import lru_cache

from tinyworld import symbols, tasks
from tinyworld.tasks import Task

# Families whose answers are programs; others are verified by gold answer.
PROGRAMS = (
    "code",
    "ops",
)
DEFINITION = re.compile(r"^def \w", re.MULTILINE)
TEST_OF_NUMBER = re.compile(r"assert f\((\d{1,9})\)==(-?\d{1,18})")
TEST_OF_STRING = re.compile(r'assert g\("(\d{1,9})"\)=="(\d{0,9})"')
LIST_PROGRAM = """OPERATIONS = {{
    "sort": lambda s: "".join(sorted(s)), "rev": lambda s: s[::-1], "max": max, "min": min,
    "first": lambda s: s[:1], "last": lambda s: s[-1:], "tail": lambda s: s[1:],
}}
def g(s):
    for name in {!r}.split():
        s = OPERATIONS[name](s) if s else s
    return s
"""


def tests_of(task: Task, answer: str) -> str:
    """Write one unit test of a program, an assert of the value that `answer` gives."""
    numbers = [int(digits) for digits in re.findall(r"\d+", task.question)]
    if task.family == "code":
        test_input = str(numbers[2] + 1)  # one beyond the second example
    else:
        test_input = symbols.HIDDEN_STRINGS[numbers[0] % 2 + 1]
    return _test(task.family, answer, test_input)


def _test(family: str, answer: str, test_input: str) -> str:
    """Write the assert of the value that the program `answer` gives for these digits."""
    if family == "code":
        return f"assert f({test_input})=={symbols.evaluate(answer, int(test_input))}"
    return f'assert g("{test_input}")=="{symbols.run_operations(answer, test_input)}"'


def verifier_of(task: Task, answer: str) -> tuple[str, str]:
    """Return SAGE's verifier of a task: ("math", gold answer) or ("code", unit tests)."""
    if task.family in PROGRAMS:
        return "code", tests_of(task, answer)
    return "math", answer


def program(question: str, answer: str) -> str:
    """Write an answer as Python source: a list program g of a string, or a function f of a number.

    An answer that defines a function is returned unchanged. The answer is model text and is not
    checked: an unknown operation or a broken expression makes a broken program.
    """
    if DEFINITION.search(answer):
        return answer
    if question.startswith("g("):
        return LIST_PROGRAM.format(answer)
    return f"def f(x):\n    return {answer}\n"


def interpret(answer: str, tests: str) -> float | None:
    """Return the share of unit tests that an answer passes, without running it.

    An answer is an expression of x or a list program. None for tests in any other form than that
    of `tests_of`, one on a line. Everything else that Python would run counts as failed.
    """
    lines = _lines(tests)
    passed = 0
    for line in lines:
        of_number = TEST_OF_NUMBER.fullmatch(line)
        of_string = TEST_OF_STRING.fullmatch(line)
        if of_number is not None:
            x, value = map(int, of_number.groups())
            passed += symbols.evaluate(answer.strip(), x) == value
        elif of_string is not None:
            text, result = of_string.groups()
            passed += _result_of_operations(answer, text) == result
        else:
            return None
    return passed / len(lines) if lines else None


def _result_of_operations(answer: str, text: str) -> str | None:
    """Return the result of a list program, None if it has an operation that does not exist."""
    operations = answer.split()
    if not set(operations) <= symbols.OPERATIONS.keys():
        return None
    return symbols.run_operations(" ".join(operations), text) if operations else text


def _lines(tests: str) -> list[str]:
    """Return the lines of unit tests that are not blank."""
    lines = [line.strip() for line in tests.splitlines()]
    return [line for line in lines if line]


@lru_cache(maxsize=200_000)
def sound(question: str, kind: str, verifier: str) -> bool | None:
    """Whether a verifier accepts the oracle's answer; None for an ill-formed question."""
    task = tasks.read(question)
    if task is None:
        return None
    if kind == "math":
        return tasks.is_correct(question, verifier)
    if task.family not in PROGRAMS:
        return False
    unit_tests = _lines(verifier)
    return bool(unit_tests) and all(_holds(task, test) for test in unit_tests)


def _holds(task: Task, test: str) -> bool:
    """Whether a unit test is the one that the oracle's program gives for the same digits."""
    test_input = re.search(r"\d{1,99}", test)  # int() refuses thousands of digits
    if test_input is None:
        return False
    return test == _test(task.family, task.answer, test_input[0])
