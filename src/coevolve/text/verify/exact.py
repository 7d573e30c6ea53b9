"""Answers compared without algebra: letters of options, names with aliases, numbers.

All functions are total over strings and take linear time.
"""

import re
import unicodedata
from collections.abc import Iterable
from fractions import Fraction

OPTION = re.compile(r"\(?([A-Za-z])(?:[.):](.*))?", re.DOTALL)
# A further option, as in "A) or B)", but not "f(x)" or "U.S.".
OTHER_OPTION = re.compile(r"(?<!\S)\(?([A-Za-z])[.):](?!\S)")
WHOLE = r"(?:[0-9]{1,60}|[0-9]{1,3}(?:,[0-9]{3}){1,18})"
DECIMAL = re.compile(
    rf"[+-]?(?=\.?[0-9]){WHOLE}?(?:\.[0-9]{{0,60}})?(?:[eE][+-]?[0-9]{{1,3}})?"
)
FRACTION = re.compile(
    r"(?P<numerator>[+-]?[0-9]{1,60})\s*/\s*(?P<denominator>[0-9]{1,60})"
)
LATEX_FRACTION = re.compile(
    r"(?P<sign>[+-]?)\\[dt]?frac"
    r"\{(?P<numerator>[0-9]{1,60})\}\{(?P<denominator>[0-9]{1,60})\}"
)
WRAPPED = re.compile(r"\\(?:text|mathrm|textbf|mathbf)\{([^{}]*)\}")
MAX_CHARACTERS = 4096  # of an answer


def bare(text: str) -> str:
    """Strip blanks, dollar signs, bold stars and \\text{...} around an answer; "" if too long."""
    if len(text) > MAX_CHARACTERS:
        return ""
    text = text.strip().removeprefix("\\(").removesuffix("\\)")
    text = text.strip(" \t\r\n$*")
    wrapped = WRAPPED.fullmatch(text)
    return wrapped[1].strip() if wrapped else text


def letter(text: str) -> str | None:
    """Return the letter of an option: `B`, `(b)`, `B.`, `B) 7 km`; None for `B 7 km`.

    None also for an answer that names two options.
    """
    option = OPTION.fullmatch(bare(text))
    if option is None:
        return None
    letters = {option[1].upper()}
    for other in OTHER_OPTION.findall(option[2] or ""):
        letters.add(other.upper())
    return letters.pop() if len(letters) == 1 else None


def choice(answer: str, gold: str) -> bool:
    """Whether the answer is the letter of the correct option."""
    return letter(answer) is not None and letter(answer) == letter(gold)


def normal(text: str) -> str:
    """Normalise case, white space and blanks around commas; keep the order of words.

    Surrounding quotes and the final period are dropped.
    """
    text = unicodedata.normalize("NFC", bare(text)).casefold()
    text = " ".join(text.split())
    text = text.strip("\"'“”‘’ ").removesuffix(".")
    return re.sub(r" ?, ?", ", ", text).strip()


def exact(answer: str, golds: Iterable[str]) -> bool:
    """Whether the answer is one of the accepted spellings, up to case and white space."""
    spelling = normal(answer)
    if not spelling:
        return False
    return any(spelling == normal(gold) for gold in golds)


def rational(text: str) -> Fraction | None:
    """Return the exact value of a plain decimal or fraction in ASCII digits, else None."""
    text = text.strip()
    if DECIMAL.fullmatch(text):
        return Fraction(text.replace(",", ""))
    sign = ""
    match = FRACTION.fullmatch(text)
    if match is None:
        match = LATEX_FRACTION.fullmatch(text)
        if match is None:
            return None
        sign = match["sign"]
    numerator = int(sign + match["numerator"])
    denominator = int(match["denominator"])
    return Fraction(numerator, denominator) if denominator else None


def near(answer: str, gold: str, tolerance: float) -> bool | None:
    """Whether two numbers differ by at most `tolerance`, absolute or relative to the gold.

    None if the gold answer is no number.
    """
    answer_number = rational(bare(answer))
    gold_number = rational(bare(gold))
    if gold_number is None:
        return None
    if answer_number is None:
        return False
    limit = Fraction(tolerance) * max(Fraction(1), abs(gold_number))
    return abs(answer_number - gold_number) <= limit
