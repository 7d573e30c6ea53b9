"""Whether two formulas are equal, by math-verify, which may take forever: `maths` calls it in a guarded process."""

import re
from typing import Any

from math_verify import parse
from math_verify import verify as _verify

RELATION = re.compile(r"[<>!]$|\\(?:n|l|g)?eq?$")  # what an equals sign may belong to
LETTER = re.compile(r"[A-Za-z]")
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
    """What must equal the gold: of a chain a = b = c its end and every number, not what a name such as `x` stands for.

    Of `x = 1, y = 2` the ends as a list.
    """
    *names, end = answer.split("=")
    if "=" in gold or not names or any(RELATION.search(name.strip()) for name in names):
        return [answer]
    parts = answer.split(",")
    if len(parts) > 1 and all("=" in part for part in parts):
        return [",".join(part.rpartition("=")[2] for part in parts)]
    return [name for name in names if not LETTER.search(name)] + [end]


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
