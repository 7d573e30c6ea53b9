"""Whether two formulas are equal, by math-verify; runs in a guarded process only, which is killed when it hangs."""

import re

from math_verify import parse
from math_verify import verify as _verify

NAME = re.compile(r"\s*(?:[A-Za-z](?:_\{?\w+\}?)?|\\[a-z]+|[A-Za-z]\s*\(\s*[A-Za-z]\s*\))\s*")
PERCENT = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*\\?%")

# The parser learns by doing: pairs that a server tries once, before its forks need them.
WARM = (
    (r"\frac{1}{2}", "0.5"),
    ("x^2-1", "(x-1)(x+1)"),
    (r"2\sqrt{3}", r"\sqrt{12}"),
    ("(1,2)", "(2, 1)"),
    (r"\{1,2\}", "3,2"),
    ("[1,2)", "(1,2]"),
    ("x=5", "5"),
    (r"\frac{\pi}{2}", "10^{-3}"),
)


def _formula(text: str) -> list:
    text = PERCENT.sub(r"\\frac{\1}{100}", text)
    return parse("\\boxed{" + text + "}", parsing_timeout=None)


def readable(gold: str, tried: bool) -> bool:
    """Whether math-verify understands the formula and, when `tried`, gets through comparing it (it may hang)."""
    wanted = _formula(gold)
    if tried:
        _verify(wanted, _formula("0"), timeout_seconds=None)
    return any(not isinstance(found, str) for found in wanted)


def _close(gold: list, answer: list) -> bool:
    """False when both have plain values that differ by more than rounding, which math-verify does absolutely."""
    try:
        x, y = (complex(found[0]) for found in (gold, answer))
    except (TypeError, ValueError, OverflowError, AttributeError):
        return True
    return x == y or abs(x - y) <= 1e-6 * max(abs(x), abs(y))


def _sides(answer: str, gold: str) -> list[str]:
    """What must equal the gold: every part of a chain a = b = c, without the name in front of `x = 5`."""
    sides = answer.split("=")
    if "=" in gold or len(sides) == 1 or re.search(r"[<>!]$|\\(?:n|l|g)?eq?$", sides[0].strip()):
        return [answer]
    return sides[1:] if NAME.fullmatch(sides[0]) else sides


def equal(gold: str, answer: str) -> bool:
    """Whether the answer equals the gold formula in each of its parts."""
    wanted = _formula(gold)
    for side in _sides(answer, gold):
        found = _formula(side)
        if _verify(wanted, found, timeout_seconds=None) is not True or not _close(wanted, found):
            return False
    return True
