"""Text to value or None: tags, numbers, scores, final answers.

Every function is total (no text makes it raise), takes linear time and evaluates nothing. Knows no role,
no reward and no paper's scale except the 1 to 10 of `judge_score`.
"""

import re

NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,5})(?:\.[0-9]{1,6})?")
PLACEHOLDER = re.compile(r"[.…]+|\[(?:Your|Write)\b[^\[\]]*\]|\$ANSWER\$?")
HEDGE = re.compile(r"(?<![^\W\d_])or(?![^\W\d_])", re.IGNORECASE)
INEQUALITY = re.compile(r"[<>≤≥]|\\(?:lt|gt|leq?|geq?)(?![a-z])")
BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
BOX = "\\boxed{"
OPENS = "```"  # a program that is handed in as an answer
PROGRAM = re.compile(r"^```py(?:thon)?[^\S\n]*\n", re.MULTILINE)
FENCE = re.compile(r"^```[^\S\n]*$", re.MULTILINE)
ANSWER = re.compile(r"^[^\S\n]*ANSWER:(.*)$", re.MULTILINE)


def tag_pairs(text: str, name: str) -> list[str] | None:
    """Return what stands inside each <name>...</name>, as written; [] without any tag.

    None when opening and closing tags do not strictly alternate (nested, stray, reversed, unclosed). Tags are
    literal and case-sensitive; code fences and <think> blocks are ordinary text.
    """
    pairs = matched(text, re.compile(f"<{re.escape(name)}>|</{re.escape(name)}>"))
    return None if pairs is None else [text[opening.end() : closing.start()] for opening, closing in pairs]


def matched(text: str, tags: re.Pattern[str]) -> list[tuple[re.Match[str], re.Match[str]]] | None:
    """Match opening with closing tags in order; None when they do not strictly alternate."""
    found = list(tags.finditer(text))
    if len(found) % 2 or any(tag[0].startswith("</") != bool(i % 2) for i, tag in enumerate(found)):
        return None
    return list(zip(found[::2], found[1::2], strict=True))


def only(text: str, name: str) -> str:
    """Return what stands inside the text's one <name> pair, as written; empty without exactly one pair."""
    pairs = tag_pairs(text, name)
    return pairs[0] if pairs and len(pairs) == 1 else ""


def filled(content: str) -> str | None:
    """Strip the content; None when it is empty or an untouched placeholder.

    Placeholders: dots alone, `$ANSWER`, or a content that is one bracket `[Your ...]` or `[Write ...]`.
    """
    content = content.strip()
    return None if not content or PLACEHOLDER.fullmatch(content) else content


def tag(text: str, name: str) -> str | None:
    """Return the stripped content of the text's one <name> pair.

    None without a pair, with several pairs (which one is meant is not guessed) or with unfilled content.
    """
    return filled(only(text, name))


def number(text: str) -> float | None:
    """Read a plain decimal: optional minus, at most six digits without leading zero, at most six decimals.

    ASCII only, blanks around allowed; no plus sign, exponent, underscore, fraction, infinity or NaN.
    """
    text = text.strip(" \t\r\n")
    return float(text) if NUMBER.fullmatch(text) else None


def score_value(text: str) -> float | None:
    """Return the number in the text's one <score> pair, whatever its range; None if there is none."""
    return number(only(text, "score"))


def judge_score(text: str) -> float | None:
    """Map a judgement of 1 to 10 to (s - 1) / 9; 0.5 for a number out of range, None if unreadable."""
    score = score_value(text)
    if score is None:
        return None
    return (score - 1) / 9 if 1 <= score <= 10 else 0.5


def boxed(text: str) -> str | None:
    r"""Return the content of the last \boxed{...}; of a text without a box the program in the one code block.

    None when that one is missing, unclosed, unfilled, or hedges ("1 or 2"); earlier boxes do not count.
    """
    start = text.rfind(BOX)
    if start < 0:
        return code_block(text)
    start, depth = start + len(BOX), 1
    for match in BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(match[0], 0)  # an escaped brace counts nothing
        if depth == 0:
            return _handed_in(text[start : match.start()])
    return None


def code_block(text: str) -> str | None:
    """Return the program in the text's one ```python block, as written.

    None without such a block, with several (which one is meant is not guessed), an unclosed or an empty one.
    """
    opening = PROGRAM.search(text)
    closing = opening and FENCE.search(text, opening.end())
    if not opening or not closing or PROGRAM.search(text, closing.end()):
        return None
    program = text[opening.end() : closing.start()]
    return program if program.strip() else None


def answer_line(text: str) -> str | None:
    """Return what follows `ANSWER:` on the last line that begins with it, or the program in the block behind it.

    None without such a line, or when that line is unfilled or hedges.
    """
    lines = list(ANSWER.finditer(text))
    if not lines:
        return None
    behind = text[lines[-1].start(1) :].lstrip()
    return _handed_in(behind if behind.startswith(OPENS) else lines[-1][1])


def _handed_in(content: str) -> str | None:
    """Return the filled content unless it offers alternatives; of a code block the program in it.

    Inequalities joined by "or" are one answer, a set.
    """
    if content.lstrip().startswith(OPENS):
        return code_block(content.lstrip())
    said = filled(content)
    parts = HEDGE.split(said or "")
    return said if len(parts) == 1 or all(map(INEQUALITY.search, parts)) else None
