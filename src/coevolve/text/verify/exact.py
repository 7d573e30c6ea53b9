"""Answers compared without algebra: letters of options, names with aliases, numbers.

All functions are total over strings and take linear time.
"""

import re
from collections.abc import Iterable
from fractions import Fraction

from coevolve.text.verify import normal, units

NAME_OF_OPTION = (
    r"(?:(?:the\s+)?(?:correct\s+)?(?:option|choice|answer|letter)\s*(?:is\b)?:?\s*)?"
)
OPTION = re.compile(
    NAME_OF_OPTION
    + r"[(\[]?\s*([A-Za-z])(?:\s*[)\].:](.*)|\s+[-\u2013\u2014]\s+(.*))?",
    re.DOTALL | re.IGNORECASE,
)
# A further option, as in "A) or B)", but not "f(x)" or "U.S.".
OTHER_OPTION = re.compile(r"(?<!\S)\(?([A-Za-z])[.):](?!\S)")
LONE_LETTER = re.compile(r"\s*\(?([A-H])\)?\s*")

# As SQuAD, NQ and TriviaQA compare names: without case, articles and punctuation.
APOSTROPHES = re.compile(r"['`]")
THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
POINT = re.compile(r"(?<=[^\W\d_])\.|\.(?![0-9])")  # of words, not of 3.5 and .5
PUNCTUATION = re.compile(
    r"[,;:!?\"()\[\]{}*_/\\…\u2010-\u2015]|(?<=\w)-|-(?!\w|\.[0-9])"
)
INITIALS = re.compile(r"\b([a-z]) (?=[a-z]\b)")
ARTICLES = re.compile(r"\b(?:a|an|the)\b")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,12}\s*(?:=|\\approx)\s*(?=\S)")


def letter(text: str) -> str | None:
    """Return the letter of an option: `B`, `(b)`, `B.`, `B) 7 km`, `Option B`.

    None for `B 7 km`, which could be a sentence, and for an answer that names two options.
    """
    plain = _without_fonts(text)
    option = OPTION.fullmatch(plain.strip())
    if option is None:
        return None
    text_of_option = option[2] or option[3] or ""
    letters = {option[1].upper()}
    for other in OTHER_OPTION.findall(text_of_option):
        letters.add(other.upper())
    lone_letter = LONE_LETTER.fullmatch(text_of_option)
    if lone_letter:
        letters.add(lone_letter[1])
    if len(letters) > 1:
        return None
    return letters.pop()


def choice(answer: str, gold: str) -> bool:
    """Whether the answer is the letter of the correct option."""
    answer_letter = letter(answer)
    if answer_letter is None:
        return False
    return answer_letter == letter(gold)


def spelling(text: str) -> str:
    """Return a name without case, articles, punctuation and blanks that carry no meaning.

    The order of words stays, and so do the points, signs and digits of numbers.
    """
    text = _without_fonts(text).casefold()
    plain = APOSTROPHES.sub("", text)
    plain = THOUSANDS.sub("", plain)
    plain = POINT.sub("", plain)
    plain = PUNCTUATION.sub(" ", plain)
    plain = _one_blank(plain)
    plain = INITIALS.sub(r"\1", plain)
    plain = ARTICLES.sub(" ", plain)
    return _one_blank(plain) or _one_blank(text)


def _without_fonts(text: str) -> str:
    text = normal.unwrapped(text)
    return normal.FONTS.sub(r"\1", text)


def _one_blank(text: str) -> str:
    """Return the words of a text with one blank between them."""
    return " ".join(text.split())


def exact(answer: str, golds: Iterable[str]) -> bool:
    """Whether the answer is one of the accepted spellings."""
    answer_spelling = spelling(answer)
    if not answer_spelling:
        return False
    return any(answer_spelling == spelling(gold) for gold in golds)


def number(text: str) -> units.Quantity | None:
    """Read a number, perhaps with a unit and the name that it is given: `v = 3.2 m/s`."""
    plain = normal.ascii_math(normal.unwrapped(text)).strip()
    name = NAME.match(plain)
    if name:
        plain = plain[name.end() :]
    return units.quantity(plain)


def near(answer: str, gold: str, tolerance: float) -> bool | None:
    """Whether two numbers differ by at most `tolerance`, absolute or relative to the gold.

    Units are compared as in `math`. None if the gold answer is not a number.
    """
    answer_number = number(answer)
    gold_number = number(gold)
    if gold_number is None:
        return None
    if answer_number is None:
        return False

    def is_near(value: Fraction, gold_value: Fraction) -> bool:
        scale = max(Fraction(1), abs(gold_value))
        limit = Fraction(tolerance) * scale
        return abs(value - gold_value) <= limit

    return units.same(answer_number, gold_number, is_near)
