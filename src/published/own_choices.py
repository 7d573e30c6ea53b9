"""Multiple choice in a user's own file: the answer is a letter, an option's text or a number."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from published.options import (
    LETTER,
    LETTERS,
    WHOLE_NUMBER,
    labelled_option,
    option_texts,
)
from published.values import LeftOut, parsed, plain_text, texts_of


@dataclass(frozen=True)
class Choices:
    """The options of a question and their labels, if the file gives them any."""

    texts: tuple[str, ...]
    labels: tuple[str, ...]

    @classmethod
    def read(cls, value: Any) -> "Choices":
        """Read a list, a list of {label, text}, {"A": ...} or the text of one of these.

        Raises LeftOut for anything else.
        """
        if isinstance(value, str):
            value = parsed(value) or value
        labels: list[Any] = []
        values = texts_of(value)
        if isinstance(value, Mapping) and {"label", "text"} <= set(value):
            labels = texts_of(value["label"])  # as ARC writes it
            values = texts_of(value["text"])
        elif isinstance(value, Mapping):
            labels = list(value)
            values = list(value.values())
        elif all(isinstance(entry, Mapping) for entry in values):
            labels = [entry.get("label") for entry in values]
            values = [entry.get("text") for entry in values]
        plain = [plain_text(one) if isinstance(one, float) else one for one in values]
        plain = [None if one == "" else one for one in plain]
        texts = option_texts(plain, "choices")
        return cls(tuple(texts), tuple(plain_text(label) for label in labels))

    def with_text(self, text: str) -> list[int]:
        """Return the indices of the options with this text, regardless of case."""
        folded = text.casefold()
        return [i for i, known in enumerate(self.texts) if known.casefold() == folded]

    def names(self, answer: Any) -> bool:
        """Whether an answer is no option's text, but a letter, a label or a number."""
        return not self.with_text(plain_text(answer))


class HasChoices(Protocol):
    """A row with options and an answer."""

    row: int
    cells: Mapping[str, Any]
    choices: Choices


def chosen_letter(answer: Any, choices: Choices, first: int) -> str:
    """Return the letter of the correct option, whose text, letter, label or number is given.

    Without options (they stand in the question) the answer must be a letter. Raises LeftOut for
    an answer that names no option, or two; ValueError for a number that no option has.
    """
    text = plain_text(answer)
    letter = LETTER.fullmatch(text)
    if not choices.texts:
        if letter is None:
            raise LeftOut("answer of kind choice is no letter", repr(answer)[:60])
        return letter[1].upper()
    matching = choices.with_text(text)
    if len(matching) > 1:
        raise LeftOut("answer is the text of two options", repr(answer)[:60])
    count = len(choices.texts)
    if not matching:
        number = WHOLE_NUMBER.fullmatch(text)
        label = str(int(number[1])) if number else text
        index = labelled_option(label, choices.labels, count, first, "answer")
    else:
        (index,) = matching
        named = LETTERS.index(letter[1].upper()) if letter else index
        if named != index and named < count:
            reason = "answer is the letter of one option and the text of another"
            raise LeftOut(reason, repr(answer)[:60])
    if len(choices.with_text(choices.texts[index])) > 1:
        raise LeftOut("the correct option is there twice", choices.texts[index][:60])
    return LETTERS[index]


def first_number(questions: Iterable[HasChoices]) -> int:
    """Return 0 or 1: the number of the first option, which all answers together decide.

    Raises ValueError if they are numbers and do not.
    """
    numbers: dict[int, tuple[int, int]] = {}  # row: the number, and of how many options
    rows_with_text: list[int] = []
    for question in questions:
        answer = plain_text(question.cells.get("answer"))
        number = WHOLE_NUMBER.fullmatch(answer)
        if number is None or question.choices.labels:
            continue
        if question.choices.with_text(answer):
            rows_with_text.append(question.row)
        else:
            numbers[question.row] = (int(number[1]), len(question.choices.texts))
    if not numbers:
        return 0
    if rows_with_text:
        raise ValueError(
            f"answer is an option's text in row {rows_with_text[0]} and a number in row "
            f"{next(iter(numbers))}; write letters"
        )
    return _decided(numbers)


def _decided(numbers: Mapping[int, tuple[int, int]]) -> int:
    zeros = [row for row, (number, _) in numbers.items() if number == 0]
    lasts = [row for row, (number, count) in numbers.items() if number == count]
    if bool(zeros) != bool(lasts):
        return 1 if lasts else 0
    if zeros:
        reason = (
            f"answer is 0 in row {zeros[0]}, and in row {lasts[0]} it is the number of "
            "options: it cannot count both from 0 and from 1"
        )
    else:
        reason = (
            f"answer is a number (row {next(iter(numbers))}), and no row says whether "
            "options count from 0 or from 1"
        )
    raise ValueError(f"{reason}; write letters")
