"""Parsers from text to a value or None: tags, numbers, scores, final answers.

Every function is total (no text makes it raise), takes linear time and evaluates nothing. Knows no
role, no reward and no paper's scale except the 1 to 10 of `judge_score`.
"""

import re

from coevolve.text.fences import only_program

NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,5})(?:\.[0-9]{1,6})?")
PLACEHOLDER = re.compile(r"[.…]+|\[(?:Your|Write)\b[^\[\]]*\]|\$ANSWER\$?")
HEDGE = re.compile(r"(?<![^\W\d_])or(?![^\W\d_])", re.IGNORECASE)
INEQUALITY = re.compile(r"[<>≤≥]|\\(?:lt|gt|leq?|geq?)(?![a-z])")
BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
BOX = "\\boxed{"
CODE_FENCES = ("```", "~~~")  # start a program that is given as the answer
ANSWER = re.compile(r"^[^\S\n]*ANSWER:(.*)$", re.MULTILINE)


def tag_pairs(text: str, name: str) -> list[str] | None:
    """Return the content of each <name>...</name> verbatim, [] if there is no tag.

    None if opening and closing tags do not strictly alternate (nested, stray, reversed, unclosed).
    Tags are literal and case-sensitive; code fences and <think> blocks are ordinary text.
    """
    tags = re.compile(f"<{re.escape(name)}>|</{re.escape(name)}>")
    pairs = matched(text, tags)
    if pairs is None:
        return None
    contents = []
    for opening, closing in pairs:
        contents.append(text[opening.end() : closing.start()])
    return contents


def matched(
    text: str, tags: re.Pattern[str]
) -> list[tuple[re.Match[str], re.Match[str]]] | None:
    """Pair opening and closing tags in order; None if they do not strictly alternate."""
    matches = list(tags.finditer(text))
    if len(matches) % 2:
        return None
    pairs = list(zip(matches[::2], matches[1::2], strict=True))
    for opening, closing in pairs:
        if opening[0].startswith("</") or not closing[0].startswith("</"):
            return None
    return pairs


def only(text: str, name: str) -> str:
    """Return the content of the text's one <name> pair verbatim, "" without exactly one pair."""
    pairs = tag_pairs(text, name)
    if pairs is None or len(pairs) != 1:
        return ""
    return pairs[0]


def filled(content: str) -> str | None:
    """Strip the content; None if it is empty or an untouched placeholder.

    Placeholders are dots alone, `$ANSWER`, and one bracket `[Your ...]` or `[Write ...]` alone.
    """
    content = content.strip()
    if not content or PLACEHOLDER.fullmatch(content):
        return None
    return content


def tag(text: str, name: str) -> str | None:
    """Return the stripped content of the text's one <name> pair.

    None without a pair, with several pairs (any choice would be a guess) or with unfilled content.
    """
    return filled(only(text, name))


def number(text: str) -> float | None:
    """Read a plain decimal: at most six digits without a leading zero and at most six decimals.

    A minus sign and surrounding blanks are allowed. Not allowed are non-ASCII digits, a plus sign,
    an exponent, underscores, fractions, infinity and NaN.
    """
    text = text.strip(" \t\r\n")
    return float(text) if NUMBER.fullmatch(text) else None


def score_value(text: str) -> float | None:
    """Return the number in the text's one <score> pair, in any range; None if there is none."""
    return number(only(text, "score"))


def judge_score(text: str) -> float | None:
    """Map a score s from 1 to 10 to (s - 1) / 9; 0.5 if it is out of range, None if unreadable."""
    score = score_value(text)
    if score is None:
        return None
    return (score - 1) / 9 if 1 <= score <= 10 else 0.5


def boxed(text: str) -> str | None:
    r"""Return the content of the last \boxed{...}; without any box, the program in the code block.

    None if the last box is unclosed, unfilled, or hedges ("1 or 2"); earlier boxes do not count.
    """
    start = text.rfind(BOX)
    if start < 0:
        return code_block(text)
    start += len(BOX)
    depth = 1
    for match in BRACE.finditer(text, start):  # an escaped brace changes no depth
        if match[0] == "{":
            depth += 1
        elif match[0] == "}":
            depth -= 1
        if depth == 0:
            return _final_answer(text[start : match.start()])
    return None


def code_block(text: str) -> str | None:
    """Return the program in the text's one Python block, by the rules of `coevolve.text.fences`.

    None without a block, with several (any choice would be a guess), or if it is unclosed or empty.
    Windows line ends become newlines, and the indentation of the block's fence is removed.
    """
    return only_program(text)


def answer_line(text: str) -> str | None:
    """Return the rest of the last line that starts with `ANSWER:`, or the program in a block there.

    None if there is no such line, or if it is unfilled or hedges.
    """
    lines = list(ANSWER.finditer(text))
    if not lines:
        return None
    last = lines[-1]
    remainder = text[last.start(1) :].lstrip()
    if remainder.startswith(CODE_FENCES):
        return _final_answer(remainder)
    return _final_answer(last[1])


def _final_answer(content: str) -> str | None:
    """Return the program of a code block, or the filled content; None if it offers alternatives.

    Inequalities joined by "or" are one answer, a set.
    """
    content = content.lstrip()
    if content.startswith(CODE_FENCES):
        return code_block(content)
    answer = filled(content)
    if answer is None:
        return None
    alternatives = HEDGE.split(answer)
    if len(alternatives) == 1:
        return answer
    is_a_set = all(INEQUALITY.search(part) for part in alternatives)
    return answer if is_a_set else None
