"""Programs of the tiny world: answers as Python source, unit tests as verifiers.

Nothing in this module runs a program: the sandbox does (codesandbox.code).
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
    lines = [line.strip() for line in verifier.splitlines()]
    unit_tests = [line for line in lines if line]
    return bool(unit_tests) and all(_holds(task, test) for test in unit_tests)


def _holds(task: Task, test: str) -> bool:
    """Whether a unit test is the one that the oracle's program gives for the same digits."""
    test_input = re.search(r"\d{1,99}", test)  # int() refuses thousands of digits
    if test_input is None:
        return False
    return test == _test(task.family, task.answer, test_input[0])
