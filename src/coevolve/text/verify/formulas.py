"""Whether two formulas are equal, decided by math-verify.

It may run forever, so `verify.math` calls it in a guarded process.
"""

import re
from typing import Any

from math_verify import parse
from math_verify import verify as _verify

# Together with the equals sign behind it, one of these is another relation, such as <=.
RELATION = re.compile(r"[<>!]$|\\(?:n|l|g)?eq?$")
LETTER = re.compile(r"[A-Za-z]")
PERCENT = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*\\?%")


def _formula(text: str) -> Any:
    text = PERCENT.sub(r"\\frac{\1}{100}", text)
    boxed = "\\boxed{" + text + "}"
    return parse(boxed, parsing_timeout=None)


def _close(gold: list, answer: list) -> bool:
    """Whether two plain numbers differ by rounding at most; True for all other formulas.

    math-verify itself tolerates an absolute difference, however small the numbers are.
    """
    try:
        x = complex(gold[0])
        y = complex(answer[0])
    except (TypeError, ValueError, OverflowError, AttributeError):
        return True
    if x == y:  # infinities too, whose difference is not a number
        return True
    largest = max(abs(x), abs(y))
    return abs(x - y) <= 1e-6 * largest


def _sides(answer: str, gold: str) -> list[str]:
    """Return the parts of an answer that must all equal the gold.

    For a chain a = b = c they are its end and every side without a letter, so not the name `x` in
    `x = 3`. For `x = 1, y = 2` they are one list, `1, 2`.
    """
    *names, end = answer.split("=")
    has_relation = any(RELATION.search(name.strip()) for name in names)
    if not names or "=" in gold or has_relation:
        return [answer]
    parts = answer.split(",")
    if len(parts) > 1 and all("=" in part for part in parts):
        values = [part.rpartition("=")[2] for part in parts]
        value_list = ",".join(values)
        return [value_list]
    numbers = [name for name in names if not LETTER.search(name)]
    return [*numbers, end]


def equal(gold: str, answer: str | None) -> bool | None:
    """Whether each side of the answer equals the gold formula; None if the gold is unreadable.

    If the answer is None: True when the gold can be read and compared with something.
    """
    gold_formula = _formula(gold)
    if all(isinstance(candidate, str) for candidate in gold_formula):
        return None
    if answer is None:
        _verify(gold_formula, _formula("0"), timeout_seconds=None)
        return True
    for side in _sides(answer, gold):
        answer_formula = _formula(side)
        is_equal = _verify(gold_formula, answer_formula, timeout_seconds=None)
        if is_equal is not True or not _close(gold_formula, answer_formula):
            return False
    return True
