"""Forms in which an answer can be written: equal to a gold answer by construction, or a near miss.

The forms are templates in written_forms.toml; this module draws the values that fill them. A kind
and a seed always give the same forms.
"""

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

TEMPLATES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
FIELD = re.compile(r"<([a-z_0-9]+)>")
SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
# A gold answer with a unit is not asked for as "x = 5 meters" or in dollars.
WITHOUT_WRAPPINGS = ("quantities",)

Values = dict[str, object]


@dataclass(frozen=True)
class Written:
    """An answer in one written form, and whether it equals the gold answer."""

    gold: str
    answer: str
    is_correct: bool
    form: str


def _integers(random: Random) -> Values:
    n = random.choice((random.randint(3, 999), random.randint(1000, 9_999_999)))
    commas = f"{n:,}"
    return {
        "n": n,
        "less": n - 1,
        "more": n + 1,
        "twice": 2 * n,
        "tenth": f"{n // 10}.{n % 10}",
        "commas": commas,
        "latex_commas": commas.replace(",", "{,}"),
        "thin_spaces": commas.replace(",", r"\,"),
        "spaces": commas.replace(",", " "),
    }


def _fractions(random: Random) -> Values:
    d = random.choice((3, 6, 7, 9, 11, 12))
    whole = random.randint(1, 40)
    n = whole * d + 1
    return {
        "n": n,
        "d": d,
        "n3": 3 * n,
        "d3": 3 * d,
        "whole": whole,
        "rest": 1,
        "more": n + 1,
        "d_more": d + 1,
        "near": f"{n / d:.2f}",
    }


def _surds(random: Random) -> Values:
    factor = random.randint(2, 9)
    root = random.choice((2, 3, 5, 6, 7, 10, 11))
    return {
        "factor": factor,
        "root": root,
        "square": factor * factor * root,
        "product": factor * root,
        "more": factor + 1,
        "root_more": root + 2,
        "near": f"{factor * root**0.5:.2f}",
    }


def _multiples_of_pi(random: Random) -> Values:
    n = random.choice((5, 7, 11, 13))
    d = random.choice((3, 4, 6, 9))
    return {
        "n": n,
        "d": d,
        "d_more": d + 1,
        "degrees": n * 180 // d,
        "near": f"{n * 3.14 / d:.2f}",
    }


def _polynomials(random: Random) -> Values:
    a = random.randint(1, 9)
    b = random.randint(a + 1, 12)
    return {
        "a": a,
        "b": b,
        "sum": a + b,
        "product": a * b,
        "square": (b - a) ** 2,
        "more": a * b + 1,
    }


def _intervals(random: Random) -> Values:
    low = random.randint(-9, 5)
    high = low + random.randint(1, 9)
    return {"low": low, "high": high, "more": high + 1}


def _lists(random: Random) -> Values:
    a, b, c = sorted(random.sample(range(-20, 21), 3))
    return {"a": a, "b": b, "c": c, "more": c + 1, "sum": a + b + c}


def _points(random: Random) -> Values:
    a = random.randint(-9, 9)
    b = a + random.choice((-4, -3, 2, 5, 7))
    return {"a": a, "b": b, "more": b + 1}


def _quantities(random: Random) -> Values:
    n = random.randint(2, 400)
    return {"n": n, "more": n + 1}


def _powers_of_ten(random: Random) -> Values:
    whole = random.randint(1, 9)
    digit = random.randint(1, 8)
    exponent = random.choice((-7, -5, -4, 6, 8, 12))
    return {
        "mantissa": f"{whole}.{digit}",
        "digits": f"{whole}{digit}",
        "more": f"{whole}.{digit + 1}",
        "exponent": exponent,
        "exponent_less": exponent - 1,
        "exponent_more": exponent + 1,
        "exponent_negative": -exponent,
        "raised": str(exponent).translate(SUPERSCRIPTS),
    }


KINDS: dict[str, Callable[[Random], Values]] = {
    "integers": _integers,
    "fractions": _fractions,
    "surds": _surds,
    "multiples_of_pi": _multiples_of_pi,
    "polynomials": _polynomials,
    "intervals": _intervals,
    "lists": _lists,
    "points": _points,
    "quantities": _quantities,
    "powers_of_ten": _powers_of_ten,
}


def written(kind: str, seed: int) -> list[Written]:
    """Return one gold answer of a kind in all its forms, with its near misses."""
    values = KINDS[kind](Random(f"{kind} {seed}"))
    templates = TEMPLATES[kind]
    gold = _filled(templates["gold"], values)
    forms = [] if kind in WITHOUT_WRAPPINGS else wrapped(gold)
    for name, template in templates["correct"].items():
        forms.append(Written(gold, _filled(template, values), True, name))
    for name, template in templates["wrong"].items():
        forms.append(Written(gold, _filled(template, values), False, name))
    return forms


def wrapped(gold: str) -> list[Written]:
    """Return the gold answer inside everything that may surround it."""
    forms = []
    for name, template in TEMPLATES["wrappings"].items():
        answer = _filled(template, {"gold": gold})
        forms.append(Written(gold, answer, True, name))
    return forms


def _filled(template: str, values: Values) -> str:
    return FIELD.sub(lambda field: str(values[field[1]]), template)
