"""Answers compared without computing anything: letters of options, names and their aliases, numbers with a tolerance.

All functions are total over strings and take linear time.
"""

import re
import unicodedata
from collections.abc import Iterable
from fractions import Fraction

LETTER = re.compile(r"\(?([A-Za-z])(?:[.):](.*))?", re.DOTALL)
OTHER = re.compile(r"(?<!\S)\(?([A-Za-z])[.):](?!\S)")  # one more option, as in "A) or B)"; not "f(x)", "U.S."
WHOLE = r"(?:[0-9]{1,60}|[0-9]{1,3}(?:,[0-9]{3}){1,18})"
DECIMAL = re.compile(rf"[+-]?(?=\.?[0-9]){WHOLE}?(?:\.[0-9]{{0,60}})?(?:[eE][+-]?[0-9]{{1,3}})?")
FRACTION = re.compile(r"([+-]?[0-9]{1,60})\s*/\s*([0-9]{1,60})|([+-]?)\\[dt]?frac\{([0-9]{1,60})\}\{([0-9]{1,60})\}")
WRAPPED = re.compile(r"\\(?:text|mathrm|textbf|mathbf)\{([^{}]*)\}")
LONGEST = 4096  # characters of an answer


def bare(text: str) -> str:
    """Strip blanks, dollar signs, bold stars and \\text{...} around an answer; empty for one over LONGEST."""
    text = "" if len(text) > LONGEST else text.strip().removeprefix("\\(").removesuffix("\\)").strip(" \t\r\n$*")
    inside = WRAPPED.fullmatch(text)
    return inside[1].strip() if inside else text


def letter(text: str) -> str | None:
    """Return the letter of an option: `B`, `(b)`, `B.`, `B) 7 km`; None for `B 7 km`, and for two options."""
    found = LETTER.fullmatch(bare(text))
    letters = {*map(str.upper, [found[1], *OTHER.findall(found[2] or "")])} if found else ()
    return letters.pop() if len(letters) == 1 else None


def choice(answer: str, gold: str) -> bool:
    """Whether the answer is the letter of the right option."""
    return letter(answer) is not None and letter(answer) == letter(gold)


def normal(text: str) -> str:
    """Fold case and white space, also around commas; drop quotes and the final period. Words keep their order."""
    text = unicodedata.normalize("NFC", bare(text)).casefold()
    text = " ".join(text.split()).strip("\"'“”‘’ ").removesuffix(".")
    return re.sub(r" ?, ?", ", ", text).strip()


def exact(answer: str, golds: Iterable[str]) -> bool:
    """Whether the answer is one of the accepted spellings, case and white space aside."""
    found = normal(answer)
    return bool(found) and found in map(normal, golds)


def rational(text: str) -> Fraction | None:
    """Exact value of a plain decimal or fraction in ASCII digits, None for anything else."""
    text = text.strip()
    if DECIMAL.fullmatch(text):
        return Fraction(text.replace(",", ""))
    match = FRACTION.fullmatch(text)
    if match is None:
        return None
    top, bottom = (match[1], match[2]) if match[1] else (match[3] + match[4], match[5])
    return Fraction(int(top), int(bottom)) if int(bottom) else None


def near(answer: str, gold: str, tolerance: float) -> bool | None:
    """Whether two numbers differ by at most `tolerance`, absolute or relative to the gold; None without a gold."""
    found, wanted = rational(bare(answer)), rational(bare(gold))
    if wanted is None or found is None:
        return None if wanted is None else False
    return abs(found - wanted) <= Fraction(tolerance) * max(Fraction(1), abs(wanted))
