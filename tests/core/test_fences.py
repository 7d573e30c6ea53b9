"""Fenced programs as chat models write them: one reader, whatever the fences look like."""

import ast
from dataclasses import dataclass

import pytest
from core.conftest import HOSTILE, PIECES
from hypothesis import given
from hypothesis import strategies as st

from coevolve.text import fences
from coevolve.text.parse import answer_line, boxed, code_block
from published.grading import program

ADD = "def add(a, b):\n    return a + b\n"
USE = "print(add(1, 2))\n"
# A docstring with a fence in it, in the forms that models use; "{}" is the fence's language.
DOCUMENTED = """def add(a, b):
    '''Add two numbers.

{margin}```{language}
{margin}add(1, 2)
{margin}```
    '''
    return a + b
"""


def fenced(info: str = "python", content: str = ADD, marks: str = "```") -> str:
    """Return a program in a fence, with text around it."""
    return f"Here it is:\n{marks}{info}\n{content}{marks}\nDone."


def indented(text: str, margin: str) -> str:
    """Indent every line that is not empty."""
    lines = text.splitlines(keepends=True)
    return "".join(margin + line if line.strip() else line for line in lines)


PYTHON_INFOS = [
    "python",
    "Python",
    "PYTHON",
    "py",
    "Py",
    "python3",
    "Python3",
    "py3",
    "python3.11",
    " python",
    "\tpython",
    "   python   ",
    'python title="a.py"',
    "python {.numberLines}",
    "python, linenos",
    "python:src/add.py",
    "{.python}",
    "{ .python .numberLines }",
    "{#add .python}",
    "{python}",
    "{python, echo=FALSE}",
    "{code-block} python",
    "src/add.py",
]
OTHER_INFOS = ["", "bash", "json", "text", "c++", "c", "pycon", "python-repl", "{.r}"]


@pytest.mark.parametrize("info", PYTHON_INFOS)
def test_every_name_of_python_opens_a_program(info: str) -> None:
    text = fenced(info)
    assert code_block(text) == ADD
    assert program(text) == ADD
    assert boxed(text) == ADD


@pytest.mark.parametrize("info", OTHER_INFOS)
def test_no_other_language_is_python(info: str) -> None:
    assert code_block(fenced(info)) is None
    assert program(fenced(info)) == ADD
    assert program(fenced() + "\n" + fenced(info, "3\n")) == ADD


class TestForms:
    """One program in the forms of CommonMark, and in those that models mistake for it."""

    @pytest.mark.parametrize("marks", ["```", "````", "``````", "~~~", "~~~~~"])
    def test_fences_are_three_or_more_backticks_or_tildes(self, marks: str) -> None:
        text = fenced(marks=marks)
        assert code_block(text) == ADD
        assert program(text) == ADD
        assert answer_line(f"ANSWER:\n{text.partition(chr(10))[2]}") == ADD

    @pytest.mark.parametrize("margin", [" ", "   ", "    ", "\t", " " * 8])
    def test_an_indented_block_loses_the_indentation_of_its_fence(
        self, margin: str
    ) -> None:
        text = "1. So:\n" + indented(f"```python\n{ADD}```\n", margin)
        assert code_block(text) == ADD
        assert program(text) == ADD

    @pytest.mark.parametrize("marker", ["- ", "* ", "1. ", "10)  ", "- 1. "])
    def test_a_fence_may_follow_the_marker_of_a_list(self, marker: str) -> None:
        rest = indented(f"{ADD}```\n", " " * len(marker))
        text = f"- First\n{marker}```python\n{rest}"
        assert code_block(text) == ADD
        assert program(text) == ADD

    def test_code_that_is_not_indented_with_its_fence_stays_as_it_is(self) -> None:
        text = f"   ```python\n{ADD}   ```\n"
        assert code_block(text) == ADD

    def test_a_body_keeps_its_own_indentation(self) -> None:
        body = "    return a + b\n"
        assert code_block(fenced(content=body)) == body

    @pytest.mark.parametrize("info", ["python", "python3 ", ""])
    def test_windows_line_ends_and_byte_order_marks_vanish(self, info: str) -> None:
        text = "\ufeff" + fenced(info, "\ufeff" + ADD).replace("\n", "\r\n")
        assert program(text) == ADD
        assert program("\ufeff" + ADD.replace("\n", "\r\n")) == ADD
        assert code_block(text) == (ADD if info else None)

    def test_without_a_fence_all_of_the_text_is_the_program(self) -> None:
        assert program(ADD) == ADD
        assert code_block(ADD) is None

    @pytest.mark.parametrize("info", ["python", "", "Python 3"])
    def test_an_unclosed_block_lasts_to_the_end(self, info: str) -> None:
        text = f"So:\n```{info}\n{ADD}"
        assert program(text) == ADD
        assert code_block(text) is None  # the reply was probably cut off

    LOOSE_FORMS = [
        "Here: ```python\n{}```\nDone.",
        "Call `add`: ```python\n{}```",
        "```python\n{}```Done.\n```\n3\n```",
        "```python\n{}```Done.",
        "````python\n{}```\nDone.",
        "```python\n{}    ```\nDone.\n```\n3\n```",
    ]

    @pytest.mark.parametrize("form", LOOSE_FORMS)
    def test_careless_fences_hold_a_program_too(self, form: str) -> None:
        assert program(form.format(ADD)).strip() == ADD.strip()

    @pytest.mark.parametrize("form", [*LOOSE_FORMS[:2], "```python\n{}```Done."])
    def test_only_whole_lines_hold_the_one_program_of_an_answer(
        self, form: str
    ) -> None:
        assert code_block(form.format(ADD)) is None

    def test_a_close_behind_code_is_a_close(self) -> None:
        text = fenced(content=ADD.rstrip())
        assert program(text) == ADD.rstrip()
        assert code_block(text) is None


class TestSeveralBlocks:
    def test_the_last_python_block_counts(self) -> None:
        assert program(fenced() + fenced(content=USE)) == USE
        assert program(fenced(content=USE) + fenced("Python3")) == ADD

    def test_no_block_is_the_one_of_an_answer(self) -> None:
        assert code_block(fenced() + fenced(content=USE)) is None
        assert code_block(fenced() + "\n```python\n" + USE) is None

    def test_other_languages_and_empty_blocks_count_only_alone(self) -> None:
        output = "\nOutput:\n```\n3\n```\n```bash\nls\n```\n```python\n\n```\n"
        assert program(fenced() + output) == ADD
        assert program("```\n3\n```\n```\n4\n```") == "4\n"

    def test_a_closed_block_counts_before_an_unclosed_one(self) -> None:
        assert program(fenced() + "\n```python\n" + USE) == ADD
        assert program("```bash\nls\n```\n```python\n" + USE) == USE


MARGINS = ["", "  ", "    "]
DOC_LANGUAGES = ["", "python", "text", "pycon"]


@dataclass(frozen=True)
class Wrapped:
    """A text around a fenced program, which itself may look like part of a fence."""

    before: str
    after: str


WRAPPERS = [
    Wrapped("```markdown\n# Solution\n", "\nThe end.\n```\n"),
    Wrapped("````md\n# Solution\n", "\n````\n"),
    Wrapped("~~~\n", "\n~~~\n"),
    Wrapped("```\n", "\n```\n"),
    Wrapped("```\nNever closed.\n", "\n"),
    Wrapped("Type ```add(1, 2)``` or\n", "\n```\n3\n```\n"),
    Wrapped("", "\n```bash\npython add.py\n```\nprints\n```\n3\n```\n"),
]


class TestNestedFences:
    @pytest.mark.parametrize("margin", MARGINS)
    @pytest.mark.parametrize("language", DOC_LANGUAGES)
    @pytest.mark.parametrize("info", ["python", "Python3"])
    def test_a_fence_in_a_docstring_is_part_of_the_program(
        self, margin: str, language: str, info: str
    ) -> None:
        content = DOCUMENTED.format(margin=margin, language=language)
        ast.parse(content)
        for text in (fenced(info, content), fenced(info, content) + "\n```\n3\n```"):
            assert code_block(text) == content
            assert program(text) == content

    @pytest.mark.parametrize("margin", MARGINS)
    def test_a_docstring_s_fence_may_stand_in_a_block_without_language_or_close(
        self, margin: str
    ) -> None:
        content = DOCUMENTED.format(margin=margin, language="")
        assert program(fenced("", content)) == content
        assert program("```python\n" + content) == content

    def test_an_inner_fence_needs_no_reading_if_the_outer_one_is_longer(self) -> None:
        content = DOCUMENTED.format(margin="", language="python") + "def broken(:\n"
        assert code_block(fenced(content=content, marks="````")) == content
        assert code_block(fenced(content=content, marks="~~~")) == content

    @pytest.mark.parametrize("wrapped", WRAPPERS)
    def test_a_program_in_a_block_of_another_language_is_a_program(
        self, wrapped: Wrapped
    ) -> None:
        text = f"{wrapped.before}```python\n{ADD}```{wrapped.after}"
        assert code_block(text) == ADD
        assert program(text) == ADD

    def test_a_forgotten_close_ends_where_the_next_program_opens(self) -> None:
        text = f"```python\n{USE}\n```python\n{ADD}```\n"
        assert program(text) == ADD
        assert code_block(text) is None

    def test_commonmark_decides_if_no_reading_is_a_program(self) -> None:
        content = "def add(a, b:\n"
        text = fenced(content=content) + "\n```\n3\n```\n"
        assert code_block(text) == content


class TestAnyText:
    @given(HOSTILE)
    def test_blocks_lie_in_the_text_in_order(self, text: str) -> None:
        starts = [block.start for block in fences.blocks(text)]
        assert starts == sorted(set(starts))
        assert isinstance(program(text), str)

    MARKS = st.sampled_from(["```", "````", "~~~"])
    INFO = st.sampled_from(PYTHON_INFOS)
    NO_FENCE = st.text(st.characters(exclude_characters="`~\r\ufeff")).filter(str.strip)

    @given(NO_FENCE, NO_FENCE, MARKS, INFO)
    def test_what_holds_no_fence_comes_out_as_it_went_in(
        self, text: str, content: str, marks: str, info: str
    ) -> None:
        reply = f"{text}\n{marks}{info}\n{content}\n{marks}\n{text}"
        assert code_block(reply) == content + "\n"
        assert program(reply) == content + "\n"


SIZE = 300_000  # characters
REPEATED = [
    "```\n",
    "```bash\n```\n",
    "~~~~\n",
    "x ```\n",
    "- - ```\n",
    "```\n'''\n```\n",
    "````\n```\n",
    *[piece for piece in PIECES if "`" in piece and "python" not in piece],
]


class TestMegabytesOfFences:
    @pytest.mark.parametrize("piece", REPEATED)
    def test_the_program_behind_them_is_found(self, piece: str) -> None:
        noise = piece * (SIZE // len(piece))
        assert code_block(f"{noise}\n\n{fenced()}") == ADD
        assert program(f"{noise}\n\n{fenced()}") == ADD

    def test_the_last_of_many_programs_counts(self) -> None:
        text = fenced(content=USE) * 20_000 + fenced()
        assert program(text) == ADD
        assert code_block(text) is None

    def test_programs_beyond_the_bound_on_parsing_are_read_by_commonmark(self) -> None:
        content = DOCUMENTED.format(margin="    ", language="")
        assert program(fenced(content=content) * 1000) == content
        long_content = content + "x = 1\n" * 100_000
        assert code_block(fenced(content=long_content)) == long_content
