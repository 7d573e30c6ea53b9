"""Families about symbols: sorting, reversing, counting, swapping, functions, list programs."""

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from tinyworld.family import Family, TextFamily, level_by_limits

DIGITS = "0123456789"
LETTERS = "abcdefghij"
OPERATIONS: dict[
    str, Callable[[str], str]
] = {  # of list programs, on text that is not empty
    "sort": lambda text: "".join(sorted(text)),
    "rev": lambda text: text[::-1],
    "max": max,
    "min": min,
    "first": lambda text: text[:1],
    "last": lambda text: text[-1:],
    "tail": lambda text: text[1:],
}
PROGRAMS = dict.fromkeys(OPERATIONS, 1) | {  # the level of each list program
    "sort rev": 2,
    "tail sort": 2,
    "sort tail": 3,
    "rev tail": 3,
    "tail rev": 3,
}
# Test inputs of list programs: they separate each of PROGRAMS from every other function.
HIDDEN_STRINGS = ("5274", "381", "96", "7150", "204", "1578")
HIDDEN_NUMBERS = (0, 4, 5, 7, 11)  # test inputs of one-line functions
# A longer one may be built to be slow.
EXPRESSION = re.compile(r"(?!.*0x)[x0-9+*() -]{1,40}")
ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def run_operations(program: str, text: str) -> str:
    """Apply list operations, separated by spaces, from left to right; empty text stays empty."""
    for name in program.split(" "):
        text = OPERATIONS[name](text) if text else ""
    return text


def evaluate(expression: str, x: int) -> int | None:
    """Evaluate an expression of x, whole numbers, + - * and brackets; None for anything else."""
    if not EXPRESSION.fullmatch(expression):
        return None
    try:
        return _value(ast.parse(expression, mode="eval").body, x)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _value(node: ast.AST, x: int) -> int:
    """Evaluate a node of a syntax tree; ValueError for a node that is not arithmetic."""
    match node:
        case ast.BinOp() if type(node.op) in ARITHMETIC:
            operation = ARITHMETIC[type(node.op)]
            return operation(_value(node.left, x), _value(node.right, x))
        case ast.UnaryOp(op=ast.USub()):
            return -_value(node.operand, x)
        case ast.Name(id="x"):
            return x
        case ast.Constant(value=int() as number):
            return number
    raise ValueError(f"expected arithmetic, got {type(node).__name__}")


def linear(slope: int, offset: int) -> str:
    """Write slope * x + offset as the demonstrations do."""
    product = "x" if slope == 1 else f"x*{slope}"
    return product + (f"{offset:+d}" if offset else "")


def _level_by_length(*limits: int) -> Callable[..., int]:
    """Return a function that levels a question by the length of its last part."""

    def level(*parts: str) -> int:
        return level_by_limits(len(parts[-1]), *limits)

    return level


# Sorting and reversing


def _draw_sort(rng: Random, level: int) -> str:
    digits = [rng.choice(DIGITS) for _ in range(level + 2)]
    return f"sort {''.join(digits)}"


SORTING = TextFamily(
    name="sort",
    pattern=r"sort (\d{2,6})",
    draw=_draw_sort,
    answer=partial(run_operations, "sort"),
    level=_level_by_length(3, 4),
    misconception=partial(run_operations, "sort rev"),
    plan="smallest first",
    answer_type="List",
)


def _draw_reversal(rng: Random, level: int) -> str:
    letters = [rng.choice(LETTERS) for _ in range(level + 1)]
    return f"rev {' '.join(letters)}"


REVERSAL = Family(
    name="rev",
    pattern=r"rev ([a-z](?: [a-z]){1,5})",
    draw=_draw_reversal,
    answer=partial(run_operations, "rev"),
    level=_level_by_length(3, 5),
    misconception=str,
    plan="read from the end",
    answer_type="List",
)


# Counting and swapping


def _draw_count(rng: Random, level: int) -> str:
    letter = rng.choice("abc")
    letters = [rng.choice("abc") for _ in range(level + 2)]
    return f"count {letter} in {' '.join(letters)}"


def _count(letter: str, letters: str) -> int:
    return letters.count(letter)


def _count_one_too_many(letter: str, letters: str) -> int:
    return letters.count(letter) + 1


COUNTING = Family(
    name="count",
    pattern=r"count ([a-z]) in ([a-z](?: [a-z]){0,7})",
    draw=_draw_count,
    answer=_count,
    level=_level_by_length(5, 7),
    misconception=_count_one_too_many,
    plan="count",
)


def _draw_swap(rng: Random, level: int) -> str:
    moves = [rng.choice(["12", "13", "23"])]
    while len(moves) < level:
        other_moves = [move for move in ("12", "13", "23") if move != moves[-1]]
        moves.append(rng.choice(other_moves))
    letters = rng.sample(LETTERS, 3)
    return f"swap {' '.join(letters)} {' '.join(moves)}"


def _swap(letters: str, moves: str, steps: int | None = None) -> str:
    """Swap the letters at the two places of each move; only the first `steps` moves if given."""
    row = letters.split()
    for move in moves.split()[:steps]:
        i = int(move[0]) - 1
        j = int(move[1]) - 1
        row[i], row[j] = row[j], row[i]
    return " ".join(row)


def _swap_half(letters: str, moves: str) -> str:
    return _swap(letters, moves, len(moves.split()) // 2)


def _swap_level(letters: str, moves: str) -> int:
    return len(moves.split())


SWAPPING = Family(
    name="swap",
    pattern=r"swap ([a-j](?: [a-j]){2})((?: (?:12|13|23)){1,3})",
    draw=_draw_swap,
    answer=_swap,
    level=_swap_level,
    misconception=_swap_half,
    plan="swap in turn",
    answer_type="List",
)


# One-line functions


@dataclass(frozen=True)
class Line:
    """The function slope * x + offset."""

    slope: int
    offset: int

    def at(self, x: int) -> int:
        """Return the value at x."""
        return self.slope * x + self.offset


def _draw_line(rng: Random, level: int) -> Line:
    if level == 1:
        if rng.random() < 0.7:
            return Line(rng.randint(2, 6), 0)
        return Line(1, rng.randint(1, 9))
    if level == 2:
        return Line(rng.randint(2, 4), rng.randint(1, 3))
    if rng.random() < 0.5:
        return Line(rng.randint(5, 6), rng.randint(1, 5))
    slope = rng.randint(2, 5)
    return Line(slope, -rng.randint(1, slope))


def _draw_function(rng: Random, level: int) -> str:
    line = _draw_line(rng, level)
    x = rng.randint(1, 8)
    return f"f({x})={line.at(x)} f({x + 1})={line.at(x + 1)} f="


def _fit(x: int, y: int, x_2: int, y_2: int) -> Line | None:
    """Return the line through both examples, or None unless this world has it."""
    if x_2 <= x or (y_2 - y) % (x_2 - x):
        return None
    slope = (y_2 - y) // (x_2 - x)
    offset = y - slope * x
    if not 1 <= slope <= 9 or not -9 <= offset <= 9:
        return None
    return Line(slope, offset)


def _fit_function(*examples: int) -> str | None:
    line = _fit(*examples)
    return linear(line.slope, line.offset) if line else None


def _function_level(*examples: int) -> int:
    line = _fit(*examples)
    if line.offset == 0 or line.slope == 1:
        return 1
    return 2 if 0 < line.offset <= 3 and line.slope <= 4 else 3


def _fit_first_example(x: int, y: int, x_2: int, y_2: int) -> str:
    """Return a function through the first example only: x + c, or x * c where that is correct."""
    answer = _fit_function(x, y, x_2, y_2)
    guess = linear(1, y - x)
    if guess != answer:
        return guess
    if answer == "x":
        return "x*2"
    return f"x*{y // x if x else y}"


def _is_same_function(answer: str, *examples: int) -> bool:
    line = _fit(*examples)
    return all(evaluate(answer, x) == line.at(x) for x in HIDDEN_NUMBERS)


FUNCTION = Family(
    name="code",
    pattern=r"f\((\d)\)=(\d{1,2}) f\((\d)\)=(\d{1,2}) f=",
    draw=_draw_function,
    answer=_fit_function,
    level=_function_level,
    misconception=_fit_first_example,
    plan="fit both examples",
    answer_type="Expression",
)


# List programs


def _draw_program(rng: Random, level: int) -> str:
    programs = [
        name for name, program_level in PROGRAMS.items() if program_level == level
    ]
    while True:
        program = rng.choice(programs)
        text = "".join(rng.sample(DIGITS, 3))
        text_2 = "".join(rng.sample(DIGITS, 3))
        result = run_operations(program, text)
        result_2 = run_operations(program, text_2)
        # A shorter program may fit both examples by chance.
        if _is_same_program(program, text, result, text_2, result_2):
            return f"g({text})={result} g({text_2})={result_2} g="


def _fit_program(text: str, result: str, text_2: str, result_2: str) -> str | None:
    """Return the first list program that fits both examples, or None."""
    for program in PROGRAMS:
        if run_operations(program, text) != result:
            continue
        if run_operations(program, text_2) == result_2:
            return program
    return None


def _program_level(*examples: str) -> int:
    return PROGRAMS[_fit_program(*examples)]


def _first_operation(*examples: str) -> str:
    """Stop after the first operation; with only one, take another."""
    first, _, rest = _fit_program(*examples).partition(" ")
    if rest:
        return first
    return "rev" if first == "sort" else "sort"


def _is_same_program(answer: str, *examples: str) -> bool:
    operations = answer.split(" ")
    if len(operations) > 4 or not set(operations) <= OPERATIONS.keys():
        return False
    gold = _fit_program(*examples)
    return all(
        run_operations(answer, text) == run_operations(gold, text)
        for text in HIDDEN_STRINGS
    )


PROGRAM = TextFamily(
    name="ops",
    pattern=r"g\((\d{2,4})\)=(\d{1,4}) g\((\d{2,4})\)=(\d{1,4}) g=",
    draw=_draw_program,
    answer=_fit_program,
    level=_program_level,
    misconception=_first_operation,
    plan="fit both examples",
    answer_type="String",
)


# (answer, *values of the question): whether the answer is correct in other words.
EQUAL = {"code": _is_same_function, "ops": _is_same_program}
FAMILIES = (SORTING, REVERSAL, COUNTING, SWAPPING, FUNCTION, PROGRAM)
