"""Multiple choice: the options of a row, and which of them its label names."""

import re
from collections.abc import Sequence
from typing import Any

from published.values import LeftOut, Unlabelled, is_missing, plain_text, texts_of

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
INSTRUCTION = "Answer with the letter of the right option."
LETTER = re.compile(r"\(?([A-Za-z])\)?[.:]?")
WHOLE_NUMBER = re.compile(r"([+-]?[0-9]{1,9})(?:\.0+)?")
HIDDEN = "-1"  # the label of an unlabelled row on the hub


def option_texts(values: Sequence[Any], column: str) -> list[str]:
    """Return the texts of options; raises LeftOut for fewer than 2, over 26 and missing ones."""
    if len(values) < 2:
        example = repr(values[0])[:60] if values else "none"
        raise LeftOut(f"{column} is no list of options", example)
    if len(values) > len(LETTERS):
        reason = f"{column} has more than {len(LETTERS)} options, which have no letters"
        raise LeftOut(reason, str(len(values)))
    options = []
    for value in values:
        if is_missing(value) and not isinstance(value, str):
            raise LeftOut(f"an option of {column} is missing")
        options.append(str(value).strip())
    return options


def listed_options(value: Any, column: str) -> list[str]:
    """Return the options in one column: a list, or the text of one."""
    if is_missing(value):
        raise LeftOut(f"{column} is missing")
    return option_texts(texts_of(value), column)


def with_options(question: str, options: Sequence[str]) -> str:
    """Return the question as the solver reads it; options become (A), (B), ..."""
    lines = []
    for letter, option in zip(LETTERS, options, strict=False):
        lines.append(f"({letter}) {option}")
    return "\n".join([question, *lines, INSTRUCTION])


def label_text(value: Any, column: str) -> str:
    """Return a label as text: 2.0 and "2.0" are "2"; raises Unlabelled if the row has none."""
    text = plain_text(value)
    number = WHOLE_NUMBER.fullmatch(text)
    if number:
        text = str(int(number[1]))
    if text in ("", HIDDEN):
        raise Unlabelled(f"{column} is missing")
    return text


def labelled_option(
    label: str, labels: Sequence[str], count: int, first: int, column: str
) -> int:
    """Return the index of the option that a label of `label_text` names.

    The label is one of `labels`, a letter, or without `labels` a number from `first` on. Raises
    LeftOut for other text. Raises ValueError for a number that no option has: then the whole
    column may count differently.
    """
    folded = [known.casefold() for known in labels]
    if label.casefold() in folded:
        return folded.index(label.casefold())
    if WHOLE_NUMBER.fullmatch(label):
        return _numbered_option(int(label), labels, count, first, column)
    letter = LETTER.fullmatch(label)
    index = LETTERS.index(letter[1].upper()) if letter else count
    if index >= count:
        raise LeftOut(f"{column} names none of the options", repr(label)[:60])
    return index


def _numbered_option(
    number: int, labels: Sequence[str], count: int, first: int, column: str
) -> int:
    if labels:
        allowed = ", ".join(labels)
        raise ValueError(f"{column} is {number}, and the labels are {allowed}")
    index = number - first
    if not 0 <= index < count:
        last = first + count - 1
        raise ValueError(
            f"{column} is {number}, and the {count} options are numbered from {first} "
            f"to {last}; if the column counts from {1 - first}, write letters"
        )
    return index


def label_change(value: Any, label: str, column: str) -> str:
    """Return in words how a label was read if it was not written as published, "" if it was."""
    if label.isalpha() and label.islower():
        return f"{column} is in lower case"
    if "." in str(value) and label.isdecimal():
        return f"{column} is a whole number written as a float"
    return ""
