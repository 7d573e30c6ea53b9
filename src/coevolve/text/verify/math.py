"""Formulas compared by math-verify, bounded: cheap exact checks first, then one guarded process for each pair."""

import functools
import re
import tomllib
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from coevolve.text import parse
from coevolve.text.verify import exact

if TYPE_CHECKING:
    from codesandbox import Trusted

CHARACTERS, DIGITS, DEPTH = 512, 60, 24  # longer, deeper: no answer to a question but a way to keep us busy
BOXES = 8  # different ones in an answer; more are a guess at many
DIGIT_RUN = re.compile(rf"[0-9]{{{DIGITS + 1}}}")
WORDS = re.compile(r"[A-Za-z]{3,}(?: [A-Za-z]+)*")
# The parser learns by doing: pairs of a gold and an answer that each server compares once, before its forks need them.
WARM = tomllib.loads(Path(__file__).with_name("warm.toml").read_text(encoding="utf-8"))["pairs"]
UNIT = re.compile(r"([+-]?[0-9.,]+)\s*(?:\\[ ,;]|\\(?:text|mathrm)\{)?\s*([A-Za-zµ°]+(?:[/^][A-Za-z0-9]+)*)\}?")

AMOUNT = re.compile(  # 72 clips, 3/4 cup, 60 km/h, 90 degrees; `5x`, `5 cm` and `5 pi` are left to algebra
    r"\\?\$?\s*([+-]?[0-9.,/]+)\s*"
    r"(?:(?:\\[ ,;])?\\(?:text|mathrm)\{[^{}]*\}|\^\s*\{?\\circ\}?|[A-Za-z]{3,}(?:[ /][A-Za-z]+)*|km/h|m/s)\.?"
)


def contents(text: str) -> list[str]:
    r"""What is inside each \boxed{...} of a text, or the text without one, each once and without its dollar signs.

    Empty for a box that hedges, is not closed, or holds a box.
    """
    boxes = [parse.boxed(parse.BOX + rest) or "" for rest in text.split(parse.BOX)[1:]] or [text]
    inside = (
        box.replace("°", r"^\circ").strip().removeprefix("\\(").removesuffix("\\)").strip(" \t\r\n$") for box in boxes
    )
    return list(dict.fromkeys(inside))


def content(gold: str) -> str:
    """What a gold answer says; empty when it says several things."""
    said = contents(gold)
    return said[0] if len(said) == 1 else ""


def refusal(text: str) -> str:
    """Why the text is not even looked at; empty when it is."""
    if not text:
        return "empty"
    if len(text) > CHARACTERS:
        return f"over {CHARACTERS} characters"
    if DIGIT_RUN.search(text):
        return f"over {DIGITS} digits in a row"
    depths = accumulate((c in "({[") - (c in ")}]") for c in text)
    return f"nested over {DEPTH} deep" if max(depths) > DEPTH else ""


def _cheap(gold: str, answer: str) -> bool | None:
    """Decide what needs no algebra: equal text, two plain numbers, words, units; None when it needs some."""
    if gold == answer:
        return True
    wanted, found = exact.rational(gold), exact.rational(answer)
    if wanted is not None and found is not None:
        return wanted == found
    if any(WORDS.fullmatch(exact.bare(text)) for text in (gold, answer)):
        return exact.exact(answer, [gold])
    amount = AMOUNT.fullmatch(answer)
    if wanted is not None and amount and (found := exact.rational(amount[1])) is not None:
        return wanted == found  # a unit in words behind a number that was asked for without one
    units = [found[2] for found in map(UNIT.fullmatch, (gold, answer)) if found]
    return False if len({*units}) == 2 else None


@functools.cache
def _equal() -> "Trusted":
    from codesandbox import Trusted

    return Trusted("coevolve.text.verify.formulas:equal", cpu_seconds=1.0, wall_seconds=5.0, memory_mb=900, warm=WARM)


def valid(gold: str) -> bool:
    """Whether a gold answer can be compared with at all: short enough, and math-verify reads it in time."""
    gold = content(gold)
    if refusal(gold):
        return False
    if exact.rational(gold) is not None or WORDS.fullmatch(exact.bare(gold)):
        return True
    return _equal()(gold, None).value is True


def compare(answer: str, gold: str) -> tuple[str, str]:
    """Verdict and detail for a formula. A gold that cannot be read gives `unscored`, an answer so `wrong`.

    Of an answer with several boxes each must be right, so that boxes which differ never are.
    """
    wanted, found = content(gold), contents(answer)
    if why := refusal(wanted):
        return "unscored", f"the gold answer is {why}"
    if len(found) > BOXES:
        return "wrong", f"over {BOXES} different boxes"
    verdicts = (_compare(box, wanted) for box in found)
    return next((verdict for verdict in verdicts if verdict[0] != "pass"), ("pass", ""))


def _compare(found: str, wanted: str) -> tuple[str, str]:
    """Verdict and detail for one formula and a gold that may be looked at."""
    if why := refusal(found):
        return "wrong", why
    if (right := _cheap(wanted, found)) is None:
        said = _equal()(wanted, found)
        if said.why == "lost" or (said.why and not valid(wanted)) or (not said.why and said.value is None):
            return "unscored", f"the gold answer could not be read ({said.detail or 'not a formula'})"
        if said.why:
            return said.why, said.detail
        right = said.value is True
    return ("pass" if right else "wrong"), ""
