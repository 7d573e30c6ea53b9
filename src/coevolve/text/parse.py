"""Parsers from text to a value or None: tags, numbers, scores, final answers.

Every function is total (no text makes it raise), takes linear time and evaluates nothing. Knows no
role, no reward and no paper's scale except the 1 to 10 of `judge_score`.
"""

import re

from coevolve.text.fences import only_program

NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,5})(?:\.[0-9]{1,6})?")
PLACEHOLDER = re.compile(
    r"[.…]+|\[(?:Your|Write|The last line)\b[^\[\]]*\]|\$ANSWER\$?"
)
LIST_MARK = re.compile(r"(?:[0-9]{1,3}[.)]|[-*])[^\S\n]+")
HEDGE = re.compile(r"(?<![^\W\d_])or(?![^\W\d_])", re.IGNORECASE)
INEQUALITY = re.compile(r"[<>≤≥]|\\(?:lt|gt|leq?|geq?)(?![a-z])")
BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*")
UNBRACED = re.compile(r"[^\s{$][^$\n]*(?=\$)|[^\s{}$]+")  # $\boxed 7$, or \boxed 7.
FONT = re.compile(r"\\(?:text|mathrm|textbf|mathbf)\s*\{([^{}]*)\}")
WORDS = re.compile(r"[^\W\d_]{2,}(?:[^\w\\]+[^\W\d_]{2,})*")
CODE_FENCES = ("```", "~~~")  # start a program that is given as the answer
# Chat models write the line as an item, a heading or in bold.
ANSWER = re.compile(
    r"^[^\S\n]*(?:[-*+>#]+[^\S\n]+)?(\*\*|__)?ANSWER(?:\*\*|__)?:(?:\*\*|__)?(.*)$",
    re.MULTILINE,
)


def tag_pairs(text: str, name: str) -> list[str] | None:
    """Return the content of each <name>...</name> verbatim, [] if there is no tag.

    None if opening and closing tags do not strictly alternate (nested, stray, reversed, unclosed).
    Tags are literal and case-sensitive; code fences and <think> blocks are ordinary text.
    """
    name = re.escape(name)
    tags = re.compile(f"<{name}>|</{name}>")
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
    openings = matches[::2]
    closings = matches[1::2]
    pairs = list(zip(openings, closings, strict=True))
    for opening, closing in pairs:
        if opening[0].startswith("</"):
            return None
        if not closing[0].startswith("</"):
            return None
    return pairs


def only(text: str, name: str) -> str:
    """Return the content of the text's one <name> pair verbatim, "" without exactly one pair."""
    pairs = tag_pairs(text, name)
    if pairs is None or len(pairs) != 1:
        return ""
    return pairs[0]


def filled(content: str) -> str | None:
    """Strip the content; None if it is empty, or consists of untouched placeholders.

    Placeholders are dots alone, `$ANSWER`, and a bracket of our prompts, such as `[Your ...]`. They
    may be items of a list.
    """
    content = content.strip()
    if PLACEHOLDER.fullmatch(content):
        return None
    if all(_is_placeholder(line.strip()) for line in content.split("\n")):
        return None
    return content


def _is_placeholder(line: str) -> bool:
    """Whether a line is empty or a placeholder, perhaps as an item of a list."""
    mark = LIST_MARK.match(line)
    item = line[mark.end() :] if mark else line
    return not item or PLACEHOLDER.fullmatch(item) is not None


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
    if not 1 <= score <= 10:
        return 0.5
    return (score - 1) / 9


def boxed(text: str) -> str | None:
    r"""Return the content of the last \boxed{...}; without any box, the program in the code block.

    \fbox{...} and an unbraced \boxed 7 are boxes as well. None if the last box is unclosed,
    unfilled, or hedges ("1 or 2"); earlier boxes do not count.
    """
    found = boxes(text)
    return found[-1] if found else code_block(text)


def boxes(text: str) -> list[str | None]:
    """Return the content of every box of a text, in order; [] if it has none.

    None stands for a box that is unclosed, unfilled, hedges, or holds another box.
    """
    starts = list(BOX.finditer(text))
    ends = [box.start() for box in starts[1:]]
    ends.append(len(text))
    contents: list[str | None] = []
    for box, end in zip(starts, ends, strict=False):
        content = _braced(text, box.end(), end)
        if content is not None:
            content = _final_answer(content)
        contents.append(content)
    return contents


def _braced(text: str, start: int, end: int) -> str | None:
    """Return what the braces that open at `start` enclose, or the one word there."""
    if text[start : start + 1] != "{":
        word = UNBRACED.match(text, start, end)
        if word is None:
            return None
        return word[0].rstrip(".,;:")
    depth = 0
    for match in BRACE.finditer(text, start, end):  # an escaped brace changes no depth
        if match[0] == "{":
            depth += 1
        elif match[0] == "}":
            depth -= 1
        if depth == 0:
            return text[start + 1 : match.start()]
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
    remainder = text[last.start(2) :].lstrip()
    if remainder.startswith(CODE_FENCES):
        return _final_answer(remainder)
    bold_mark = last[1] or ""
    content = last[2].rstrip().removesuffix(bold_mark)
    return _final_answer(content)


def _final_answer(content: str) -> str | None:
    """Return the program of a code block, or the filled content; None if it offers alternatives.

    Inequalities joined by "or" are one answer, a set; words joined by it are a phrase.
    """
    content = content.lstrip()
    if content.startswith(CODE_FENCES):
        return code_block(content)
    answer = filled(content)
    if answer is None:
        return None
    words = FONT.sub(r"\1", answer).strip(" .!?*\"'")
    is_a_phrase = WORDS.fullmatch(words) is not None
    if offers_alternatives(answer) and not is_a_phrase:
        return None
    return answer


def offers_alternatives(answer: str) -> bool:
    """Whether an answer joins alternatives by "or"; inequalities joined by it are one set."""
    alternatives = HEDGE.split(answer)
    if len(alternatives) == 1:
        return False
    return not all(INEQUALITY.search(part) for part in alternatives)
