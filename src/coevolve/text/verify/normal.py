"""The normal form of an answer, which every verifier compares.

`unwrapped` takes off what surrounds an answer: boxes, bold, quotes, dollar signs, lead-ins.
`ascii_math` writes typographic signs as LaTeX. Both are total and take linear time.
"""

import re
import unicodedata
from collections.abc import Iterable

from coevolve.text.verify.tables import SIGNS

MAX_CHARACTERS = 4096  # of an answer without the blanks around it
MAX_ROUNDS = 16  # of wrapping, one inside another

INVISIBLE = dict.fromkeys(
    [*range(0x200B, 0x2010), *range(0x2060, 0x2065), 0xFEFF, 0xAD]
)
BLANKS = dict.fromkeys([0xA0, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000], " ")
QUOTES = str.maketrans("‘’‚‛′＇“”„‟«»＂", "'" * 6 + '"' * 7)

PAIRS = (
    ("**", "**"),
    ("__", "__"),
    ("```", "```"),
    ("`", "`"),
    ("*", "*"),
    ("\\(", "\\)"),
    ("\\[", "\\]"),
    ('"', '"'),
    ("'", "'"),
)
TEXT_FONT = r"text(?:normal|bf|it|rm|sf|tt)?|mbox|emph|underline|operatorname"
MATH_FONT = r"math(?:rm|bf|it|sf)|bold"
FONTS = re.compile(rf"\\(?:{TEXT_FONT}|{MATH_FONT})\s*\{{([^{{}}]*)\}}")
BOX = re.compile(r"\\(?:boxed|fbox|framebox)\s*(?=\{)")
BARE_BOX = re.compile(r"\\(?:boxed|fbox)\s+([^\s{}$]+)")
COLOR = re.compile(r"\\(?:text)?color\s*\{[A-Za-z0-9!]*\}")
STYLE = re.compile(
    r"\\(?:displaystyle|textstyle|bf|rm|it|large|Large|huge|Huge)(?![A-Za-z])"
)
TAG = re.compile(r"<([A-Za-z]+)>(.*)</\1>", re.DOTALL)
HEADING = re.compile(r"#{1,6}\s*(?=\S)")
LEAD_IN = re.compile(
    r"(?:(?:so|thus|hence|therefore|then|finally)\b,?\s*)?"
    r"(?:(?:the|my|our|a)\s+)?"
    r"(?:(?:\*\*|__)?\s*(?:final\s+answer\b(?:\*\*|__)?\s*(?:is\b|=|:)?"
    r"|(?:(?:correct|right|exact|required|desired)\s+)?"
    r"(?:answer|solution|result|value|total|sum)\b(?:\*\*|__)?\s*(?:is\b|equals\b|=|:))"
    r"|(?:it|this|that|we)\s+(?:is|equals|get|have|find|obtain)\b"
    r"|it's\b|(?:is\s+)?equal\s+to\b|equals\b|is\b"
    r"|(?:so|thus|hence|therefore)\b)\s*[:,]?(?:\*\*|__)?\s*(?=\S)",
    re.IGNORECASE,
)
EQUALS = re.compile(
    r"(?:=>|==?|→|⇒|≈|≃|∴|\\(?:approx|simeq|sim|therefore|implies|Rightarrow|to)(?![A-Za-z]))\s*"
)
DOLLAR = re.compile(r"(?<!\\)\$")
APPROXIMATELY = re.compile(
    r"(?:(?<!\\)(?:approximately|approx\.?|about|around|roughly)\s+(?=[-+$\\0-9.])"
    r"|\s\(?approx(?:imately|\.)?\)?$)",
    re.IGNORECASE,
)
STRAY = " \t\r\n~"
STRAY_END = STRAY + "\\,;:✓✔✅☑"


def unwrapped(text: str) -> str:
    """Return an answer without the marks around it; "" if it is too long to be one."""
    text = _visible(text)
    for _ in range(MAX_ROUNDS):
        shorter = _without_one_wrapping(text)
        if shorter == text:
            break
        text = shorter
    return text


def _visible(text: str) -> str:
    """Return the text without invisible characters, with plain blanks and quotes."""
    text = text.strip()
    if len(text) > MAX_CHARACTERS:
        return ""
    text = text.translate(INVISIBLE).translate(BLANKS).translate(QUOTES)
    return unicodedata.normalize("NFC", text)


def _without_one_wrapping(text: str) -> str:
    text = text.lstrip(STRAY).rstrip(STRAY_END)
    if text.endswith(".") and not text.endswith(".."):
        text = text[:-1].rstrip()
    text = COLOR.sub("", STYLE.sub("", text))
    text = APPROXIMATELY.sub("", text)
    text = text.removesuffix("<br>")
    for pattern in (HEADING, LEAD_IN, EQUALS):
        start = pattern.match(text)
        if start and start.end() < len(text):
            return text[start.end() :]
    dollars = text.count("$") - text.count("\\$")
    if dollars and dollars % 2 == 0:
        return DOLLAR.sub("", text)
    whole = _whole(text)
    if whole is not None:
        return whole
    return _without_stray_marks(text)


def _whole(text: str) -> str | None:
    """Return the content if one pair of marks, one command or one group holds the whole text."""
    for opening, closing in PAIRS:
        is_wrapped = text.startswith(opening) and text.endswith(closing)
        if is_wrapped and len(text) > len(opening) + len(closing):
            inside = text[len(opening) : -len(closing)]
            if opening not in inside and closing not in inside:
                return inside
    font = FONTS.fullmatch(text)
    if font:
        return font[1]
    bare_box = BARE_BOX.fullmatch(text)
    if bare_box:
        return bare_box[1]
    tag = TAG.fullmatch(text)
    if tag:
        return tag[2]
    box = BOX.match(text)
    start = box.end() if box else 0
    if text[start : start + 1] == "{" and closing_brace(text, start) == len(text) - 1:
        return text[start + 1 : -1]
    return None


def closing_brace(text: str, start: int) -> int:
    """Return where the brace that opens at `start` closes, -1 if it does not."""
    depth = 0
    position = start
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 1
        elif character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return position
        position += 1
    return -1


def _without_stray_marks(text: str) -> str:
    """Take off bold stars, backticks and dollar signs that have lost their partner."""
    text = text.rstrip("*`").lstrip("*`")
    if text.count("$") - text.count("\\$") == 1 and text.endswith("$"):
        return text[:-1]
    return text


SUPERSCRIPTS = SIGNS["raised"]
SUBSCRIPTS = SIGNS["lowered"]
RAISED = re.compile(f"[{''.join(SUPERSCRIPTS)}]+")
LOWERED = re.compile(f"[{''.join(SUBSCRIPTS)}]+")
VULGAR_FRACTION = re.compile("[¼-¾⅐-⅞]")
REPEATING = re.compile(
    r"(?<![0-9])([0-9]{0,20})\.([0-9]{0,20})"
    r"\\(?:overline|bar|dot)\s*(?:\{([0-9]{1,20})\}|([0-9]))"
)
COMBINING_BAR = re.compile("((?:[0-9]\u0305)+)")
FULL_WIDTH = {chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
SIGN_TABLE = str.maketrans(SIGNS["typographic"] | FULL_WIDTH)


# 0.333... stands for 1/3.
ELLIPSIS = re.compile(
    r"(?<![0-9])([0-9]{0,20})\.([0-9]{0,20}?)([0-9])\3{2,20}(?:\.\.\.|\\[lc]?dots(?![a-z]))"
)


def ascii_math(text: str) -> str:
    """Write typographic signs of a formula in LaTeX: `½√7` as `\\frac{1}{2}\\sqrt 7`."""
    text = VULGAR_FRACTION.sub(_fraction, text)
    text = RAISED.sub(lambda run: "^{" + _plain(run[0], SUPERSCRIPTS) + "}", text)
    text = LOWERED.sub(lambda run: "_{" + _plain(run[0], SUBSCRIPTS) + "}", text)
    text = COMBINING_BAR.sub(_overlined, text)
    text = text.translate(SIGN_TABLE)
    text = ELLIPSIS.sub(r"\1.\2\\overline{\3}", text)
    return REPEATING.sub(_repeating, text)


def _plain(characters: Iterable[str], table: dict[str, str]) -> str:
    return "".join(table[character] for character in characters)


def _fraction(sign: re.Match[str]) -> str:
    numerator, _, denominator = unicodedata.normalize("NFKC", sign[0]).partition("⁄")
    return rf"\frac{{{numerator}}}{{{denominator}}}"


def _overlined(digits: re.Match[str]) -> str:
    return r"\overline{" + digits[0].replace("\u0305", "") + "}"


def _repeating(decimal: re.Match[str]) -> str:
    """Write `0.1\\overline{6}` as its fraction, here `\\frac{15}{90}`."""
    whole, fixed, *_ = decimal.groups("")
    repeated = decimal[3] or decimal[4]
    numerator = int(whole + fixed + repeated) - int(whole + fixed or "0")
    denominator = int("9" * len(repeated) + "0" * len(fixed))
    return rf"\frac{{{numerator}}}{{{denominator}}}"
