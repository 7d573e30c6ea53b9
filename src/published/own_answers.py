"""The answers of a user's own questions: their kinds, and the golds that verifiers compare with."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from coevolve.text.verify import valid
from coevolve.text.verify.exact import number
from published.grading import grade
from published.options import label_change, with_options
from published.own_choices import Choices, chosen_letter
from published.rows import Item, boxed_gold
from published.values import LeftOut, is_missing, plain_text, texts_of

SOLUTION_MARK = "####"  # GSM8K writes the answer behind it
LATEX = re.compile(r"\\[A-Za-z({\[]|\$[^$]+\$")
MAX_SHOWN = 60  # characters of a value in a message


@dataclass(frozen=True)
class Kind:
    """How answers of a kind are scored, and by which of MAE's prompts they would be judged."""

    scorer: str
    judge: str


KINDS = {
    "math": Kind("math", "math"),
    "exact": Kind("exact", "general"),
    "choice": Kind("choice", "choice"),
    "float": Kind("float", "math"),
    "tests": Kind("code", ""),
}
KIND_OF_SCORER = {kind.scorer: name for name, kind in KINDS.items()}


@dataclass(frozen=True)
class OwnItem(Item):
    """A user's own question; its level is the number that the file states."""

    level: int | None = None  # type: ignore[misc]  # no class variable here

    misconception: ClassVar[None] = None

    @property
    def kind(self) -> str:
        """The kind of the answer, a key of KINDS."""
        return KIND_OF_SCORER[self.scorer]


@dataclass(frozen=True)
class Question:
    """A row that has a question and an answer. `kind` is what the row states, or ""."""

    row: int
    text: str
    cells: Mapping[str, Any]
    choices: Choices
    kind: str

    @property
    def shown(self) -> str:
        """The question as the solver reads it."""
        if not self.choices.texts:
            return self.text
        return with_options(self.text, self.choices.texts)


@dataclass(frozen=True)
class Gold:
    """A gold answer as in `Item`, and how the row differs from the plain form."""

    value: Any
    changes: tuple[str, ...] = field(default=())


def read_choices(value: Any) -> Choices:
    """Return the options of a row, none if the cell is missing; raises LeftOut for other text."""
    return Choices((), ()) if is_missing(value) else Choices.read(value)


def kind_of(question: Question) -> str:
    """Return the kind that a row states, or the one that its columns and its answer suggest.

    A number and LaTeX are math, also at the end of a solution; other text is exact.
    """
    if question.kind:
        return question.kind
    if question.choices.texts:
        return "choice"
    if not is_missing(question.cells.get("tests")):
        return "tests"
    answer = question.cells["answer"]
    has_aliases = not is_missing(question.cells.get("aliases"))
    if has_aliases or isinstance(answer, bool | list | tuple):
        return "exact"
    text = plain_text(answer)
    quantity = number(_after_solution(text))
    if quantity is None:
        return "math" if LATEX.search(text) else "exact"
    counts_things = quantity.unit is not None and quantity.unit.nouns
    return "exact" if counts_things else "math"  # "12 Monkeys" is a name


def gold_of(question: Question, first: int) -> Gold:
    """Return the gold answer of a row; `first` is the number of the first option.

    Raises LeftOut for an answer of another form than the kind's, and ValueError for aliases of a
    kind that has none.
    """
    kind = kind_of(question)
    answer = question.cells.get("answer")
    if kind != "exact" and not is_missing(question.cells.get("aliases")):
        raise ValueError(f"aliases are for kind exact, and the kind is {kind}")
    if kind == "tests":
        return Gold({"tests": _tests(question.cells)})
    if kind == "choice":
        letter = chosen_letter(answer, question.choices, first)
        change = label_change(answer, plain_text(answer), "answer")
        is_change = bool(change) and question.choices.names(answer)
        return Gold(letter, (change,) if is_change else ())
    if kind == "exact":
        return _accepted_texts(answer, question.cells.get("aliases"))
    return _number_or_formula(answer, kind)


def _number_or_formula(answer: Any, kind: str) -> Gold:
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        raise LeftOut(f"answer of kind {kind} is no text or number", _shown(answer))
    text = plain_text(answer)
    gold = _after_solution(text)
    if not gold:
        raise LeftOut("answer is missing")
    is_shortened = gold != text
    return Gold(
        gold, ("answer is a solution that ends with it",) if is_shortened else ()
    )


def _after_solution(text: str) -> str:
    """Return the answer at the end of a solution in GSM8K's or MATH's form, or the text."""
    if SOLUTION_MARK in text:
        return _after_mark(text).replace(",", "")
    return boxed_gold(text) or text


def _after_mark(text: str) -> str:
    _, _, after = text.rpartition(SOLUTION_MARK)
    return after.strip()


def _accepted_texts(answer: Any, aliases: Any) -> Gold:
    """Return the answer and its aliases, each once, as one text or a tuple."""
    values = [answer] if isinstance(answer, str) else texts_of(answer)
    if not is_missing(aliases):
        values += texts_of(aliases)
    texts: list[str] = []
    for value in values:
        if isinstance(value, Mapping | list | tuple):
            raise LeftOut("answer or aliases are no texts", _shown(value))
        spellings = ("true", "yes") if value is True else ("false", "no")
        text = _after_mark(plain_text(value))
        texts += spellings if isinstance(value, bool) else [text]
    distinct = [text for text in dict.fromkeys(texts) if text]
    if not distinct:
        raise LeftOut("answer is missing")
    return Gold(tuple(distinct) if len(distinct) > 1 else distinct[0])


def _tests(cells: Mapping[str, Any]) -> str:
    """Return Python tests: those of the column `tests`, or else the answer."""
    column = "answer" if is_missing(cells.get("tests")) else "tests"
    lines = texts_of(cells[column])
    if not all(isinstance(line, str) for line in lines):
        raise LeftOut(f"{column} is no Python text", _shown(cells[column]))
    tests = "\n".join(lines)
    try:
        compile(tests, column, "exec")  # reads the tests and runs nothing
    except (SyntaxError, ValueError) as error:
        raise LeftOut(f"{column} is not Python", str(error)[:MAX_SHOWN]) from None
    return tests


def _shown(value: Any) -> str:
    return repr(value)[:MAX_SHOWN]


def is_readable(item: OwnItem) -> bool:
    """Whether the verifier of an item can read its gold; tests are not run."""
    if item.scorer == "code":
        return True
    if item.scorer == "math":
        return valid("math", item.gold)
    return grade(item, item.answer).correct is True
