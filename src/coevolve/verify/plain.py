"""Answers compared without computing anything: letters of options, names and their aliases, numbers with a tolerance.

All functions are total over strings and take linear time.
"""

import math
import re
import unicodedata
from collections.abc import Iterable
from fractions import Fraction

LETTER = re.compile(r"\(?([A-Za-z])[.):]?")
DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,60}|[0-9]{1,3}(?:,[0-9]{3}){1,18})?(?:\.[0-9]{0,60})?(?:[eE][+-]?[0-9]{1,3})?")
FRACTION = re.compile(r"([+-]?[0-9]{1,60})\s*/\s*([0-9]{1,60})|([+-]?)\\[dt]?frac\{([0-9]{1,60})\}\{([0-9]{1,60})\}")
WRAPPED = re.compile(r"\\(?:text|mathrm|textbf|mathbf)\{([^{}]*)\}")
LONGEST = 4096  # characters of an answer that are looked at; a longer one is no answer


def bare(text: str) -> str:
    """Strip blanks, dollar signs, bold stars and \\text{...} around an answer."""
    text = text[:LONGEST].strip().removeprefix("\\(").removesuffix("\\)").strip(" \t\r\n$*")
    inside = WRAPPED.fullmatch(text)
    return inside[1].strip() if inside else text


def choice(answer: str, gold: str) -> bool:
    """Whether the answer is the letter of the right option: `B`, `(b)`, `B.`; not a letter with words."""
    found, wanted = LETTER.fullmatch(bare(answer)), LETTER.fullmatch(bare(gold))
    return bool(found and wanted) and len(answer) <= LONGEST and found[1].upper() == wanted[1].upper()


def normal(text: str) -> str:
    """Fold case and white space, also around commas; drop quotes and the final period. Words keep their order."""
    text = unicodedata.normalize("NFC", bare(text)).casefold()
    text = " ".join(text.split()).strip("\"'“”‘’ ").removesuffix(".")
    return re.sub(r" ?, ?", ", ", text).strip()


def exact(answer: str, golds: str | Iterable[str]) -> bool:
    """Whether the answer is one of the accepted spellings, case and white space aside."""
    golds = (golds,) if isinstance(golds, str) else golds
    found = normal(answer)
    return bool(found) and len(answer) <= LONGEST and any(found == normal(str(gold)) for gold in golds)


def rational(text: str) -> Fraction | None:
    """Exact value of a plain decimal or fraction in ASCII digits, None for anything else."""
    text = text.strip()
    if DECIMAL.fullmatch(text) and any(c in "0123456789" for c in text.lower().split("e")[0]):
        return Fraction(text.replace(",", ""))
    match = FRACTION.fullmatch(text)
    if match is None:
        return None
    top, bottom = (match[1], match[2]) if match[1] else (match[3] + match[4], match[5])
    return Fraction(int(top), int(bottom)) if int(bottom) else None


def near(answer: str, gold: str | float, tolerance: float) -> bool | None:
    """Whether two numbers differ by at most `tolerance`, absolute or relative to the gold; None without a gold."""
    found, wanted = rational(bare(answer)), rational(bare(str(gold)))
    if wanted is None:
        return None
    if found is None or len(answer) > LONGEST:
        return False
    return abs(found - wanted) <= Fraction(tolerance) * max(1, abs(wanted)) if math.isfinite(tolerance) else None
