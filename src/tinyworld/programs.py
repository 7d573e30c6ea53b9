"""Programs of the tiny world: an answer as Python source, unit tests as verifiers, and what the oracle says of them.

Nothing here runs a program: that is the sandbox's business (codesandbox.code).
"""

import re
from functools import lru_cache

from tinyworld import symbols, tasks
from tinyworld.tasks import Task

PROGRAMS = ("code", "ops")  # families whose answers are programs; a verifier of any other is a gold answer
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
    """Write one unit test of a program as an assert, with the value that `answer` gives."""
    numbers = [int(n) for n in re.findall(r"\d+", task.question)]
    given = str(numbers[2] + 1) if task.family == "code" else symbols.HIDDEN_STRINGS[numbers[0] % 2 + 1]
    return _test(task.family, answer, given)


def _test(family: str, answer: str, given: str) -> str:
    """The assert that the program `answer` has this value for the digits `given`."""
    if family == "code":
        return f"assert f({given})=={symbols.evaluate(answer, int(given))}"
    return f'assert g("{given}")=="{symbols.run_operations(answer, given)}"'


def verifier_of(task: Task, answer: str) -> tuple[str, str]:
    """SAGE's verifier of a question: (math, the gold answer) or (code, the tests)."""
    return ("code", tests_of(task, answer)) if task.family in PROGRAMS else ("math", answer)


def program(question: str, answer: str) -> str:
    """Write an answer as Python source: a list program g of a string, or a one-line function f of a number.

    What defines a function by itself stays as it is. The answer is model text and is not checked: an unknown
    operation or a broken expression is a broken program.
    """
    if DEFINITION.search(answer):
        return answer
    return LIST_PROGRAM.format(answer) if question.startswith("g(") else f"def f(x):\n    return {answer}\n"


@lru_cache(maxsize=200_000)
def sound(question: str, kind: str, verifier: str) -> bool | None:
    """Whether a verifier accepts what the oracle calls right; None for a question that the oracle cannot read."""
    task = tasks.read(question)
    if task is None:
        return None
    if kind == "math":
        return tasks.is_correct(question, verifier)
    if task.family not in PROGRAMS:
        return False
    tests = [line.strip() for line in verifier.splitlines() if line.strip()]
    return bool(tests) and all(_holds(task, test) for test in tests)


def _holds(task: Task, test: str) -> bool:
    """Whether a test is the one that the oracle's program gives for the same digits."""
    given = re.search(r"\d{1,99}", test)  # int() refuses thousands of digits
    return bool(given) and test == _test(task.family, task.answer, given[0])
