"""Exact values of numerals: decimals, thousands, powers of ten, fractions, times of day, bases.

Every function is total over strings and takes linear time; a numeral is a whole text.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

from coevolve.text.verify.normal import FONTS
from coevolve.text.verify.tables import WORDS

DIGITS = r"[0-9]{1,60}"
WHOLE = rf"(?:{DIGITS}|[0-9]{{1,3}}(?:,[0-9]{{3}}){{1,18}})"
EXPONENT = r"[+-]?[0-9]{1,3}"
DECIMAL = re.compile(
    rf"[+-]?(?=\.?[0-9]){WHOLE}?(?:\.[0-9]{{0,60}})?(?:[eE]{EXPONENT})?"
)
# 2 500 000, 2\,500\,000, 2{,}500{,}000, 2,\!500,\!000, 2'500'000, 2_500_000, 2.500.000
SEPARATOR = r"(?:,\\!|\\[,;! ]|\{,\}|,| |~|'|_)"
GROUPED = re.compile(
    rf"[0-9]{{1,3}}(?P<mark>{SEPARATOR})\s?[0-9]{{3}}(?:(?P=mark)\s?[0-9]{{3}}){{0,17}}"
    r"(?![0-9])"
)
GROUPED_BY_POINTS = re.compile(r"[0-9]{1,3}(?:\.[0-9]{3}){2,18}(?![0-9.])")
GROUPED_BY_LAKHS = re.compile(r"[0-9]{1,2}(?:,[0-9]{2}){1,9},[0-9]{3}(?![0-9])")
POWER_OF_TEN = re.compile(
    r"\s*(?:\\times|\\cdot|\*|[x·×])\s*10\s*(?:\^|\*\*)\s*"
    rf"(?:\{{\s*({EXPONENT})\s*\}}|\(\s*({EXPONENT})\s*\)|({EXPONENT}))"
)
TEN_TO = re.compile(rf"(?P<sign>[+-]?)10\s*(?:\^|\*\*)\s*\{{?\s*({EXPONENT})\s*\}}?")
SIGN_WORD = re.compile(r"(?:negative|minus)\s+(?=[0-9.\\])", re.IGNORECASE)
SIGN_BLANK = re.compile(r"([+-])\s+(?=[0-9.\\])")
FRACTION = re.compile(
    rf"(?P<numerator>[+-]?{DIGITS})\s*/\s*(?P<denominator>[+-]?{DIGITS})"
)
PART = rf"(?:\{{\s*([+-]?{DIGITS})\s*\}}|\s*([0-9]))"
LATEX_FRACTION = re.compile(rf"(?P<sign>[+-]?)\\[dtc]?frac{PART}{PART}")
MIXED = re.compile(
    rf"(?P<sign>[+-]?)(?P<whole>{DIGITS})"
    rf"(?:\s*\\[dtc]?frac{PART}{PART}|\s+(?:and\s+)?({DIGITS})\s*/\s*({DIGITS}))"
)
CLOCK = re.compile(
    r"([01]?[0-9]|2[0-4])\s*:\s*([0-5][0-9])(?::([0-5][0-9]))?\s*"
    r"(?:(a|p)\.?\s?m\.?)?(?:\s*o'clock)?",
    re.IGNORECASE,
)
FULL_HOUR = re.compile(r"(1?[0-9])\s*(a|p)\.?\s?m\.?", re.IGNORECASE)
BASED = re.compile(
    r"(-?)\(?([0-9A-Za-z]{1,60}(?:\.[0-9A-Za-z]{1,60})?)\)?"
    r"_\s*(?:\{\s*([0-9]{1,2})\s*\}|([0-9]{1,2}))"
)
PARENTHESES = re.compile(r"\(\s*([^()]*)\s*\)")


def rational(text: str) -> Fraction | None:
    """Return the exact value of a numeral in ASCII digits, else None.

    Decimals with thousands in every usual form, powers of ten, fractions and mixed numbers.
    """
    text = SIGN_WORD.sub("-", text.strip(), count=1)
    text = SIGN_BLANK.sub(r"\1", text, count=1)
    inside = PARENTHESES.fullmatch(text)
    if inside:
        text = inside[1]
    fraction = _fraction(text)
    if fraction is not None:
        return fraction
    power = TEN_TO.fullmatch(text)
    if power:
        return Fraction(f"{power['sign']}1e{power[2]}")
    factor = POWER_OF_TEN.search(text)
    if factor and factor.end() == len(text):
        exponent = factor[1] or factor[2] or factor[3]
        text = text[: factor.start()] + "e" + exponent
    return _decimal(text)


def _decimal(text: str) -> Fraction | None:
    text = ungrouped(text)
    if not DECIMAL.fullmatch(text):
        return None
    return Fraction(text.replace(",", ""))


def ungrouped(text: str) -> str:
    """Return a numeral, perhaps with a sign, without the marks between its thousands."""
    digits = text.lstrip("+-")
    sign = text[: len(text) - len(digits)]
    for pattern in (GROUPED, GROUPED_BY_POINTS, GROUPED_BY_LAKHS):
        group = pattern.match(digits)
        if group:
            whole = re.sub("[^0-9]", "", group[0])
            return sign + whole + digits[group.end() :]
    return text


def _fraction(text: str) -> Fraction | None:
    """Return the value of a fraction or a mixed number, None if it is neither or divides by 0."""
    whole = 0
    match = FRACTION.fullmatch(text)
    if match:
        numerator = int(match["numerator"])
        denominator = int(match["denominator"])
        return Fraction(numerator, denominator) if denominator else None
    match = LATEX_FRACTION.fullmatch(text)
    if match is None:
        match = MIXED.fullmatch(text)
        if match is None:
            return None
        whole = int(match["whole"])
    parts = [part for part in match.groups() if part]
    numerator = int(parts[-2])
    denominator = int(parts[-1])
    if denominator == 0:
        return None
    value = whole + Fraction(numerator, denominator)
    if match["sign"] == "-":
        return -value
    return value


ONES: list[str] = WORDS["numbers"]["ones"]
TENS: list[str] = WORDS["numbers"]["tens"]
LARGE: dict[str, int] = WORDS["numbers"]["large"]
PARTS: dict[str, int] = WORDS["numbers"]["parts"]
SCALES: dict[str, int] = WORDS["scales"]
MAX_WORDS = 24


def read_number_words(text: str) -> Fraction | None:
    """Return the value of a number in English words, else None.

    Whole numbers, perhaps negative (`negative twenty-one`), and fractions (`three quarters`).
    """
    words = text.lower().replace("-", " ").split()
    if not words or len(words) > MAX_WORDS:
        return None
    first, *others = words
    if first in ("negative", "minus"):
        value = read_number_words(" ".join(others))
        return None if value is None else -value
    denominator = PARTS.get(words[-1])
    if denominator is not None:
        numerator = _numerator(words[:-1])
        return None if numerator is None else Fraction(numerator, denominator)
    total = _counted([word for word in words if word != "and"])
    return None if total is None else Fraction(total)


def _numerator(words: list[str]) -> int | None:
    """Return the count in front of a part: `half`, `a half` and `one half` are one."""
    if words in ([], ["a"], ["an"]):
        return 1
    return _counted(words)


def with_digits(text: str) -> str:
    """Write number words at the start of a text in digits: `three apples`, `a dozen eggs`."""
    words = text.split(" ")
    if (
        words[0].lower() in ("a", "an")
        and len(words) > 1
        and words[1].lower() in SCALES
    ):
        return f"1 {' '.join(words[1:])}"
    for count in range(min(len(words), MAX_WORDS), 0, -1):
        number_words = " ".join(words[:count])
        value = read_number_words(number_words)
        if value is not None:
            return " ".join([str(value), *words[count:]])
    return text


def _counted(words: list[str]) -> int | None:
    """Add up thousands from the largest, and hundreds, tens and ones within each."""
    total = 0
    group = 0
    largest = LARGE["trillion"] * 1000  # the next scale must be smaller
    before = ""
    for word in words:
        if word in ONES and _may_follow(word, before):
            group += ONES.index(word)
        elif word in TENS and before not in ONES and before not in TENS:
            group += 10 * (TENS.index(word) + 2)
        elif word == "hundred" and 0 < group < 100:
            group *= 100
        elif group > 0 and LARGE.get(word, largest) < largest:
            largest = LARGE[word]
            total += group * largest
            group = 0
        else:
            return None
        before = word
    return total + group if words else None


def _may_follow(one: str, before: str) -> bool:
    """Whether a number below twenty may follow a word: `twenty one`, not `twenty ten`."""
    if before in TENS:
        return 0 < ONES.index(one) < 10
    return before not in ONES


@dataclass(frozen=True)
class Clock:
    """A time of day; `half` is "a" (before noon), "p" or "" where nothing is said."""

    hour: int
    minute: int
    second: int
    half: str

    def same(self, other: "Clock") -> bool:
        """Whether two times agree; half a day apart only if one of them does not say which."""
        if (self.minute, self.second) != (other.minute, other.second):
            return False
        if self.half and other.half:
            return self._hours() == other._hours()
        if self.half or other.half:
            said, open_one = (self, other) if self.half else (other, self)
            return open_one.hour in (said.hour, said._hours())
        return self.hour == other.hour

    def _hours(self) -> int:
        return self.hour % 12 + (12 if self.half == "p" else 0)


def clock(text: str) -> Clock | None:
    """Read a time of day such as `8:40` or `8:40 p.m.`; a ratio such as `3:4` is not one."""
    text = FONTS.sub(r"\1", text)
    match = CLOCK.fullmatch(text)
    if match:
        hour, minute, second, half = match.groups(default="")
        return Clock(int(hour), int(minute), int(second or 0), half.lower())
    match = FULL_HOUR.fullmatch(text)
    if match:
        return Clock(int(match[1]), 0, 0, match[2].lower())
    return None


def based(text: str) -> tuple[str, int] | None:
    """Read digits with a base, such as `37_8` or `2B_{16}`; None for anything else."""
    match = BASED.fullmatch(FONTS.sub(r"\1", text))
    if match is None:
        return None
    base = int(match[3] or match[4])
    digits = match[2].upper().lstrip("0") or "0"
    if not 2 <= base <= 36:
        return None
    largest = int(max(digits), 36)
    return (match[1] + digits, base) if largest < base else None
