"""Expressions as sympy objects: a strict reader, and equality by exact or numeric value.

The grammar is closed: whatever is not in it raises UnreadableError, so no sign is dropped
silently. Integrals, sums, products and limits are read by math-verify's parser. An expression can
take for ever, so all of this runs in a guarded process.
"""

import math
import re
from collections.abc import Callable
from random import Random
from typing import Any

import sympy

from coevolve.text.verify.shapes import GREEK, OPENING, FormulaTokens, UnreadableError

Expression = Any  # sympy.Expr

NUMBER_SIGNS = frozenset("0123456789.")
CONSTANTS = {"\\pi": sympy.pi, "\\infty": sympy.oo, "e": sympy.E, "i": sympy.I}
FUNCTIONS: dict[str, Callable[..., Expression]] = {
    "\\sin": sympy.sin, "\\cos": sympy.cos, "\\tan": sympy.tan, "\\cot": sympy.cot,
    "\\sec": sympy.sec, "\\csc": sympy.csc, "\\asin": sympy.asin, "\\acos": sympy.acos,
    "\\atan": sympy.atan, "\\arccot": sympy.acot, "\\arcsec": sympy.asec,
    "\\arccsc": sympy.acsc, "\\sinh": sympy.sinh, "\\cosh": sympy.cosh,
    "\\tanh": sympy.tanh, "\\coth": sympy.coth, "\\ln": sympy.log, "\\exp": sympy.exp,
    "\\lg": lambda x: sympy.log(x, 10), "\\log": lambda x: sympy.log(x, 10),
    "\\abs": sympy.Abs, "\\floor": sympy.floor, "\\ceil": sympy.ceiling,
    "\\cbrt": sympy.cbrt,
}  # fmt: skip
INVERSES = {
    "\\sin": sympy.asin, "\\cos": sympy.acos, "\\tan": sympy.atan, "\\cot": sympy.acot,
    "\\sec": sympy.asec, "\\csc": sympy.acsc, "\\sinh": sympy.asinh, "\\cosh": sympy.acosh,
    "\\tanh": sympy.atanh,
}  # fmt: skip
SEVERAL = {
    "\\gcd": sympy.gcd,
    "\\lcm": sympy.lcm,
    "\\max": sympy.Max,
    "\\min": sympy.Min,
}
FOR_THE_LIBRARY = frozenset(("\\int", "\\sum", "\\prod", "\\lim", "\\iint", "\\oint"))
KNOWN_TO_THE_LIBRARY = FOR_THE_LIBRARY | GREEK | set(CONSTANTS) | set(FUNCTIONS)
KNOWN_TO_THE_LIBRARY |= {"\\frac", "\\sqrt", "\\to"}
ENCLOSED = {
    "\\lfloor": ("\\rfloor", sympy.floor),
    "\\lceil": ("\\rceil", sympy.ceiling),
}
STARTS = frozenset(("(", "[", "{", "\\frac", "\\sqrt", "\\binom", "\\mathrm", "\\text"))
STARTS |= {"\\overline", "\\bar", "\\vec", "\\hat"}
MAX_EVALUATED_DIGITS = (
    20_000  # of a power or factorial; larger ones stay as they are written
)
MAX_FACTORIAL = 5_000


def read_expression(tokens: FormulaTokens) -> Expression:
    """Read an expression. Raises UnreadableError if any token has no place in the grammar."""
    if FOR_THE_LIBRARY.intersection(tokens):
        return _by_library(tokens)
    reader = _Reader(tokens)
    expression = reader.sum()
    if reader.token is not None:
        raise UnreadableError(f"unexpected {reader.token}")
    return expression


def _by_library(tokens: FormulaTokens) -> Expression:
    """Read integrals, sums, products and limits. Every other sign must be known here, too."""
    from math_verify import parse

    for token in tokens:
        is_word = len(token) > 1 and token.isalpha()
        if is_word or (token.startswith("\\") and token not in KNOWN_TO_THE_LIBRARY):
            raise UnreadableError(f"unexpected {token}")
    text = " ".join(tokens).replace("*", r"\cdot")
    text = re.sub(r"\\a(?=sin|cos|tan)", r"\\arc", text)
    readings = parse(f"\\boxed{{{text}}}", parsing_timeout=None)
    if not readings or isinstance(readings[0], str):
        raise UnreadableError("not read by math-verify")
    expression = readings[0].doit()
    # Its symbols carry assumptions, so they would differ from ours.
    plain = {symbol: sympy.Symbol(symbol.name) for symbol in expression.free_symbols}
    return expression.subs(plain)


class _Reader:
    """A recursive-descent reader: each method reads one level of the grammar."""

    def __init__(self, tokens: FormulaTokens) -> None:
        self.tokens = list(tokens)
        self.position = 0
        self.bars = 0  # open absolute values

    @property
    def token(self) -> str | None:
        if self.position < len(self.tokens):
            return self.tokens[self.position]
        return None

    @property
    def next_token(self) -> str | None:
        behind = self.tokens[self.position + 1 : self.position + 2]
        return behind[0] if behind else None

    def take(self, expected: str | None = None) -> str:
        token = self.token
        if token is None or (expected is not None and token != expected):
            raise UnreadableError(f"expected {expected or 'more'}, found {token}")
        self.position += 1
        return token

    def accept(self, token: str) -> bool:
        if self.token != token:
            return False
        self.position += 1
        return True

    def sum(self) -> Expression:
        total = self.signed_product()
        while self.token in ("+", "-"):
            is_minus = self.take() == "-"
            term = self.signed_product()
            total = total - term if is_minus else total + term
        return total

    def signed_product(self) -> Expression:
        if self.accept("-"):
            return -self.signed_product()
        if self.accept("+"):
            return self.signed_product()
        return self.product()

    def product(self) -> Expression:
        product = self.power()
        while True:
            if self.accept("*"):
                product = product * self.signed_factor()
            elif self.accept("/"):
                product = _quotient(product, self.signed_factor())
            elif self.starts_factor():
                product = product * self.power()
            else:
                return product

    def signed_factor(self) -> Expression:
        return -self.signed_factor() if self.accept("-") else self.power()

    def starts_factor(self) -> bool:
        """Whether a factor follows without a sign; a number after another factor does not count."""
        token = self.token
        if token is None:
            return False
        if token == "|":
            return not self.bars
        if token in STARTS or _is_symbol(token):
            return True
        return token in FUNCTIONS or token in ENCLOSED or token in SEVERAL

    def power(self) -> Expression:
        base = self.atom()
        while True:
            if self.accept("^"):
                if self.token in ("°", "\\circ"):
                    self.take()
                    base = base * sympy.pi / 180
                    continue
                base = _power(base, self.argument())
            elif self.accept("!"):
                base = _factorial(base)
            elif self.accept("°"):
                base = base * sympy.pi / 180
            elif self.token in ("%", "\\%"):
                self.take()
                base = base / 100
            else:
                return base

    def argument(self) -> Expression:
        """Read what follows `^`: a group, a sign with a number, or one atom."""
        if self.accept("-"):
            return -self.argument()
        if self.accept("+"):
            return self.argument()
        argument = self.atom()
        if self.accept("^"):  # a tower binds from the right
            return _power(argument, self.argument())
        return argument

    def atom(self) -> Expression:
        token = self.take()
        if token[0] in NUMBER_SIGNS and token != "...":
            return self.number(token)
        if token in OPENING:
            return self.enclosed(OPENING[token])
        if token in ENCLOSED:
            closing, function = ENCLOSED[token]
            return function(self.enclosed(closing))
        if token in FUNCTIONS:
            return self.function(token)
        if token in SEVERAL:
            return self.function_of_several(token)
        if _is_symbol(token):
            return self.symbol(token)
        return self.construct(token)

    def construct(self, token: str) -> Expression:
        """Read a fraction, a root or what else has a form of its own."""
        match token:
            case "|":
                return self.absolute_value()
            case "\\frac":
                return _quotient(self.digit_or_group(), self.digit_or_group())
            case "\\binom":
                return sympy.binomial(self.digit_or_group(), self.digit_or_group())
            case "\\sqrt":
                return self.root()
            case "\\mathrm" | "\\text":
                return self.upright()
            case "\\overline" | "\\bar" | "\\vec" | "\\hat":
                return self.marked_symbol(token)
        raise UnreadableError(f"unexpected {token}")

    def enclosed(self, closing: str) -> Expression:
        inside = self.sum()
        self.take(closing)
        return inside

    def absolute_value(self) -> Expression:
        self.bars += 1
        inside = self.enclosed("|")
        self.bars -= 1
        return sympy.Abs(inside)

    def number(self, token: str) -> Expression:
        """Read a number; an integer before a fraction of integers makes a mixed number."""
        value = sympy.Rational(token)
        following = self.tokens[self.position : self.position + 7]
        is_fraction = following[:1] == ["\\frac"] and token.isdigit()
        shape = [part if part in "{}" else part.isdigit() for part in following[1:]]
        if is_fraction and shape == ["{", True, "}", "{", True, "}"]:
            return value + self.atom()
        if is_fraction and len(following) > 1 and following[1].isdigit():
            return value + self.atom()
        return value

    def digit_or_group(self) -> Expression:
        """Read an argument of `\\frac`: a group, or one digit as in `\\frac12`."""
        token = self.token
        if token is not None and token.isdigit() and len(token) > 1:
            self.tokens[self.position] = token[1:]
            return sympy.Integer(token[0])
        return self.atom()

    def root(self) -> Expression:
        degree: Expression = 2
        if self.accept("["):
            degree = self.sum()
            self.take("]")
        radicand = self.atom()
        if self.accept("!"):
            radicand = _factorial(radicand)
        return radicand ** (sympy.Integer(1) / degree)

    def upright(self) -> Expression:
        """Read `\\mathrm{e}`: one symbol or the name of a function."""
        self.take("{")
        token = self.take()
        self.take("}")
        if token in FUNCTIONS:
            return self.function(token)
        if _is_symbol(token):
            return self.symbol(token)
        raise UnreadableError(f"unexpected text {token}")

    def marked_symbol(self, mark: str) -> Expression:
        """Read a name with a mark: `\\overline{CD}`, `\\vec{v}`."""
        is_group = self.accept("{")
        name = self.take()
        if not _is_symbol(name):
            raise UnreadableError(f"unexpected {name} under {mark}")
        if is_group:
            self.take("}")
        return sympy.Symbol(f"{mark} {name}")

    def symbol(self, token: str) -> Expression:
        if token in CONSTANTS and self.token != "_":
            return CONSTANTS[token]
        name = token
        if self.accept("_"):
            name += "_" + self.subscript()
        return sympy.Symbol(name)

    def subscript(self) -> str:
        if not self.accept("{"):
            return self.take()
        inside = []
        while not self.accept("}"):
            token = self.take()
            if not (token.isalnum() or token in "+-,"):
                raise UnreadableError(f"unexpected subscript {token}")
            inside.append(token)
        return "".join(inside)

    def function(self, name: str) -> Expression:
        """Read a function with its base, its power and its argument: `\\log_2 8`, `\\sin^2 2x`."""
        function = FUNCTIONS[name]
        is_plain_base = self.token in ("2", "10") and self.next_token == "("  # log2(x)
        if name == "\\log" and (self.accept("_") or is_plain_base):
            base = self.atom()
            function = lambda x: sympy.log(x, base)  # noqa: E731
        power = None
        if self.accept("^"):
            power = self.argument()
            if power == -1 and name in INVERSES:
                function = INVERSES[name]
                power = None
        value = function(self.function_argument())
        return value if power is None else _power(value, power)

    def function_argument(self) -> Expression:
        """Read an argument: brackets, or factors up to the next function or sign."""
        if self.token in ("(", "[", "{", "|"):
            return self.atom()
        argument = self.signed_factor()
        while self.starts_factor() and self.token not in FUNCTIONS:
            argument = argument * self.power()
        return argument

    def function_of_several(self, name: str) -> Expression:
        self.take("(")
        arguments = [self.sum()]
        while self.accept(","):
            arguments.append(self.sum())
        self.take(")")
        return SEVERAL[name](*arguments)


def _is_symbol(token: str) -> bool:
    """Whether a token is one variable: a letter, a Greek letter or the name of a segment, `AB`."""
    is_letter = len(token) == 1 and token.isascii() and token.isalpha()
    is_segment = len(token) == 2 and token.isalpha() and token.isupper()
    return is_letter or is_segment or token in GREEK or token in CONSTANTS


def _quotient(numerator: Expression, denominator: Expression) -> Expression:
    if denominator == 0:
        raise UnreadableError("division by zero")
    return numerator / denominator


def _power(base: Expression, exponent: Expression) -> Expression:
    """Raise a base; a number with too many digits stays unevaluated."""
    if base.is_Rational and exponent.is_Rational and base not in (0, 1, -1):
        size = abs(math.log10(abs(base.p)) - math.log10(base.q))
        size = max(size, math.log10(max(abs(base.p), base.q)))
        is_large = abs(exponent) * size > MAX_EVALUATED_DIGITS
        return sympy.Pow(base, exponent, evaluate=not is_large)
    return base**exponent


def _factorial(value: Expression) -> Expression:
    is_large = bool(value.is_Integer and value > MAX_FACTORIAL)
    return sympy.factorial(value, evaluate=not is_large)


DIGITS = 60  # of the numbers that are compared
ROUNDING = sympy.Float(10, DIGITS) ** -45
DECIMAL_ROUNDING = (
    sympy.Float(10, DIGITS) ** -6
)  # of a decimal for an irrational number
POINTS = 6


def equal(left: Expression, right: Expression, *, has_decimals: bool = False) -> bool:
    """Whether two expressions have the same value, wherever both are defined.

    Rational numbers must be equal. Other numbers agree to 45 digits, or to a relative 1e-6 if one
    is written as a decimal. Expressions with variables must agree at random points.
    """
    if left == right:
        return True
    symbols = sorted((left.free_symbols | right.free_symbols), key=str)
    if not symbols:
        return _equal_numbers(left, right, has_decimals)
    if left.free_symbols != right.free_symbols and not _may_cancel(left, right):
        return False
    return _equal_at_points(left, right, symbols)


def _may_cancel(left: Expression, right: Expression) -> bool:
    """Whether a variable that only one side has can cancel there."""
    extra = left.free_symbols ^ right.free_symbols
    return any(
        sympy.simplify(side).free_symbols.isdisjoint(extra) for side in (left, right)
    )


def _equal_numbers(left: Expression, right: Expression, has_decimals: bool) -> bool:
    if left in (sympy.oo, -sympy.oo, sympy.zoo) or right in (
        sympy.oo,
        -sympy.oo,
        sympy.zoo,
    ):
        return bool(left == right)
    if left.is_Rational and right.is_Rational:
        return bool(left == right)
    rounding = DECIMAL_ROUNDING if has_decimals else ROUNDING
    if not _near(_value(left), _value(right), rounding):
        return False
    # Numbers of many digits can differ behind those that are compared.
    return not (_is_integer(left) and _is_integer(right)) or (left - right).doit() == 0


def _is_integer(number: Expression) -> bool:
    return bool(number.is_integer) and not number.has(sympy.Float)


def _value(number: Expression) -> Expression:
    return sympy.N(
        number.doit() if number.has(sympy.Sum, sympy.Integral, sympy.Limit) else number,
        DIGITS,
    )


def _near(left: Expression, right: Expression, rounding: Expression) -> bool:
    """Whether two numbers agree relatively; exponents have no limit, so nothing underflows."""
    if not (left.is_number and right.is_number):
        return False
    difference = sympy.N(sympy.Abs(left - right), DIGITS)
    largest = sympy.Max(
        sympy.N(sympy.Abs(left), DIGITS), sympy.N(sympy.Abs(right), DIGITS)
    )
    if largest == 0:
        return True
    return bool(difference <= rounding * largest)


def _equal_at_points(
    left: Expression, right: Expression, symbols: list[Expression]
) -> bool:
    """Compare at fixed random points, some negative; skip points without a real value."""
    random = Random(0)
    compared = 0
    for point in range(2 * POINTS):
        sign = 1 if point % 2 == 0 else -1
        values = {}
        for symbol in symbols:
            values[symbol] = sympy.Rational(
                sign * random.randint(1, 997), random.randint(1, 99)
            )
        ours = _value(left.subs(values))
        theirs = _value(right.subs(values))
        if not (_is_finite(ours) and _is_finite(theirs)):
            continue
        if sign < 0 and not (ours.is_real and theirs.is_real):
            continue
        if not _near(ours, theirs, ROUNDING):
            return False
        compared += 1
    if compared >= POINTS // 2:
        return True
    return bool(sympy.simplify(left - right) == 0)


def _is_finite(value: Expression) -> bool:
    return bool(value.is_number) and not value.has(sympy.nan, sympy.oo, sympy.zoo)
