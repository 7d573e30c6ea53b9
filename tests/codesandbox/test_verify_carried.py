"""What crosses between a program and its tests: classes of plain data, changed arguments, iterators; and what cannot."""

import pytest

from codesandbox import texts
from codesandbox.code import run_calls, run_tests, valid_tests

pytestmark = pytest.mark.usefixtures("landlock")


def judged(program, expected, **options):
    return run_calls(program, "f", [(3,)], [expected], **options)


CLASSES = """
from collections import Counter, OrderedDict, defaultdict, namedtuple
from enum import IntEnum, StrEnum
Pair, Size, Word = namedtuple("Pair", "a b"), IntEnum("Size", "SMALL LARGE"), type("Word", (str,), {})
class Liar:
    def lie(self, *args): return 9
    __eq__ = __ne__ = __lt__ = lambda self, other: True
    __len__ = __index__ = __int__ = __hash__ = bit_length = lie
    __iter__ = items = keys = lambda self: iter([9])
    __getitem__ = copy = __str__ = __repr__ = __float__ = hex = lie
I, F, S, B, L, T, E, D = (type("Liar", (Liar, base), {})
                          for base in (int, float, str, bytes, list, tuple, set, dict))
"""


@pytest.mark.parametrize(
    ("expression", "expected", "other"),
    [
        ("Counter('aab')", {"a": 2, "b": 1}, {"a": 2}),
        ("defaultdict(list, a=[1])", {"a": [1]}, {}),
        ("OrderedDict(b=1, a=2)", {"a": 2, "b": 1}, {"a": 1, "b": 2}),
        ("Pair(1, [2])", (1, [2]), [1, [2]]),
        ("[Size.LARGE]", [2], [1]),
        ("StrEnum('C', 'RED').RED", "red", "RED"),
        ("{Word('k'): Word('v')}", {"k": "v"}, {}),
        # the content counts, not what its methods say
        ("I(3)", 3, 9),
        ("F(2.5)", 2.5, 9),
        ("F(2.0)", 2, 9),
        ("S('ab')", "ab", "9"),
        ("B(b'ab')", b"ab", b"9"),
        ("L([1, 2])", [1, 2], [9]),
        ("T([1, 2])", (1, 2), (9,)),
        ("E([1, 2])", {1, 2}, {9}),
        ("D(a=1)", {"a": 1}, {9: 9}),
        ("[L([I(1)])]", [[1]], [[9]]),
        ("bytearray(b'ab')", b"ab", b"9"),
    ],
)
def test_classes_of_plain_data_count_as_the_data_in_them(expression, expected, other):
    program = f"{CLASSES}def f(x): return {expression}"
    assert run_tests(program, f"assert f(3) == {expected!r}").verdict == "pass"
    assert run_tests(program, f"assert f(3) == {other!r}").verdict == "wrong"
    assert judged(program, expected, strict=False).verdict == "pass"
    assert judged(program, expected).verdict == ("wrong" if "bytearray" in expression else "error")


@pytest.mark.parametrize(
    ("expression", "verdict"),
    [
        ("S('a' * 2_000_000)", "output"),
        ("L([0] * 2_000_000)", "output"),
        ("D.fromkeys(range(500_000))", "output"),
        ("I(1 << 9_000_000)", "output"),
        ("Liar()", "error"),
        (
            "type('M', (type,), {'__subclasscheck__': lambda *a: True, '__instancecheck__': lambda *a: True})"
            "('C', (), {'__class__': dict})()",
            "error",
        ),
    ],
)
def test_classes_of_plain_data_are_as_bounded_as_the_data(expression, verdict):
    assert judged(f"{CLASSES}def f(x): return {expression}", 9, strict=False).verdict == verdict


def test_arguments_keep_the_order_of_their_keys():
    assert run_tests("def f(x): return list(x)", "assert f({'b': 1, 'a': 2}) == ['b', 'a']").verdict == "pass"


@pytest.mark.parametrize(
    ("body", "tests", "verdict"),
    [
        ("x.sort()", "x = [3, 1]\nf(x)\nassert x == [1, 3]", "pass"),
        ("pass", "x = [3, 1]\nf(x)\nassert x == [1, 3]", "wrong"),
        ("return sorted(x)", "x = [3, 1]\nf(x)\nassert x == [1, 3]", "wrong"),
        ("return sorted(x)", "x = [3, 1]\nassert f(x) == [1, 3] and x == [3, 1]", "pass"),
        ("x.sort(); return x", "x = [3, 1]\nassert f(x) == [1, 3] and x == [3, 1]", "wrong"),
        ("x.sort()", "x = y = [3, 1]\nf(x=x)\nassert y == [1, 3] and y is x", "pass"),
        ("pass", "x = [3, 1]\nf(x=x)\nassert x == [1, 3]", "wrong"),
        ("x['a'] = x.pop('b')", "d = {'b': [1]}\nf(d)\nassert d == {'a': [1]}", "pass"),
        ("y.add(len(x)); y.discard(5)", "s = {5}\nf('ab', y=s)\nassert s == {2}", "pass"),
        ("y.reverse()", "b = bytearray(b'ab')\nf(1, b)\nassert b == b'ba'", "pass"),
        ("pass", "b = bytearray(b'ab')\nf(1, b)\nassert b == b'ba'", "wrong"),
        ("x.append(object())", "x = [3, 1]\nf(x)\nassert x == [3, 1]", "error"),
        ("x.append(x)", "x = [3, 1]\nf(x)\nassert x == [3, 1]", "error"),
        ("x.extend([1] * 1_000_000)", "x = [3, 1]\nf(x)\nassert x == [3, 1]", "error"),
        (
            "import collections\n    return collections.Counter(x)",
            "for word in ['aab']: assert f(word)['a'] == 2",
            "pass",
        ),
        ("yield from range(x)", "assert list(f(3)) == [0, 1, 2]", "pass"),
        ("yield x", "assert f(3) == [3] or False", "wrong"),
        ("yield from range(x)", "assert list(f(3)) == [0, 1]", "wrong"),
        ("return range(x)", "assert sum(f(4)) == 6", "pass"),
        ("while True: yield x", "assert list(f(3)) == [0, 1, 2]", "error"),
    ],
)
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
    "Stack().pop()",
    "s = Stack()\ns.pop()",
    "class T:\n    def run(self):\n        self.s = Stack()\n        self.s.push(1)",
    "assert f(3).name == 'x'",
    "assert f(3)[0].name == 'x'",
    "assert Stack.kind == 1",
    "assert isinstance(f(1), Stack)",
    "assert f(lambda x: x, [1]) == [1]",
    "def g(x): return x\nassert f(g, [1]) == [1]",
    "f(len, ['a'])",
    "assert f(Stack()) == 0",
    "class N: pass\nassert f(N()) == 0",
    "assert next(f(3)) == 0",
    "g = f(3)\nassert next(g) == 0",
    "import asyncio\nassert asyncio.run(f(3)) == 0",
    "assert f(3)(4) == 7",
    "g = f(3)\nassert g(4) == 7",
    "with f(3) as x: assert x",
    "try: f(1)\nexcept Oops: pass",
    "@f\ndef g(): return 1\nassert g() == 1",
    "class B(Stack): pass\nassert B().x",
    "f.cache_clear()",
    "import pytest\nwith pytest.raises(Oops): f(1)",
    "a, b = f(3)\nassert a.name == 'x'",
    "for x in f(3): assert x.name == 'x'",
    "assert [x.name for x in f(3)] == ['x']",
    "@f(3)\ndef g(): pass",
]
DATA = [
    "assert f('ab').strip().split() == ['ab']",
    "assert sorted(f(3)) == [1]",
    "s = f('a')\nassert s.upper() == 'A'",
    "assert list(map(f, [1])) == [2]",
    "assert f(*[1], **{'a': 2}) == 3",
    "check = f\nassert check(3) == 9",
    "for x in f(3): assert x",
    "assert f.__name__ == 'f'",
    "d = f(3)\nd['a'].append(1)",
    "assert Diff([1], [2]) == {1}",
    "import math\nassert math.isclose(f(x=[1, (2,)]), 2.0)",
    "assert f(f(3)) == 81",
    "assert {}.get(f(1)) is None",
    "def check(g):\n    assert g(2) == 4\ncheck(f)",
    "for input in [1]: assert f(input) == 2",
    "def run(x): assert x == 9\nrun(f(3))",
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
