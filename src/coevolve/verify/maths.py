"""Formulas compared by math-verify, bounded: cheap exact checks first, then one guarded process for each pair."""

import functools
import re
from typing import TYPE_CHECKING

from coevolve import parse
from coevolve.verify import plain

if TYPE_CHECKING:
    from codesandbox import Trusted

CHARACTERS, DIGITS, DEPTH = 512, 60, 24  # longer, deeper: no answer to a question but a way to keep us busy
DIGIT_RUN = re.compile(rf"[0-9]{{{DIGITS + 1}}}")
WORDS = re.compile(r"[A-Za-z]{3,}(?: [A-Za-z]+)*")
# The parser learns by doing: pairs that each server compares once, before its forks need them.
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
UNIT = re.compile(r"([+-]?[0-9.,]+)\s*(?:\\[ ,;]|\\(?:text|mathrm)\{)?\s*([A-Za-zµ°]+(?:[/^][A-Za-z0-9]+)*)\}?")


def content(text: str) -> str | None:
    r"""What is inside the text's one \boxed{...} and its dollar signs; None when boxes disagree or one hedges."""
    if parse.BOX in text:
        inside = parse.boxed(text)
        before = text[: text.rfind(parse.BOX)]
        if inside is None or parse.boxed(before) not in (None, inside):
            return None
        text = inside
    return text.strip().removeprefix("\\(").removesuffix("\\)").strip(" \t\r\n$")


def refusal(text: str) -> str:
    """Why the text is not even looked at; empty when it is."""
    if not text:
        return "empty"
    if len(text) > CHARACTERS:
        return f"over {CHARACTERS} characters"
    if DIGIT_RUN.search(text):
        return f"over {DIGITS} digits in a row"
    depth = deepest = 0
    for c in text:
        depth += (c in "({[") - (c in ")}]")
        deepest = max(deepest, depth)
    return f"nested over {DEPTH} deep" if deepest > DEPTH else ""


def _cheap(gold: str, answer: str) -> bool | None:
    """Decide what needs no algebra: equal text, two plain numbers, words, units; None when it needs some."""
    if gold == answer:
        return True
    wanted, found = plain.rational(gold), plain.rational(answer)
    if wanted is not None and found is not None:
        return wanted == found
    words = WORDS.fullmatch(plain.bare(gold)), WORDS.fullmatch(plain.bare(answer))
    if any(words):
        return plain.exact(answer, gold)
    units = UNIT.fullmatch(gold), UNIT.fullmatch(answer)
    return False if all(units) and units[0][2] != units[1][2] else None


@functools.cache
def _equal() -> "Trusted":
    from codesandbox import Trusted

    return Trusted("coevolve.verify.formulas:equal", cpu_seconds=1.0, wall_seconds=5.0, memory_mb=900, warm=WARM)


def valid(gold: str) -> bool:
    """Whether a gold answer can be compared with at all: short enough, and math-verify reads it in time."""
    gold = content(gold) or ""
    if refusal(gold):
        return False
    plainly = plain.rational(gold) is not None or bool(WORDS.fullmatch(plain.bare(gold)))
    return plainly or _equal()(gold, None).value is True


def compare(answer: str, gold: str) -> tuple[str, str]:
    """Verdict and detail for a formula. A gold that cannot be read gives `unscored`, an answer so `wrong`."""
    wanted, found = content(gold) or "", content(answer) or ""
    if why := refusal(wanted):
        return "unscored", f"the gold answer is {why}"
    if why := refusal(found):
        return "wrong", why
    if (cheap := _cheap(wanted, found)) is not None:
        return ("pass" if cheap else "wrong"), ""
    said = _equal()(wanted, found)
    if said.why == "lost" or (said.why and not valid(wanted)) or (not said.why and said.value is None):
        return "unscored", f"the gold answer could not be read ({said.detail or 'not a formula'})"
    if said.why:
        return said.why, said.detail
    return ("pass" if said.value else "wrong"), ""
