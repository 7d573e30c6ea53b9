"""The outer structure of a formula: lists, tuples, intervals, sets, relations, matrices.

`read_shape` splits a formula at its outermost marks; what it cannot split is a leaf, an
expression, which `expressions` parses. Both work on the tokens of this module.
"""

import re
from dataclasses import dataclass

from coevolve.text.verify.tables import SIGNS

FormulaTokens = tuple[str, ...]

FUNCTIONS = frozenset(SIGNS["formulas"]["functions"])
GREEK = frozenset(SIGNS["formulas"]["greek"])
IGNORED = frozenset(SIGNS["formulas"]["ignored"])
SPELLINGS: dict[str, str] = SIGNS["tokens"]  # of words, commands and signs
NEGATED = {"=": "\\ne", "\\in": "\\notin"}
TOKEN = re.compile(
    r"\\begin\s*\{[a-zA-Z]+\*?\}|\\end\s*\{[a-zA-Z]+\*?\}|\\mathbb\s*\{?\s*[RZNQC]\s*\}?"
    r"|\\mathbb|\\[A-Za-z]+|\\.|[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3}(?![0-9A-Za-z.^{]))?"
    r"|\.[0-9]+|[A-Za-z]+|\s+|\*\*|<=|>=|!=|==|\.\.\.|.",
    re.DOTALL,
)
LETTERS = re.compile("[A-Za-z]+")
PRODUCT = re.compile("[a-z]{1,2}|[a-z][A-Z]|[abcxyz]{3}")


class UnreadableError(ValueError):
    """The closed grammar cannot read the text."""


def tokenise(text: str) -> FormulaTokens:
    """Return the tokens of a formula, with one spelling for each sign and no blanks."""
    tokens: list[str] = []
    for found in TOKEN.findall(text):
        if found.isspace() or found in IGNORED:
            continue
        if LETTERS.fullmatch(found):
            tokens.extend(_letters(found))
        elif found.startswith("\\mathbb") and len(found) > len("\\mathbb"):
            letter = found.strip(" {}")[-1]
            tokens.append(f"\\{letter}{letter}")
        elif found[:6] == "\\begin" or found[:4] == "\\end":
            tokens.append(found.replace(" ", ""))
        else:
            tokens.append(SPELLINGS.get(found, found))
    return tuple(_negated(tokens))


def _negated(tokens: list[str]) -> list[str]:
    """Join `\\not` with the sign that it strikes through."""
    joined: list[str] = []
    for token in tokens:
        if joined and joined[-1] == "\\not":
            joined[-1] = NEGATED.get(token, f"\\not{token}")
        else:
            joined.append(token)
    return joined


def _letters(word: str) -> list[str]:
    """Split letters into variables; functions and words of the grammar stay whole."""
    if word in SPELLINGS:
        return [SPELLINGS[word]]
    if word in FUNCTIONS:
        command = "\\" + word
        return [SPELLINGS.get(command, command)]
    if word.endswith("pi") and len(word) == 3:
        return [word[0], "\\pi"]
    return list(word) if PRODUCT.fullmatch(word) else [word]


@dataclass(frozen=True)
class Leaf:
    """An expression without outer structure."""

    tokens: FormulaTokens


@dataclass(frozen=True)
class Group:
    """Items in brackets: `()`, `[]`, `(]`, `[)`, `{}`, `<>`, or "" for a bare list."""

    brackets: str
    items: "tuple[Shape, ...]"
    joined_by: str = ","  # or "and", "or"


@dataclass(frozen=True)
class Relation:
    """Sides joined by relations: `-4 < x \\le 9`."""

    sides: "tuple[Shape, ...]"
    signs: tuple[str, ...]


@dataclass(frozen=True)
class Combination:
    """Sets joined by `\\cup`, `\\cap` or `\\setminus`, from the left."""

    parts: "tuple[Shape, ...]"
    signs: tuple[str, ...]


@dataclass(frozen=True)
class Named:
    """The set of real numbers or another set with a name of its own, or the empty set."""

    name: str


@dataclass(frozen=True)
class Builder:
    """A set by its condition: `\\{x \\mid x > 6\\}`."""

    condition: "Shape"


@dataclass(frozen=True)
class Matrix:
    """Rows of a matrix or vector."""

    rows: "tuple[tuple[Shape, ...], ...]"


Shape = Leaf | Group | Relation | Combination | Named | Builder | Matrix

OPENING = {"(": ")", "[": "]", "\\{": "\\}", "{": "}", "\\langle": "\\rangle"}
CLOSING = frozenset(OPENING.values())
MIXED_CLOSING = {"(": ")]", "[": ")]"}
RELATIONS = frozenset(("=", "<", ">", "\\le", "\\ge", "\\ne", "\\in", "\\notin"))
RELATIONS |= {"\\approx", "\\equiv", "\\cong", "\\sim"}
SET_STARTS = ("(", "[", "\\{")
SET_ENDS = (")", "]", "\\}")
SET_SIGNS = frozenset(("\\cup", "\\cap", "\\setminus"))
SETS = {
    "\\RR": "R",
    "\\ZZ": "Z",
    "\\NN": "N",
    "\\QQ": "Q",
    "\\CC": "C",
    "\\emptyset": "empty",
}
SEPARATORS = frozenset((",", ";", "and", "or"))
MATRIX_ENDS = re.compile(r"\\begin\{([pbvBV]?matrix|array|smallmatrix)\}")
BAR = ("\\mid", "|", ":")


def read_shape(tokens: FormulaTokens) -> Shape:
    """Read the outer structure of a formula. Raises UnreadableError for unbalanced brackets."""
    if not tokens:
        raise UnreadableError("empty")
    parts, marks = _split(tokens, SEPARATORS)
    if marks:
        items = tuple(read_shape(part) for part in parts if part)
        joins = set(marks) - {",", ";"}
        joined_by = joins.pop() if len(joins) == 1 else ","
        return Group("", items, joined_by)
    parts, marks = _split(tokens, RELATIONS)
    if marks:
        return Relation(tuple(read_shape(part) for part in parts), tuple(marks))
    parts, marks = _split(_with_unions(tokens), SET_SIGNS)
    if marks:
        return Combination(tuple(read_shape(part) for part in parts), tuple(marks))
    if len(tokens) == 1 and tokens[0] in SETS:
        return Named(SETS[tokens[0]])
    matrix = MATRIX_ENDS.fullmatch(tokens[0])
    if matrix and tokens[-1] == f"\\end{{{matrix[1]}}}":
        return _matrix(tokens[1:-1])
    group = _group(tokens)
    if group is not None:
        return group
    plus_or_minus = _both_signs(tokens)
    return plus_or_minus or Leaf(tokens)


def _split(
    tokens: FormulaTokens, marks: frozenset[str]
) -> tuple[list[FormulaTokens], list[str]]:
    """Split at the marks that stand outside all brackets; return the parts and the marks."""
    parts: list[FormulaTokens] = []
    found: list[str] = []
    depth = 0
    start = 0
    for index, token in enumerate(tokens):
        if token in OPENING or token.startswith("\\begin"):
            depth += 1
        elif token in CLOSING or token.startswith("\\end"):
            depth -= 1
            if depth < 0:
                raise UnreadableError("a bracket closes that did not open")
        elif depth == 0 and token in marks:
            parts.append(tokens[start:index])
            found.append(token)
            start = index + 1
    if depth:
        raise UnreadableError("a bracket is open")
    parts.append(tokens[start:])
    return parts, found


def _with_unions(tokens: FormulaTokens) -> FormulaTokens:
    """Read the letter U between two sets as their union."""
    read = []
    for index, token in enumerate(tokens):
        is_between = 0 < index < len(tokens) - 1
        if token == "U" and is_between:
            before = tokens[index - 1]
            behind = tokens[index + 1]
            if before in SET_ENDS and behind in SET_STARTS:
                token = "\\cup"
        read.append(token)
    return tuple(read)


def _group(tokens: FormulaTokens) -> Shape | None:
    """Read items in one pair of brackets around all tokens; drop parentheses around one."""
    opening = tokens[0]
    if opening not in OPENING or _closing(tokens) != len(tokens) - 1:
        return None
    closing = tokens[-1]
    inside = tokens[1:-1]
    if closing != OPENING[opening] and closing not in MIXED_CLOSING.get(opening, ""):
        raise UnreadableError("brackets do not match")
    if opening == "{":
        return read_shape(inside)
    if opening == "\\{":
        return _set(inside)
    parts, marks = _split(inside, frozenset((",", ";")))
    if not marks:
        return read_shape(inside) if opening == "(" else None
    items = tuple(read_shape(part) for part in parts)
    brackets = "<>" if opening == "\\langle" else opening + closing
    return Group(brackets, items)


def _closing(tokens: FormulaTokens) -> int:
    """Return where the bracket closes that the first token opens, -1 if it does not."""
    depth = 0
    for index, token in enumerate(tokens):
        if token in OPENING:
            depth += 1
        elif token in CLOSING:
            depth -= 1
            if depth == 0:
                return index
    return -1


def _set(inside: FormulaTokens) -> Shape:
    if not inside:
        return Named("empty")
    for bar in BAR:
        parts, marks = _split(inside, frozenset((bar,)))
        if len(marks) == 1 and all(parts):
            return Builder(read_shape(parts[1]))
    parts, _ = _split(inside, frozenset((",", ";")))
    return Group("{}", tuple(read_shape(part) for part in parts))


def _matrix(tokens: FormulaTokens) -> Matrix:
    if tokens and tokens[0] == "{":  # the columns of an array
        tokens = tokens[_closing(tokens) + 1 :]
    rows, _ = _split(tokens, frozenset(("\\\\",)))
    cells = []
    for row in rows:
        if row:
            parts, _ = _split(row, frozenset(("&",)))
            cells.append(tuple(read_shape(part) for part in parts))
    return Matrix(tuple(cells))


def _both_signs(tokens: FormulaTokens) -> Group | None:
    """Read `a \\pm b` as the two values; None without exactly one such sign."""
    if tokens.count("\\pm") + tokens.count("\\mp") != 1:
        return None
    sign = "\\pm" if "\\pm" in tokens else "\\mp"
    index = tokens.index(sign)
    before = tokens[:index]
    behind = tokens[index + 1 :]
    upper = Leaf((*before, "+", *behind))
    lower = Leaf((*before, "-", *behind))
    return Group("", (upper, lower))
