"""Formulas compared by math-verify within bounds.

Cheap exact checks come first; the remaining pairs go to a guarded process, one pair at a time.
"""

import functools
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from coevolve.text import parse
from coevolve.text.verify import exact

if TYPE_CHECKING:
    from codesandbox import Trusted

# Longer or deeper text is no plausible answer, but could keep the verifier busy.
MAX_CHARACTERS = 512
MAX_DIGITS = 60  # in a row
MAX_DEPTH = 24
MAX_BOXES = 8  # different ones in an answer; more are a guess at many
DIGIT_RUN = re.compile(rf"[0-9]{{{MAX_DIGITS + 1}}}")
WORDS = re.compile(r"[A-Za-z]{3,}(?: [A-Za-z]+)*")
# Each server compares these (gold, answer) pairs once, because math-verify's parser builds its
# tables on first use and all forks of the server then share them.
WARM_UP_FILE = Path(__file__).with_name("warm.toml")
WARM_UP_PAIRS = tomllib.loads(WARM_UP_FILE.read_text(encoding="utf-8"))["pairs"]
UNIT = re.compile(
    r"([+-]?[0-9.,]+)\s*(?:\\[ ,;]|\\(?:text|mathrm)\{)?\s*"
    r"([A-Za-zµ°]+(?:[/^][A-Za-z0-9]+)*)\}?"
)
# 72 clips, 3/4 cup, 60 km/h, 90 degrees; `5x`, `5 cm` and `5 pi` are left to algebra.
AMOUNT = re.compile(
    r"\\?\$?\s*([+-]?[0-9.,/]+)\s*"
    r"(?:(?:\\[ ,;])?\\(?:text|mathrm)\{[^{}]*\}"
    r"|\^\s*\{?\\circ\}?"
    r"|[A-Za-z]{3,}(?:[ /][A-Za-z]+)*"
    r"|km/h|m/s)\.?"
)


def contents(text: str) -> list[str]:
    r"""Return the distinct contents of all \boxed{...} of a text, or the text if it has no box.

    Dollar signs are removed. The content is "" for a box that hedges, is unclosed or holds a box.
    """
    after_boxes = text.split(parse.BOX)[1:]
    boxes = [parse.boxed(parse.BOX + remainder) or "" for remainder in after_boxes]
    bare_boxes = [_without_delimiters(box) for box in boxes or [text]]
    return list(dict.fromkeys(bare_boxes))


def _without_delimiters(formula: str) -> str:
    formula = formula.replace("°", r"^\circ").strip()
    formula = formula.removeprefix("\\(").removesuffix("\\)")
    return formula.strip(" \t\r\n$")


def content(gold: str) -> str:
    """Return the content of a gold answer, "" if it holds several different ones."""
    boxes = contents(gold)
    return boxes[0] if len(boxes) == 1 else ""


def refusal(text: str) -> str:
    """Return why a formula is rejected before any comparison, "" if it is accepted."""
    if not text:
        return "empty"
    if len(text) > MAX_CHARACTERS:
        return f"over {MAX_CHARACTERS} characters"
    if DIGIT_RUN.search(text):
        return f"over {MAX_DIGITS} digits in a row"
    if _depth(text) > MAX_DEPTH:
        return f"nested over {MAX_DEPTH} deep"
    return ""


def _depth(text: str) -> int:
    """Return how deep brackets of any kind are nested."""
    depth = 0
    deepest = 0
    for character in text:
        if character in "({[":
            depth += 1
            deepest = max(deepest, depth)
        elif character in ")}]":
            depth -= 1
    return deepest


def _equal_without_algebra(gold: str, answer: str) -> bool | None:
    """Compare equal texts, plain numbers, words and units; None if the pair needs algebra."""
    if gold == answer:
        return True
    gold_number = exact.rational(gold)
    answer_number = exact.rational(answer)
    if gold_number is not None and answer_number is not None:
        return gold_number == answer_number
    if _is_words(gold) or _is_words(answer):
        return exact.exact(answer, [gold])
    amount = AMOUNT.fullmatch(answer)
    # An answer may add a unit in words to the number that was asked for.
    if gold_number is not None and amount:
        number = exact.rational(amount[1])
        if number is not None:
            return gold_number == number
    gold_unit = UNIT.fullmatch(gold)
    answer_unit = UNIT.fullmatch(answer)
    if gold_unit and answer_unit and gold_unit[2] != answer_unit[2]:
        return False
    return None


def _is_words(text: str) -> bool:
    return WORDS.fullmatch(exact.bare(text)) is not None


@functools.cache
def _guarded_equal() -> "Trusted":
    """Return `formulas.equal` as a function that runs in a guarded process."""
    from codesandbox import Trusted

    return Trusted(
        "coevolve.text.verify.formulas:equal",
        cpu_seconds=1.0,
        wall_seconds=5.0,
        memory_mb=900,
        warm=WARM_UP_PAIRS,
    )


def valid(gold: str) -> bool:
    """Whether answers can be compared with a gold answer: math-verify reads it within bounds."""
    gold = content(gold)
    if refusal(gold):
        return False
    if exact.rational(gold) is not None or _is_words(gold):
        return True
    return _guarded_equal()(gold, None).value is True


def compare(answer: str, gold: str) -> tuple[str, str]:
    """Return the verdict and its detail for a formula.

    An unreadable gold answer gives `unscored`, an unreadable answer `wrong`. If an answer has
    several boxes, each must be correct, so different boxes are never all correct.
    """
    gold_formula = content(gold)
    boxes = contents(answer)
    reason = refusal(gold_formula)
    if reason:
        return "unscored", f"the gold answer is {reason}"
    if len(boxes) > MAX_BOXES:
        return "wrong", f"over {MAX_BOXES} different boxes"
    for box in boxes:
        verdict, detail = _compare_formulas(box, gold_formula)
        if verdict != "pass":
            return verdict, detail
    return "pass", ""


def _compare_formulas(answer: str, gold: str) -> tuple[str, str]:
    """Return the verdict and its detail for one formula and an accepted gold formula."""
    reason = refusal(answer)
    if reason:
        return "wrong", reason
    is_correct = _equal_without_algebra(gold, answer)
    if is_correct is None:
        result = _guarded_equal()(gold, answer)
        if result.why:
            gold_is_unreadable = result.why == "lost" or not valid(gold)
        else:
            gold_is_unreadable = result.value is None
        if gold_is_unreadable:
            detail = result.detail or "not a formula"
            return "unscored", f"the gold answer could not be read ({detail})"
        if result.why:
            return result.why, result.detail
        is_correct = result.value is True
    return ("pass" if is_correct else "wrong"), ""
