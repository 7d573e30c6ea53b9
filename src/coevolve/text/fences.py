"""Fenced code in replies: fences of CommonMark, and the departures of chat models from it.

A fence is a line of three or more backticks or tildes. The info string behind an opening fence
names the language. This module is the one reader of fences; it executes nothing.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

PYTHON = "python"
BYTE_ORDER_MARK = "\ufeff"
FENCE = re.compile(
    r"^(?:(?P<before>[^\n]*?)(?<!`)(?P<backticks>`{3,}+)(?P<info>[^`\n]*)"
    r"|(?P<margin>[^~\n]*)(?P<tildes>~{3,}+)(?P<tilde_info>[^\n]*))$",
    re.MULTILINE,
)
# What may stand before a fence that has its line to itself: blanks and markers of lists.
MARGIN = re.compile(r"[ \t]*+(?:(?:[-*+]|[0-9]{1,9}[.)])[ \t]++)*+")
BRACES = re.compile(r"\{[^{}]*\}")
CLASS = re.compile(r"(?<![^\s{])\.([a-z][\w+#-]*)")  # {.python .numberLines}
WORD = re.compile(r"[a-z_][\w./+#-]*")
PYTHON_NAME = re.compile(r"py(?:thon)?[0-9.]*|[\w./+#-]*\.py")
MAX_CLOSING_INDENTATION = 3  # more than the opening fence's: CommonMark's limit
TRIPLE_QUOTES = ('"""', "'''")

# Bounds on parsing, which keep the reader linear in the length of the text.
MAX_PARSED_CHARACTERS = 20_000
MAX_PARSES = 32  # of one text
MAX_CANDIDATES = 8  # closing fences of one block
MAX_LOOKAHEAD = 100  # fences behind one that a careless writer may have meant to close
PARSE_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError)


@dataclass(frozen=True)
class Block:
    """A block of fenced code.

    `language` is in lower case: `python` for every name of Python, "" without an info string.
    `start` is the index of the opening fence in the text (see `unix_lines`). `is_closed` is false
    if the text breaks off, or another block opens, before a closing fence. `on_own_lines` says
    whether no text stands beside either fence.
    """

    language: str
    content: str
    start: int
    is_closed: bool
    on_own_lines: bool


@dataclass(slots=True)
class _Fence:
    """A line of the text that may open or close a block."""

    start: int  # of the marks; of the line, if only blanks precede them
    end: int  # of the line, with its newline
    indentation: int
    marks: str
    info: str
    language: str
    has_own_line: bool
    in_list: bool

    def closes(self, opening: "_Fence") -> bool:
        """Whether this fence closes a block by CommonMark's rule."""
        margin = self.indentation - opening.indentation
        return (
            self.may_close(opening)
            and self.has_own_line
            and self.marks.startswith(opening.marks)
            and margin <= MAX_CLOSING_INDENTATION
        )

    def may_close(self, opening: "_Fence") -> bool:
        """Whether a careless writer may have closed a block so."""
        is_same_kind = self.marks[0] == opening.marks[0]
        return is_same_kind and not self.info and not self.in_list


def language(info: str) -> str:
    """Return the language that an info string names, in lower case; "" if it names none.

    It is the first word outside braces (`python title="a.py"`), else the first class in braces
    (`{.python}`), else the first word. Every name of Python and every file `*.py` gives `python`.
    """
    info = info.lower()
    outside = WORD.search(BRACES.sub(" ", info))
    if outside:
        name = outside[0]
    elif class_name := CLASS.search(info):
        name = class_name[1]
    elif word := WORD.search(info):
        name = word[0]
    else:
        return ""
    return PYTHON if PYTHON_NAME.fullmatch(name) else name


def unix_lines(text: str) -> str:
    r"""Return the text without a byte-order mark, and with "\n" for Windows line ends."""
    return text.removeprefix(BYTE_ORDER_MARK).replace("\r\n", "\n")


def parses(program: str) -> bool:
    """Whether a text of at most 20,000 characters is a Python program."""
    if len(program) > MAX_PARSED_CHARACTERS:
        return False
    try:
        ast.parse(program)
    except PARSE_ERRORS:
        return False
    return True


def blocks(text: str) -> list[Block]:
    """Return the blocks of fenced code in the order of the text.

    - The closing fence has the marks of the opening one, at least as many, and no info string.
      An unclosed block lasts to the end of the text.
    - A fence that names Python opens a block wherever it stands, except in a program. A block of
      another language that contains it ends there.
    - Where fences stand inside a block that may be Python (as in a docstring), the first reading
      that parses as Python counts: CommonMark's, then a close at any later fence, then at the end.
    - Backticks may stand behind other text: `Here: ```python` opens a block, `x = 1``` ` closes
      one if no other fence does.
    - Content loses the indentation of its opening fence, unless it is a program without it.
    """
    return list(_Reader(unix_lines(text)).blocks())


def only_program(text: str) -> str | None:
    """Return the program in the text's one Python block.

    None without such a block, with several (any choice would be a guess), or if the block is
    empty, unclosed, or shares the lines of its fences with other text.
    """
    programs = [block for block in blocks(text) if block.language == PYTHON]
    if len(programs) != 1:
        return None
    (block,) = programs
    if not block.is_closed or not block.on_own_lines or not block.content.strip():
        return None
    return block.content


def last_program(text: str) -> str:
    """Return the program in a reply: its last block that is not empty, else all of the text.

    Python blocks precede blocks of other languages, and closed blocks unclosed ones.
    """
    best = None
    for block in blocks(text):
        if block.content.strip() and (best is None or _rank(block) >= _rank(best)):
            best = block
    return unix_lines(text) if best is None else best.content


def _rank(block: Block) -> tuple[bool, bool]:
    return block.language == PYTHON, block.is_closed


def _fences(text: str) -> Iterator[_Fence]:
    """Yield the lines that may open or close a block."""
    for match in FENCE.finditer(text):
        marks = match["backticks"] or match["tildes"]
        before = match["before"] or match["margin"] or ""
        info = (match["info"] or match["tilde_info"] or "").strip()
        has_own_line = MARGIN.fullmatch(before) is not None
        if not has_own_line and not _may_follow_text(before, marks, info):
            continue
        in_list = has_own_line and not before.isspace() and before != ""
        yield _Fence(
            start=match.start() if has_own_line else match.start() + len(before),
            end=match.end() + 1,
            indentation=len(before) if has_own_line else 0,
            marks=marks,
            info=info,
            language=language(info) if info else "",
            has_own_line=has_own_line,
            in_list=in_list,
        )


def _may_follow_text(before: str, marks: str, info: str) -> bool:
    """Whether marks behind other text are a fence, and not the end of code within a line."""
    if marks[0] == "~" or "```" in before:
        return False
    return not info or language(info) == PYTHON


class _Reader:
    """Find the blocks of one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.fences = list(_fences(text))
        self.parses_left = MAX_PARSES

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks in order."""
        index = 0
        while index < len(self.fences):
            closing = self._closing(index)
            yield self._block(index, closing)
            if closing is None:
                return
            # A fence with an info string ends this block because it opens the next one.
            index = closing if self.fences[closing].info else closing + 1

    def _block(self, index: int, closing: int | None) -> Block:
        opening = self.fences[index]
        is_closed = False
        on_own_lines = opening.has_own_line
        if closing is not None:
            is_closed = not self.fences[closing].info
            on_own_lines &= self.fences[closing].has_own_line
        return Block(
            language=opening.language,
            content=self._content(index, closing),
            start=opening.start,
            is_closed=is_closed,
            on_own_lines=on_own_lines,
        )

    def _closing(self, index: int) -> int | None:
        """Return the index of the fence that ends the block opened at `index`; None: the end."""
        default = self._default_closing(index)
        if self.fences[index].language not in ("", PYTHON):
            return default
        if not self._is_ambiguous(index, default):
            return default
        for candidate in self._candidates(index, default):
            if self._is_program(index, candidate):
                return candidate
        return default

    def _is_program(self, index: int, closing: int | None) -> bool:
        """Whether a block that ends at this fence is a Python program."""
        start = self.fences[index].end
        if self.parses_left <= 0 or self._end(closing) - start > MAX_PARSED_CHARACTERS:
            return False
        content = self._raw_content(index, closing)
        return bool(content.strip()) and self._parses(self._dedented(index, content))

    def _default_closing(self, index: int) -> int | None:
        """Return CommonMark's closing fence, else the first careless one, else None.

        A fence that names Python ends a block of another language.
        """
        opening = self.fences[index]
        opening_is_python = opening.language == PYTHON
        careless = None
        for later in range(index + 1, len(self.fences)):
            fence = self.fences[later]
            if careless is not None and later > careless + MAX_LOOKAHEAD:
                return careless
            if fence.closes(opening):
                return later
            if not opening_is_python and fence.info and fence.language == PYTHON:
                return later if careless is None else careless
            if careless is None and fence.may_close(opening):
                careless = later
        return careless

    def _is_ambiguous(self, index: int, default: int | None) -> bool:
        """Whether another fence than the default may close a program."""
        if default is None or default > index + 1:
            return True
        content = self._raw_content(index, default)
        return any(quotes in content for quotes in TRIPLE_QUOTES)

    def _candidates(self, index: int, default: int | None) -> list[int | None]:
        """Return the fences that may close a program, the most likely one first."""
        marks = self.fences[index].marks
        candidates: list[int | None] = [] if default is None else [default]
        last = min(index + MAX_CANDIDATES, len(self.fences) - 1)
        for later in range(index + 1, last + 1):
            if later != default and self.fences[later].marks[0] == marks[0]:
                candidates.append(later)
        return [*candidates, None]

    def _parses(self, program: str) -> bool:
        self.parses_left -= 1
        return self.parses_left >= 0 and parses(program)

    def _end(self, closing: int | None) -> int:
        """Return where the content of a block ends, as an index of the text."""
        return len(self.text) if closing is None else self.fences[closing].start

    def _raw_content(self, index: int, closing: int | None) -> str:
        content = self.text[self.fences[index].end : self._end(closing)]
        return content.removeprefix(BYTE_ORDER_MARK)

    def _dedented(self, index: int, content: str) -> str:
        """Return the content without the indentation of its opening fence."""
        indentation = self.fences[index].indentation
        if not indentation:
            return content
        return re.sub(rf"^[ \t]{{1,{indentation}}}", "", content, flags=re.MULTILINE)

    def _content(self, index: int, closing: int | None) -> str:
        """Return the content of a block; a program that is not indented stays as it is."""
        content = self._raw_content(index, closing)
        dedented = self._dedented(index, content)
        if content == dedented or self.fences[index].language not in ("", PYTHON):
            return dedented
        return content if self._parses(content) else dedented
