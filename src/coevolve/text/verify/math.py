"""Formulas compared within bounds of time and memory.

Cheap exact checks come first: numbers, quantities, times of day, words. The remaining pairs go to
a guarded process, one pair at a time.
"""

import functools
import re
from fractions import Fraction
from typing import TYPE_CHECKING

from coevolve.text import parse
from coevolve.text.verify import exact, normal, numbers, shapes, tables, units

if TYPE_CHECKING:
    from codesandbox import Trusted

# Longer or deeper text is not a plausible answer, but could keep the verifier busy.
MAX_CHARACTERS = 512
MAX_DIGITS = 60  # in a row
MAX_DEPTH = 24
MAX_READINGS = 3
MAX_BOXES = 8  # different ones in an answer; more are a guess at many
DIGIT_RUN = re.compile(rf"[0-9]{{{MAX_DIGITS + 1}}}")
WORDS = re.compile(r"[A-Za-z]{3,}(?:(?:,? |-)[A-Za-z']+)*")
WORDS_AND_NUMBERS = re.compile(r"[A-Za-z]{3,}(?:(?:,? |-)(?:[A-Za-z']+|[0-9]+))*")
PHRASES: dict[str, str] = tables.WORDS["phrases"]
# Together with the equals sign behind it, one of these is another relation, such as <=.
RELATION = re.compile(r"[<>!]$|\\(?:n|l|g)?eq?$|\\not$")
APPROXIMATELY = re.compile(r"\\(?:approx|simeq)(?![A-Za-z])")
JOIN = re.compile(r"[,;]|\b(?:and|or)\b")
NAME = re.compile(r"[A-Za-z](?:_\{?[A-Za-z0-9]\}?)?")  # as the last side of 17 = x
LETTER = re.compile(r"[A-Za-z]")
RATIO = re.compile(r"[0-9.]{1,20}(?:\s*(?::|\bto\b)\s*[0-9.]{1,20}){1,9}")
GROUPED_FACTOR = re.compile(
    r"([+-]?[0-9]{1,3}(?:,[0-9]{3})+)(?=\s*(?:\\(?:pi|sqrt)|[a-z]))"
)
SMALL_SPACE = re.compile(r"(?<=[0-9])(?:,\\!|\{,\}|\\,)\s?(?=[0-9]{3})")
INVISIBLE = re.compile(r"\\!|\\[hv]?phantom\s*(?:\{[^{}]*\}|-)")
OPTION = re.compile(r"(?:\(?[A-E]\)|[A-E]\.)\s+(?=[-+$\\0-9])")
FIGURE = re.compile(r"\\(?:triangle|angle)\s*(?=[A-Z])")
EXCEPT = re.compile(
    r"all (?:real numbers|reals) except (?:for )?(?:x ?= ?)?(?P<points>.+)"
)
DEGREES = re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-z]))")
TEXT_JOIN = re.compile(r"\\(?:text|mathrm|mbox)\s*\{\s*(,?)\s*(and|or),?\s*\}")


def contents(text: str) -> list[str]:
    r"""Return the distinct contents of all \boxed{...} of a text, or the text if it has no box.

    Each is in normal form, and "" for a box that hedges, is unclosed or holds a box.
    """
    boxes = [box or "" for box in parse.boxes(text)]
    plain = [normal_form(box) for box in boxes or [text]]
    return list(dict.fromkeys(plain))


def normal_form(formula: str) -> str:
    """Return a formula without wrapping, in ASCII or LaTeX signs."""
    unwrapped = normal.unwrapped(formula)
    unwrapped = PHRASES.get(unwrapped.lower(), unwrapped)
    unwrapped = (
        OPTION.sub("", unwrapped, count=1) if OPTION.match(unwrapped) else unwrapped
    )
    hole = EXCEPT.fullmatch(unwrapped)
    if hole:
        unwrapped = rf"\mathbb{{R}}\setminus\{{{hole['points']}\}}"
    text = normal.ascii_math(unwrapped).strip()
    text = SMALL_SPACE.sub("", text)
    text = INVISIBLE.sub("", text)
    text = FIGURE.sub("", text)
    text = DEGREES.sub("°", text)
    text = TEXT_JOIN.sub(r"\1 \2 ", text)
    factor = GROUPED_FACTOR.match(text)
    if factor:
        text = factor[1].replace(",", "") + text[factor.end() :]
    return text


def content(gold: str) -> str:
    """Return the content of a gold answer, "" if it holds several different ones.

    A rounded value behind the exact one says nothing more.
    """
    boxes = contents(gold)
    if len(boxes) > 1:
        return ""
    return APPROXIMATELY.split(boxes[0])[0].strip()


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
    """Compare texts, numbers, quantities, times and words; None if the pair needs algebra."""
    if gold == answer:
        return True
    for read in (numbers.clock, numbers.based):
        gold_value = read(gold)
        answer_value = read(answer)
        if gold_value is not None or answer_value is not None:
            return _same_notation(gold_value, answer_value)
    gold_ratio = _ratio(gold)
    answer_ratio = _ratio(answer)
    if gold_ratio is not None or answer_ratio is not None:
        return (gold_ratio or _as_ratio(gold)) == (answer_ratio or _as_ratio(answer))
    gold_quantity = units.quantity(gold)
    answer_quantity = units.quantity(answer) or units.stated(answer)
    if gold_quantity is not None and answer_quantity is not None:
        return units.same(answer_quantity, gold_quantity)
    if _is_words(gold, WORDS_AND_NUMBERS) or _is_words(answer, WORDS):
        return exact.exact(answer, [gold])
    return None


def _same_notation(
    gold: numbers.Clock | tuple[str, int] | None,
    answer: numbers.Clock | tuple[str, int] | None,
) -> bool:
    """Compare two times of day or two numbers with a base; anything else differs."""
    if isinstance(gold, numbers.Clock) and isinstance(answer, numbers.Clock):
        return answer.same(gold)
    return gold == answer


def _ratio(text: str) -> tuple[Fraction, ...] | None:
    """Return the parts of a ratio such as `3:4`, divided by the first; None for other texts."""
    if not RATIO.fullmatch(text):
        return None
    parts = [numbers.rational(part) for part in re.split(r":|to", text)]
    first = parts[0]
    if not first or None in parts:
        return None
    return tuple(part / first for part in parts if part is not None)


def _as_ratio(text: str) -> tuple[Fraction, ...] | None:
    """Return a number such as `3/4` as the ratio that it is the quotient of."""
    quotient = numbers.rational(text)
    return (Fraction(1), 1 / quotient) if quotient else None


def _is_words(text: str, pattern: re.Pattern[str]) -> bool:
    is_product = shapes.PRODUCT.fullmatch(text) is not None
    if is_product or not pattern.fullmatch(text):
        return False
    known_words = shapes.FUNCTIONS | set(shapes.SPELLINGS)
    return known_words.isdisjoint(text.split())


def readings(answer: str, gold: str) -> list[list[str]]:
    """Return the ways to read an answer, each as the parts that must all equal the gold.

    For a chain a = b = c these are its end and every side without a letter, so not the name `x` in
    `x = 3`. A value and its approximation, `\\pi \\approx 3.14`, are two readings. A list of
    assignments and any other relation stay whole.
    """
    if "=" in gold:
        return [[answer]]
    exact_and_rounded = APPROXIMATELY.split(answer)[:MAX_READINGS]
    return [_sides(part.strip()) for part in exact_and_rounded if part.strip()]


def _as_formula(gold: str) -> str:
    """Write a gold number, such as `$5` or `four`, so that it can be compared with a formula."""
    quantity = units.quantity(gold)
    is_money = units.CURRENCY.match(gold) is not None
    if quantity is None or (quantity.unit is not None and not is_money):
        return gold
    number = f"{quantity.value.numerator}/{quantity.value.denominator}"
    return number + (r"\text{ dollars}" if is_money else "")


def _sides(answer: str) -> list[str]:
    *names, end = _split_outside_brackets(answer, "=")
    has_relation = any(RELATION.search(name.strip()) for name in names)
    is_list = len(names) > 1 and JOIN.search(answer) is not None
    if not names or has_relation or is_list or "\\{" in names[0]:
        return [answer]
    values = [name for name in names if not LETTER.search(name)]
    if not values or not NAME.fullmatch(end.strip()):
        values.append(end)
    return [normal_form(side) for side in values]


def _split_outside_brackets(text: str, mark: str) -> list[str]:
    """Split at a mark, but not inside brackets, as in `\\sum_{k=1}^n k`."""
    parts = [""]
    depth = 0
    for character in text:
        depth += (character in "({[") - (character in ")}]")
        if character == mark and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


@functools.cache
def _guarded_equal() -> "Trusted":
    """Return `formulas.equal` as a function that runs in a guarded process."""
    from codesandbox import Trusted

    return Trusted(
        "coevolve.text.verify.formulas:equal",
        cpu_seconds=1.0,
        wall_seconds=5.0,
        memory_mb=900,
        # Compared once when a server starts, so that its forks share what sympy builds.
        warm=tables.WARM_UP_PAIRS,
    )


def valid(gold: str) -> bool:
    """Whether answers can be compared with a gold answer, within bounds."""
    gold = content(gold)
    if refusal(gold):
        return False
    is_plain = (
        units.quantity(gold) is not None
        or numbers.clock(gold) is not None
        or numbers.based(gold) is not None
        or _ratio(gold) is not None
        or _is_words(gold, WORDS_AND_NUMBERS)
    )
    return is_plain or _guarded_equal()(gold, None).value is True


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
        verdict, detail = _compare_box(box, gold_formula)
        if verdict != "pass":
            return verdict, detail
    return "pass", ""


def _compare_box(answer: str, gold: str) -> tuple[str, str]:
    """Return the verdict of one box: that of its best reading."""
    reason = refusal(answer)
    if reason:
        return "wrong", reason
    verdict = "wrong"
    detail = ""
    for sides in readings(answer, gold):
        verdict, detail = _compare_sides(sides, gold)
        if verdict != "wrong":
            break
    return verdict, detail


def _compare_sides(sides: list[str], gold: str) -> tuple[str, str]:
    for side in sides:
        verdict, detail = _compare_formulas(side, gold)
        if verdict != "pass":
            return verdict, detail
    return "pass", ""


def _compare_formulas(answer: str, gold: str) -> tuple[str, str]:
    """Return the verdict and its detail for one formula and an accepted gold formula."""
    if not answer:
        return "wrong", "empty"
    is_correct = _equal_without_algebra(gold, answer)
    if is_correct is None:
        result = _guarded_equal()(_as_formula(gold), answer)
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
