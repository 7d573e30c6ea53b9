"""Families about sequences and programs: sorting, reversing, counting, swapping, one-line code, list operations."""

import ast
import operator
import re
from random import Random

from tinyworld.family import Family, band

LETTERS = "abcdefghij"
OPERATIONS = {
    "sort": lambda s: "".join(sorted(s)),
    "rev": lambda s: s[::-1],
    "max": max,
    "min": min,
    "first": lambda s: s[:1],
    "last": lambda s: s[-1:],
    "tail": lambda s: s[1:],
}
PROGRAMS = (
    *((name,) for name in OPERATIONS),
    ("sort", "rev"),
    ("tail", "sort"),
    ("sort", "tail"),
    ("rev", "tail"),
    ("tail", "rev"),
)
MEDIUM = {("sort", "rev"), ("tail", "sort")}
# What a list program is tested on: enough to tell every program here from all that are not the same function.
HIDDEN_STRINGS = ("5274", "381", "96", "7150", "204", "1578")
HIDDEN_NUMBERS = (0, 4, 5, 7, 11)  # what a one-line function is tested on
EXPRESSION = re.compile(r"(?!.*0x)[x0-9+*() -]{1,40}")  # a longer one may be built to be slow
ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def run_operations(program: tuple[str, ...], text: str) -> str:
    """Apply list operations from left to right; an empty string stays empty."""
    for name in program:
        text = OPERATIONS[name](text) if text else ""
    return text


def evaluate(expression: str, x: int) -> int | None:
    """Value of a one-line expression of x, whole numbers, + - * and brackets; None for anything else."""

    def value(node: ast.AST) -> int:
        match node:
            case ast.BinOp() if type(node.op) in ARITHMETIC:
                return ARITHMETIC[type(node.op)](value(node.left), value(node.right))
            case ast.UnaryOp(op=ast.USub()):
                return -value(node.operand)
            case ast.Name(id="x"):
                return x
            case ast.Constant(value=int() as number):
                return number
        raise ValueError(expression)

    if not EXPRESSION.fullmatch(expression):
        return None
    try:
        return value(ast.parse(expression, mode="eval").body)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def linear(slope: int, offset: int) -> str:
    """Write slope * x + offset the way the demonstrations do."""
    return ("x" if slope == 1 else f"x*{slope}") + (f"{offset:+d}" if offset else "")


def _sequence(word: str, alphabet: str, extra: int, separator: str):
    def draw(rng: Random, level: int) -> str:
        return f"{word} {separator.join(rng.choice(alphabet) for _ in range(level + extra))}"

    return draw


def _count(rng: Random, level: int) -> str:
    return f"count {rng.choice('abc')} in {' '.join(rng.choice('abc') for _ in range(level + 2))}"


def _swap(rng: Random, level: int) -> str:
    moves = [rng.choice(["12", "13", "23"])]
    while len(moves) < level:
        moves.append(rng.choice([move for move in ("12", "13", "23") if move != moves[-1]]))
    return f"swap {' '.join(rng.sample(LETTERS, 3))} {' '.join(moves)}"


def _swapped(m: re.Match[str], steps: int | None = None) -> str:
    letters = m[1].split()
    for move in m[2].split()[:steps]:
        i, j = int(move[0]) - 1, int(move[1]) - 1
        letters[i], letters[j] = letters[j], letters[i]
    return " ".join(letters)


def _function(rng: Random, level: int) -> str:
    if level == 1:
        slope, offset = (rng.randint(2, 5), 0) if rng.random() < 0.7 else (1, rng.randint(1, 9))
    elif level == 2:
        slope, offset = rng.randint(2, 3), rng.randint(1, 3)
    elif rng.random() < 0.5:
        slope, offset = rng.randint(4, 5), rng.randint(1, 5)
    else:
        slope, offset = rng.randint(2, 4), -rng.randint(1, 2)
    x = rng.randint(1, 3)
    return f"f({x})={slope * x + offset} f({x + 1})={slope * (x + 1) + offset} f="


def _fit(m: re.Match[str]) -> tuple[int, int] | None:
    x, y, x2, y2 = map(int, m.groups())
    if x2 <= x or (y2 - y) % (x2 - x):
        return None
    slope = (y2 - y) // (x2 - x)
    offset = y - slope * x
    return (slope, offset) if 1 <= slope <= 9 and -9 <= offset <= 9 else None


def _function_answer(m: re.Match[str]) -> str | None:
    fit = _fit(m)
    return linear(*fit) if fit else None


def _function_level(m: re.Match[str]) -> int:
    slope, offset = _fit(m)
    return 1 if offset == 0 or slope == 1 else 2 if 0 < offset <= 3 and slope <= 3 else 3


def _first_example_only(m: re.Match[str]) -> str:
    x, y = int(m[1]), int(m[2])
    guess, answer = linear(1, y - x), _function_answer(m)
    if guess != answer:
        return guess
    return "x*2" if answer == "x" else f"x*{y // x if x else y}"


def _same_function(m: re.Match[str], answer: str) -> bool:
    slope, offset = _fit(m)
    return all(evaluate(answer, x) == slope * x + offset for x in HIDDEN_NUMBERS)


def _program_level(program: tuple[str, ...]) -> int:
    return 1 if len(program) == 1 else 2 if program in MEDIUM else 3


def _program_question(rng: Random, level: int) -> str:
    choices = [program for program in PROGRAMS if _program_level(program) == level]
    while True:
        program = rng.choice(choices)
        inputs = ["".join(rng.sample("0123456789", 3)) for _ in range(2)]
        question = " ".join(f"g({text})={run_operations(program, text)}" for text in inputs) + " g="
        match = PROGRAM_PATTERN.fullmatch(question)
        if match and _same_program(match, " ".join(program)):  # a shorter program may fit both examples by chance
            return question


def _program_answer(m: re.Match[str]) -> str | None:
    for program in PROGRAMS:
        if run_operations(program, m[1]) == m[2] and run_operations(program, m[3]) == m[4]:
            return " ".join(program)
    return None


def _same_program(m: re.Match[str], answer: str) -> bool:
    program, gold = tuple(answer.split(" ")), tuple(_program_answer(m).split(" "))
    if len(program) > 4 or not set(program) <= OPERATIONS.keys():
        return False
    return all(run_operations(program, text) == run_operations(gold, text) for text in HIDDEN_STRINGS)


def _first_step_only(m: re.Match[str]) -> str:
    program = _program_answer(m).split(" ")
    return program[0] if len(program) > 1 else ("rev" if program[0] == "sort" else "sort")


PROGRAM_PATTERN = re.compile(r"g\((\d{2,4})\)=(\d{1,4}) g\((\d{2,4})\)=(\d{1,4}) g=")
FAMILIES = (
    Family(
        "sort",
        re.compile(r"sort (\d{2,6})"),
        _sequence("sort", "0123456789", 2, ""),
        lambda m: "".join(sorted(m[1])),
        lambda m: band(len(m[1]), 3, 4),
        lambda m: "".join(sorted(m[1], reverse=True)),
        "smallest first",
        answer_type="List",
        seeded=False,
        in_documents=False,
    ),  # largest first
    Family(
        "rev",
        re.compile(r"rev ([a-z](?: [a-z]){1,5})"),
        _sequence("rev", LETTERS, 1, " "),
        lambda m: m[1][::-1],
        lambda m: band(len(m[1]), 3, 5),
        lambda m: m[1],
        "read from the end",
        answer_type="List",
        seeded=False,
        in_documents=False,
    ),  # echoes
    Family(
        "count",
        re.compile(r"count ([a-z]) in ([a-z](?: [a-z]){0,7})"),
        _count,
        lambda m: str(m[2].count(m[1])),
        lambda m: band(len(m[2]), 5, 7),
        lambda m: str(m[2].count(m[1]) + 1),
        "count",
        seeded=False,
        in_documents=False,
    ),  # one too many
    Family(
        "swap",
        re.compile(r"swap ([a-j](?: [a-j]){2})((?: (?:12|13|23)){1,3})"),
        _swap,
        _swapped,
        lambda m: len(m[2].split()),
        lambda m: _swapped(m, len(m[2].split()) // 2),
        "swap in turn",
        answer_type="List",
        seeded=False,
        in_documents=False,
    ),  # forgets the last moves
    Family(
        "code",
        re.compile(r"f\((\d)\)=(\d{1,2}) f\((\d)\)=(\d{1,2}) f="),
        _function,
        _function_answer,
        _function_level,
        _first_example_only,
        "fit both examples",
        answer_type="Expression",
        equal=_same_function,
    ),
    Family(
        "ops",
        PROGRAM_PATTERN,
        _program_question,
        _program_answer,
        lambda m: _program_level(tuple(_program_answer(m).split(" "))),
        _first_step_only,
        "fit both examples",
        answer_type="String",
        in_documents=False,
        equal=_same_program,
    ),
)
