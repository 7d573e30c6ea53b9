"""Whether two formulas are equal, by math-verify, which may take forever: `maths` calls it in a guarded process."""

import re
from typing import Any

from math_verify import parse
from math_verify import verify as _verify

NAME = re.compile(r"\s*(?:[A-Za-z](?:_\{?\w+\}?)?|\\[a-z]+|[A-Za-z]\s*\(\s*[A-Za-z]\s*\))\s*")
PERCENT = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*\\?%")


def _formula(text: str) -> Any:
    text = PERCENT.sub(r"\\frac{\1}{100}", text)
    return parse("\\boxed{" + text + "}", parsing_timeout=None)


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


def equal(gold: str, answer: str | None) -> bool | None:
    """Whether the answer equals the gold formula in each of its parts; None when math-verify cannot read the gold.

    Without an answer: True when the gold can be read and compared with something.
    """
    wanted = _formula(gold)
    if all(isinstance(found, str) for found in wanted):
        return None
    if answer is None:
        _verify(wanted, _formula("0"), timeout_seconds=None)
        return True
    sides = map(_formula, _sides(answer, gold))
    return all(_verify(wanted, side, timeout_seconds=None) is True and _close(wanted, side) for side in sides)
