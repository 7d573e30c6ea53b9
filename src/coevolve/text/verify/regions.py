"""Sets of real numbers: intervals, unions, inequalities, set builders.

A formula is a region if it is written as one; a pair `(2, 5)` becomes an open interval only where
it is compared with a region. Runs in the guarded process, as sympy's sets can take for ever.
"""

from typing import Any

import sympy

from coevolve.text.verify import expressions, shapes
from coevolve.text.verify.shapes import (
    Builder,
    Combination,
    Group,
    Leaf,
    Named,
    Relation,
    Shape,
)

Region = Any  # sympy.Set

FLIPPED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le", "=": "=", "\\ne": "\\ne"}
COMPARED = {
    "<": sympy.Lt,
    ">": sympy.Gt,
    "\\le": sympy.Le,
    "\\ge": sympy.Ge,
    "\\ne": sympy.Ne,
}
INEQUALITIES = frozenset(("<", ">", "\\le", "\\ge", "\\ne"))
NAMED = {
    "R": sympy.S.Reals,
    "Z": sympy.S.Integers,
    "N": sympy.S.Naturals,
    "Q": sympy.S.Rationals,
    "C": sympy.S.Complexes,
    "empty": sympy.S.EmptySet,
}


def is_region(shape: Shape) -> bool:
    """Whether a shape is a set of numbers that is not written as a pair or a list."""
    match shape:
        case Combination() | Named() | Builder():
            return True
        case Relation(_, signs):
            is_bound = bool(INEQUALITIES.intersection(signs)) and "=" not in signs
            return is_bound and _region(shape) is not None or signs == ("\\in",)
        case Group("", items, _):
            return all(isinstance(item, Relation) and is_region(item) for item in items)
    return False


def same(gold: Shape, answer: Shape) -> bool:
    """Whether two shapes are the same set of numbers."""
    gold_region = _region(gold)
    answer_region = _region(answer)
    if gold_region is None or answer_region is None:
        return False
    if gold_region == answer_region:
        return True
    missing = gold_region - answer_region
    surplus = answer_region - gold_region
    return bool(missing == sympy.S.EmptySet and surplus == sympy.S.EmptySet)


def _region(shape: Shape) -> Region | None:
    """Return a shape as a sympy set; None if it is not a set of numbers with known ends."""
    match shape:
        case Named(name):
            return NAMED[name]
        case Builder(condition):
            return _region(condition)
        case Group("{}", items, _):
            return _finite(items)
        case Group("", items, joined_by):
            return _joined([_region(item) for item in items], joined_by)
        case Group(brackets, (low, high), _) if brackets in ("()", "[]", "(]", "[)"):
            return _interval(
                _number(low), _number(high), brackets[0] == "(", brackets[1] == ")"
            )
        case Combination(parts, signs):
            return _combined([_region(part) for part in parts], signs)
        case Relation(sides, ("\\in",)):
            return _region(sides[1])
        case Relation():
            return _bounded(shape)
    return None


def _finite(items: tuple[Shape, ...]) -> Region | None:
    values = [_number(item) for item in items]
    return None if None in values else sympy.FiniteSet(*values)


def _joined(regions: list[Any], joined_by: str) -> Region | None:
    """Join bounds by "and" or "or"; a comma is "and" unless no number satisfies all bounds."""
    if None in regions:
        return None
    all_hold = sympy.Intersection(*regions)
    is_union = joined_by == "or" or (joined_by == "," and all_hold == sympy.S.EmptySet)
    return sympy.Union(*regions) if is_union else all_hold


def _combined(regions: list[Any], signs: tuple[str, ...]) -> Region | None:
    if None in regions:
        return None
    result = regions[0]
    for sign, region in zip(signs, regions[1:], strict=True):
        if sign == "\\cup":
            result = result.union(region)
        elif sign == "\\cap":
            result = result.intersect(region)
        else:
            result = result - region
    return result


def _number(shape: Shape) -> Region | None:
    """Return the real number of a leaf, None for anything else."""
    if not isinstance(shape, Leaf):
        return None
    value = expressions.read_expression(shape.tokens)
    return value if value.is_extended_real and not value.free_symbols else None


def _interval(
    low: Any, high: Any, is_open_left: bool, is_open_right: bool
) -> Region | None:
    if low is None or high is None:
        return None
    return sympy.Interval(low, high, left_open=is_open_left, right_open=is_open_right)


def _solved(relation: Relation) -> Region | None:
    """Solve one inequality in one variable, such as `|x| < 2`; None for any other relation."""
    match relation:
        case Relation((Leaf(left), Leaf(right)), (sign,)) if sign in INEQUALITIES:
            difference = expressions.read_expression(
                left
            ) - expressions.read_expression(right)
        case _:
            return None
    symbols = difference.free_symbols
    if len(symbols) != 1:
        return None
    variable = sympy.Symbol("x", real=True)
    difference = difference.subs(symbols.pop(), variable)
    try:
        return sympy.solveset(COMPARED[sign](difference, 0), variable, sympy.S.Reals)
    except (NotImplementedError, ValueError, TypeError):
        return None


def _bounded(relation: Relation) -> Region | None:
    """Return the set of a chain of inequalities around one variable; None for another relation."""
    names = [side for side in relation.sides if is_variable(side)]
    if len(names) != 1 or not set(relation.signs) <= INEQUALITIES:
        return _solved(relation)
    place = relation.sides.index(names[0])
    region = sympy.S.Reals
    for index, sign in enumerate(relation.signs):
        if index < place - 1 or index > place:
            return None
        value = _number(relation.sides[index if index < place else index + 1])
        if value is None:
            return None
        towards = FLIPPED[sign] if index < place else sign
        region = region.intersect(_half_line(towards, value))
    return region


def is_variable(shape: Shape) -> bool:
    """Whether a shape is one letter."""
    if not isinstance(shape, Leaf) or len(shape.tokens) != 1:
        return False
    token = shape.tokens[0]
    return (len(token) == 1 and token.isalpha()) or token in shapes.GREEK


def _half_line(sign: str, value: Any) -> Region | None:
    if sign == "\\ne":
        return sympy.S.Reals - sympy.FiniteSet(value)
    if sign in ("<", "\\le"):
        return sympy.Interval(-sympy.oo, value, right_open=sign == "<")
    return sympy.Interval(value, sympy.oo, left_open=sign == ">")
