"""Whether two formulas are equal, by structure and then by the values of their expressions.

Computer algebra may run for ever, so `verify.math` calls `equal` in a guarded process.
"""

import re
from fractions import Fraction
from operator import itemgetter
from typing import Any

import sympy

from coevolve.text.verify import expressions, regions, shapes, units
from coevolve.text.verify.shapes import (
    Builder,
    Combination,
    Group,
    Leaf,
    Matrix,
    Relation,
    Shape,
    UnreadableError,
)

UNIT_TEXT = re.compile(
    r"^(?P<formula>.*[^\\])(?P<unit>\\(?:text|mathrm|mbox)\s*\{[^{}]*\}.*)$", re.DOTALL
)
UNIT_WORD = re.compile(
    r"^(?P<formula>.*(?:[)}0-9!]|\\pi))\s*(?P<unit>[A-Za-z]{2,}(?:[ /^][A-Za-z0-9^/ ]*)?)$",
    re.DOTALL,
)
Rows = tuple[tuple[Shape, ...], ...]
VECTORS = ("()", "[]", "<>")


def equal(gold: str, answer: str | None) -> bool | None:
    """Whether a formula equals the gold formula; None if the gold formula is unreadable.

    If the answer is None: True when the gold formula can be read and compared with something.
    """
    if answer is not None and shapes.tokenise(gold) == shapes.tokenise(answer):
        return True
    try:
        gold_formula, gold_unit = without_unit(gold)
        gold_shape = shapes.read_shape(shapes.tokenise(gold_formula))
        _check_leaves(gold_shape)
    except (UnreadableError, RecursionError):
        return None
    if answer is None:
        return True
    answer_formula, answer_unit = without_unit(answer)
    if gold_unit and answer_unit and not _same_unit(gold_unit, answer_unit):
        return False
    try:
        answer_shape = shapes.read_shape(shapes.tokenise(answer_formula))
        return same(gold_shape, answer_shape)
    except (UnreadableError, RecursionError):
        return False


def without_unit(text: str) -> tuple[str, str]:
    """Split a unit from the end of a formula: `12\\pi\\text{ cm}^2`; "" if there is none."""
    match = UNIT_TEXT.match(text)
    if match and units.read_unit(" " + match["unit"]):
        return match["formula"], match["unit"]
    match = UNIT_WORD.match(text)
    unit = units.read_unit(" " + match["unit"]) if match else None
    if match and unit and unit.dimensions:  # letters that name no unit are variables
        return match["formula"], match["unit"]
    return text, ""


def _same_unit(gold: str, answer: str) -> bool:
    gold_unit = units.Quantity(Fraction(1), units.read_unit(" " + gold))
    answer_unit = units.Quantity(Fraction(1), units.read_unit(" " + answer))
    return units.same(answer_unit, gold_unit)


def _check_leaves(shape: Shape) -> None:
    """Read every expression of a shape. Raises UnreadableError if one cannot be read."""
    match shape:
        case Leaf(tokens):
            expressions.read_expression(tokens)
        case Group(_, items, _):
            for item in items:
                _check_leaves(item)
        case Relation(parts, _) | Combination(parts, _):
            for part in parts:
                _check_leaves(part)
        case Builder(condition):
            _check_leaves(condition)
        case Matrix(rows):
            for row in rows:
                for cell in row:
                    _check_leaves(cell)


def same(gold: Shape, answer: Shape) -> bool:
    """Whether an answer's shape equals the gold shape."""
    gold = _without_function_name(_values_of_assignments(gold))
    answer = _without_function_name(_values_of_assignments(answer))
    is_pair_of_relations = isinstance(gold, Relation) and isinstance(answer, Relation)
    if not is_pair_of_relations and (
        regions.is_region(gold) or regions.is_region(answer)
    ):
        return regions.same(gold, answer)
    match gold, answer:
        case Leaf(), Leaf():
            return _same_leaf(gold, answer)
        case Relation(), Relation():
            return _same_relation(gold, answer)
        case Relation((name, value), ("=",)), _ if _is_name(name):
            return same(value, answer)
        case _, Relation((*_, value), signs) if set(signs) == {"="}:
            return same(gold, value)
    return _same_items(gold, answer)


def _same_items(gold: Shape, answer: Shape) -> bool:
    """Compare lists, sets, tuples and matrices; a row or column may be written as a tuple."""
    match gold, answer:
        case Group(), Group():
            return _same_group(gold, answer)
        case Group("{}", (item,), _), Leaf():
            return same(item, answer)
        case Leaf(), Group("{}", (item,), _):
            return same(gold, item)
        case Matrix(), Matrix():
            return _same_rows(gold.rows, answer.rows)
        case Matrix(), Group(brackets, items) if brackets in VECTORS:
            return _same_in_order(_vector(gold), items) or _same_rows(
                gold.rows, _rows(answer)
            )
        case Group(brackets, items), Matrix() if brackets in VECTORS:
            return _same_in_order(items, _vector(answer)) or _same_rows(
                _rows(gold), answer.rows
            )
    return False


def _same_leaf(gold: Leaf, answer: Leaf) -> bool:
    if gold.tokens == answer.tokens:
        return True
    has_decimals = any("." in token for token in (*gold.tokens, *answer.tokens))
    return expressions.equal(
        expressions.read_expression(gold.tokens),
        expressions.read_expression(answer.tokens),
        has_decimals=has_decimals,
    )


def _is_name(shape: Shape) -> bool:
    """Whether a shape names a value: a variable, f(x) or the like, not a number."""
    if not isinstance(shape, Leaf):
        return isinstance(shape, Group) and all(_is_name(item) for item in shape.items)
    return any(token.isalpha() or token in shapes.GREEK for token in shape.tokens)


def _without_function_name(shape: Shape) -> Shape:
    """Return the right side of `f(x) = 2x`, which may have another name."""
    match shape:
        case Relation((Leaf((_, "(", *_, ")") as name), value), ("=",)) if name[
            0
        ].isalpha():
            return value
    return shape


def _values_of_assignments(shape: Shape) -> Shape:
    """Read `x = 1, x = 2` as the list of its values and `x = 3, y = 4` as a tuple by name."""
    if not isinstance(shape, Group) or shape.brackets:
        return shape
    names = []
    values: list[Shape] = []
    for item in shape.items:
        match item:
            case Relation((name, value), ("=",)) if _is_name(name):
                names.append(str(name))
                values.append(value)
            case _:
                values.append(item)
    is_complete = len(names) == len(values)
    if is_complete and len(set(names)) == len(names):
        by_name = sorted(zip(names, values, strict=True), key=itemgetter(0))
        return Group("()", tuple(value for _, value in by_name))
    begins_with_name = isinstance(shape.items[0], Relation)
    if len(set(names)) == 1 and begins_with_name and (is_complete or len(names) == 1):
        return Group("", tuple(values))
    return shape


def _same_group(gold: Group, answer: Group) -> bool:
    """Compare lists and sets in any order, tuples and lists of names in theirs."""
    unordered = ("", "{}")
    if gold.brackets in unordered and answer.brackets in unordered:
        if all(_is_letter(item) for item in (*gold.items, *answer.items)):
            return _same_in_order(gold.items, answer.items)
        return _same_in_any_order(gold.items, answer.items)
    plain = ("", "()", "<>")
    if gold.brackets in plain and answer.brackets in plain:
        return _same_in_order(gold.items, answer.items)
    return gold.brackets == answer.brackets and _same_in_order(gold.items, answer.items)


def _is_letter(shape: Shape) -> bool:
    return (
        isinstance(shape, Leaf) and len(shape.tokens) == 1 and shape.tokens[0].isupper()
    )


def _same_in_order(gold: tuple[Shape, ...], answer: tuple[Shape, ...]) -> bool:
    if len(gold) != len(answer):
        return False
    return all(same(one, other) for one, other in zip(gold, answer, strict=True))


def _same_in_any_order(gold: tuple[Shape, ...], answer: tuple[Shape, ...]) -> bool:
    """Match every item with another one; items that are written twice may stand once in a set."""
    left = list(_distinct(answer))
    for item in _distinct(gold):
        found = next(
            (index for index, other in enumerate(left) if same(item, other)), None
        )
        if found is None:
            return False
        del left[found]
    return not left


def _distinct(items: tuple[Shape, ...]) -> tuple[Shape, ...]:
    return tuple(dict.fromkeys(items))


def _same_rows(
    gold: tuple[tuple[Shape, ...], ...], answer: tuple[tuple[Shape, ...], ...]
) -> bool:
    if len(gold) != len(answer):
        return False
    return all(
        _same_in_order(one, other) for one, other in zip(gold, answer, strict=True)
    )


def _rows(group: Group) -> Rows:
    """Return the rows of a matrix that is written as a list of lists; () for another group."""
    rows = []
    for row in group.items:
        if not isinstance(row, Group) or row.brackets not in VECTORS:
            return ()
        rows.append(row.items)
    return tuple(rows)


def _vector(matrix: Matrix) -> tuple[Shape, ...]:
    """Return the entries of a row or a column; () for another matrix."""
    if len(matrix.rows) == 1:
        return matrix.rows[0]
    if all(len(row) == 1 for row in matrix.rows):
        return tuple(row[0] for row in matrix.rows)
    return ()


def _same_relation(gold: Relation, answer: Relation) -> bool:
    """Whether two equations or inequalities say the same: one is a multiple of the other."""
    if len(gold.signs) + len(answer.signs) != 2:
        return _same_variables(gold, answer) and regions.same(gold, answer)
    gold_difference = _difference(gold)
    answer_difference = _difference(answer)
    if gold_difference is None or answer_difference is None:
        return gold.signs == answer.signs and _same_in_order(gold.sides, answer.sides)
    factor = sympy.simplify(gold_difference / answer_difference)
    if (
        not factor.is_number
        or factor in (0, sympy.zoo, sympy.nan)
        or not factor.is_real
    ):
        return False
    sign = answer.signs[0] if factor > 0 else regions.FLIPPED.get(answer.signs[0])
    return gold.signs[0] == sign


def _same_variables(gold: Relation, answer: Relation) -> bool:
    """Whether two chains of inequalities bound the same variable."""
    return _variables(gold) == _variables(answer)


def _variables(relation: Relation) -> set[str]:
    names: set[str] = set()
    for side in relation.sides:
        if isinstance(side, Leaf):
            names.update(token for token in side.tokens if token.isalpha())
    return names


def _difference(relation: Relation) -> Any:
    """Return left side minus right side; None if a side is not an expression."""
    match relation.sides:
        case Leaf(left), Leaf(right):
            return expressions.read_expression(left) - expressions.read_expression(
                right
            )
    return None
