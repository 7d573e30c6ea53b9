"""Families about sequences and programs: sorting, reversing, counting, swapping, one-line code, list operations."""

import ast
import operator
import re
from collections.abc import Callable
from functools import partial
from random import Random

from tinyworld.family import Family, TextFamily, band

DIGITS, LETTERS = "0123456789", "abcdefghij"
OPERATIONS = {
    "sort": lambda s: "".join(sorted(s)),
    "rev": lambda s: s[::-1],
    "max": max,
    "min": min,
    "first": lambda s: s[:1],
    "last": lambda s: s[-1:],
    "tail": lambda s: s[1:],
}
# The level of each list program.
PROGRAMS = dict.fromkeys(OPERATIONS, 1) | {"sort rev": 2, "tail sort": 2, "sort tail": 3, "rev tail": 3, "tail rev": 3}
# What a list program is tested on: enough to tell every program here from all that are not the same function.
HIDDEN_STRINGS = ("5274", "381", "96", "7150", "204", "1578")
HIDDEN_NUMBERS = (0, 4, 5, 7, 11)  # what a one-line function is tested on
EXPRESSION = re.compile(r"(?!.*0x)[x0-9+*() -]{1,40}")  # a longer one may be built to be slow
ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
REVERSAL = r"rev ([a-z](?: [a-z]){1,5})"
COUNT = r"count ([a-z]) in ([a-z](?: [a-z]){0,7})"
SWAP = r"swap ([a-j](?: [a-j]){2})((?: (?:12|13|23)){1,3})"
FUNCTION = r"f\((\d)\)=(\d{1,2}) f\((\d)\)=(\d{1,2}) f="
PROGRAM = r"g\((\d{2,4})\)=(\d{1,4}) g\((\d{2,4})\)=(\d{1,4}) g="


def run_operations(program: str, text: str) -> str:
    """Apply list operations, separated by spaces, from left to right; an empty string stays empty."""
    for name in program.split(" "):
        text = OPERATIONS[name](text) if text else ""
    return text


SORTED, REVERSED, DESCENDING = (partial(run_operations, program) for program in ("sort", "rev", "sort rev"))


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


def _digits(rng: Random, level: int) -> str:
    return f"sort {''.join(rng.choice(DIGITS) for _ in range(level + 2))}"


def _letters(rng: Random, level: int) -> str:
    return f"rev {' '.join(rng.choice(LETTERS) for _ in range(level + 1))}"


def _length(*limits: int) -> Callable[..., int]:
    """Level by how long the last part of a question is."""
    return lambda *parts: band(len(parts[-1]), *limits)


def _count(rng: Random, level: int) -> str:
    return f"count {rng.choice('abc')} in {' '.join(rng.choice('abc') for _ in range(level + 2))}"


def _one_more(letter: str, letters: str) -> int:
    return letters.count(letter) + 1


def _swap(rng: Random, level: int) -> str:
    moves = [rng.choice(["12", "13", "23"])]
    while len(moves) < level:
        moves.append(rng.choice([move for move in ("12", "13", "23") if move != moves[-1]]))
    return f"swap {' '.join(rng.sample(LETTERS, 3))} {' '.join(moves)}"


def _swapped(letters: str, moves: str, steps: int | None = None) -> str:
    row = letters.split()
    for move in moves.split()[:steps]:
        i, j = int(move[0]) - 1, int(move[1]) - 1
        row[i], row[j] = row[j], row[i]
    return " ".join(row)


def _half_swapped(letters: str, moves: str) -> str:
    return _swapped(letters, moves, len(moves.split()) // 2)


def _moves(letters: str, moves: str) -> int:
    return len(moves.split())


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


def _fit(x: int, y: int, x_2: int, y_2: int) -> tuple[int, int] | None:
    """Slope and offset of the line through both examples, if it is one of this world."""
    if x_2 <= x or (y_2 - y) % (x_2 - x):
        return None
    slope = (y_2 - y) // (x_2 - x)
    offset = y - slope * x
    return (slope, offset) if 1 <= slope <= 9 and -9 <= offset <= 9 else None


def _fitted(*examples: int) -> str | None:
    fit = _fit(*examples)
    return linear(*fit) if fit else None


def _function_level(*examples: int) -> int:
    slope, offset = _fit(*examples)
    return 1 if offset == 0 or slope == 1 else 2 if 0 < offset <= 3 and slope <= 3 else 3


def _first_example(x: int, y: int, *second: int) -> str:
    guess, answer = linear(1, y - x), _fitted(x, y, *second)
    if guess != answer:
        return guess
    return "x*2" if answer == "x" else f"x*{y // x if x else y}"


def _same_function(answer: str, *examples: int) -> bool:
    slope, offset = _fit(*examples)
    return all(evaluate(answer, x) == slope * x + offset for x in HIDDEN_NUMBERS)


def _program(rng: Random, level: int) -> str:
    programs = [program for program, program_level in PROGRAMS.items() if program_level == level]
    while True:
        program = rng.choice(programs)
        inputs = ["".join(rng.sample(DIGITS, 3)) for _ in range(2)]
        examples = [text for given in inputs for text in (given, run_operations(program, given))]
        if _same_program(program, *examples):  # a shorter program may fit both examples by chance
            return "g({})={} g({})={} g=".format(*examples)


def _found(a: str, b: str, c: str, d: str) -> str | None:
    fits = (program for program in PROGRAMS if run_operations(program, a) == b and run_operations(program, c) == d)
    return next(fits, None)


def _same_program(answer: str, *examples: str) -> bool:
    names, gold = answer.split(" "), _found(*examples)
    if len(names) > 4 or not set(names) <= OPERATIONS.keys():
        return False
    return all(run_operations(answer, text) == run_operations(gold, text) for text in HIDDEN_STRINGS)


def _program_level(*examples: str) -> int:
    return PROGRAMS[_found(*examples)]


def _first_step(*examples: str) -> str:
    first, _, rest = _found(*examples).partition(" ")
    return first if rest else "rev" if first == "sort" else "sort"


EQUAL = {"code": _same_function, "ops": _same_program}  # (answer, *groups): right answers in other words
FAMILIES = (  # name, pattern, draw, answer, level, misconception, plan, answer type
    # largest first
    TextFamily("sort", r"sort (\d{2,6})", _digits, SORTED, _length(3, 4), DESCENDING, "smallest first", "List"),
    # echoes
    Family("rev", REVERSAL, _letters, REVERSED, _length(3, 5), str, "read from the end", "List"),
    # one too many
    Family("count", COUNT, _count, lambda letter, text: text.count(letter), _length(5, 7), _one_more, "count"),
    # forgets the last moves
    Family("swap", SWAP, _swap, _swapped, _moves, _half_swapped, "swap in turn", "List"),
    # looks at the first example only
    Family("code", FUNCTION, _function, _fitted, _function_level, _first_example, "fit both examples", "Expression"),
    # stops after the first operation
    TextFamily("ops", PROGRAM, _program, _found, _program_level, _first_step, "fit both examples", "String"),
)
