"""LiveCodeBench's items, judged by the rules of its own checker."""

import json

import mirror
import pytest

from published import data
from published.grading import grade
from published.livecodebench import MODULES, RECURSION_LIMIT
from published.rows import Item

pytestmark = pytest.mark.usefixtures("landlock")

STARTER = "class Solution:\n    def pair(self, n: int) -> List[int]:\n        "
RECURSIVE = """def depth(n):
    return 0 if n == 0 else 1 + depth(n - 1)
"""


def function_item(*pairs: tuple[object, object]) -> Item:
    """Return an item whose function `pair` is called with each first value."""
    tests = []
    for argument, value in pairs:
        tests.append({"input": json.dumps(argument), "output": json.dumps(value)})
    row = mirror.livecodebench_row("pair", STARTER, tests[0], json.dumps(tests[1:]))
    return data.item("lcb_v1_5", row)


def script_item(stdin: str, stdout: str) -> Item:
    test = {"input": stdin, "output": stdout}
    row = mirror.livecodebench_row("script", "", test, "[]")
    return data.item("lcb_v1_5", row)


def method(expression: str) -> str:
    """Return a solution whose method returns the expression."""
    return f"class Solution:\n    def pair(self, n):\n        return {expression}\n"


def verdict(item: Item, program: str) -> str:
    return grade(item, f"```python\n{program}\n```").verdict


# Expressions of n that are 3 for n = 3 and use what the checker imports.
THREES = [
    "math.floor(n)",
    "floor(n)",
    "heapq.nsmallest(1, [n, 9])[0]",
    "heappop([n, 9])",
    "collections.Counter([n, n, 1]).most_common(1)[0][0]",
    "Counter([n, n, 1]).most_common(1)[0][0]",
    "defaultdict(int, {0: n})[0]",
    "collections.deque([n])[0]",
    "bisect.bisect_left([1, 2, 3, 4], 4)",
    "bisect_left([1, 2, 3, 4], 4)",
    "next(itertools.accumulate([n]))",
    "next(accumulate([n]))",
    "functools.reduce(operator.add, [n, 0])",
    "reduce(max, [n, 0])",
    "functools.cache(lambda k: k)(n)",
    "cache(lambda k: k)(n)",
    "len(re.findall('a', 'a' * n))",
    "len(string.ascii_lowercase[:n])",
    "len(ascii_lowercase[:n])",
    "copy.deepcopy([n])[0]",
    "deepcopy([n])[0]",
    "random.choice([n])",
    "int(statistics.mean([n]))",
    "datetime.date(2024, 1, n).day",
    "json.loads('3')",
    "io.StringIO('abc').seek(0, 2)",
    "pow(n, 1)",
    "abs(-n)",
    "len(Optional[int].__args__) + 1",
    "n if inf > n else 0",
    "sys.getrecursionlimit() - 49_997",
]


@pytest.mark.parametrize("expression", THREES)
def test_the_names_of_the_checker_need_no_import(expression: str) -> None:
    assert verdict(function_item((3, 3)), method(expression)) == "pass"
    script = f"n = int(input())\nprint({expression})"
    assert verdict(script_item("3\n", "3\n"), script) == "pass"


@pytest.mark.parametrize("module", MODULES)
def test_a_module_hides_what_it_contains_under_its_own_name(module: str) -> None:
    expression = f"type({module}).__name__"
    assert verdict(function_item((3, "module")), method(expression)) == "pass"


@pytest.mark.parametrize("name", ["os", "np", "numpy", "threading"])
def test_other_modules_need_an_import(name: str) -> None:
    assert verdict(function_item((3, "module")), method(f"{name}.x")) == "error"


class TestFunctions:
    VALUES = [
        ("[n, 1]", "pass"),
        ("(n, 1)", "pass"),
        ("[float(n), True]", "pass"),
        ("[1, n]", "wrong"),
        ("(1, n)", "wrong"),
        ("[n, 1, 1]", "wrong"),
        ("iter([n, 1])", "error"),
    ]

    @pytest.mark.parametrize(("expression", "expected"), VALUES)
    def test_a_tuple_is_a_list(self, expression: str, expected: str) -> None:
        assert verdict(function_item((3, [3, 1])), method(expression)) == expected

    def test_tuples_in_a_list_are_no_lists(self) -> None:
        item = function_item((3, [[3, 1]]))
        assert verdict(item, method("[(n, 1)]")) == "wrong"
        assert verdict(item, method("([n, 1],)")) == "pass"

    def test_one_object_answers_all_calls(self) -> None:
        program = (
            "class Solution:\n"
            "    calls = 0\n"
            "    def __init__(self):\n"
            "        self.calls = 0\n"
            "    def pair(self, n):\n"
            "        self.calls += 1\n"
            "        return self.calls\n"
        )
        assert verdict(function_item((7, 1), (7, 2), (7, 3)), program) == "pass"

    def test_a_function_without_the_class_will_do(self) -> None:
        item = function_item((3, [3, 1]))
        assert verdict(item, "def pair(n):\n    return [n, 1]") == "pass"
        assert verdict(item, "def other(n):\n    return [n, 1]") == "error"
        assert verdict(item, "class Solution:\n    pass") == "error"


class TestScripts:
    OUTPUTS = [
        ("print('0.5')", "pass"),
        ("print('0.50 ')", "pass"),
        ("print('5e-1\\n\\n')", "pass"),
        ("print('0.51')", "wrong"),
        ("print('0.5', '0.5')", "wrong"),
        ("print(0.5); sys.exit(1)", "pass"),
        ("print(0.5); exit()", "pass"),
        ("print(0.5); exit(1)\nprint(1)", "pass"),
        ("print(0.5); 1 / 0", "error"),
        ("if __name__ == '__main__':\n    print(0.5)", "pass"),
    ]

    @pytest.mark.parametrize(("program", "expected"), OUTPUTS)
    def test_lines_are_compared_as_numbers(self, program: str, expected: str) -> None:
        assert verdict(script_item("", "0.5\n\n\n"), program) == expected

    def test_usaco_compares_text(self) -> None:
        changes = {"problem_level": "gold", "tests": [["3\n", "6\n"]]}
        item = data.item("usaco", mirror.TESTS["usaco"][0] | changes)
        assert verdict(item, "print(6)\nprint()") == "pass"
        assert verdict(item, "print(6.0)") == "wrong"
        assert verdict(item, "print(math.floor(6))") == "error"


class TestRecursion:
    def test_a_program_may_recurse_as_deeply_as_in_the_checker(self) -> None:
        item = function_item((RECURSION_LIMIT - 100, RECURSION_LIMIT - 100))
        assert verdict(item, RECURSIVE + method("depth(n)")) == "pass"
        script = RECURSIVE + "print(depth(int(input())))"
        assert verdict(script_item("40000", "40000"), script) == "pass"

    # Recursion without end, through Python alone and through C's stack.
    ENDLESS = [
        "depth(-n)",
        "(lambda f: f(f))(lambda f: f(f))",
        "sys.setrecursionlimit(10**9) or (lambda f: f(f))(cache(lambda f: f(f)))",
        "sys.setrecursionlimit(10**9) or sorted([n], key=lambda k: self.pair(k))",
        "eval('(' * 10_000 + ')' * 10_000)",
        "repr(reduce(lambda inner, _: [inner], range(10**6), n))",
    ]

    @pytest.mark.parametrize("expression", ENDLESS)
    def test_endless_recursion_is_an_error_of_the_program(
        self, expression: str
    ) -> None:
        endless = RECURSIVE + method(expression)
        item = function_item((3, 3))
        assert verdict(item, endless) in ("error", "memory", "timeout")
        assert verdict(item, method("n")) == "pass"
