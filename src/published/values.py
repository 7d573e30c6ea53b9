"""Values of rows as files hold them, also after pandas, CSV or a spreadsheet rewrote them.

Nothing is evaluated: a list that was written as text is read as a literal.
"""

import ast
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

MAX_LITERAL_LENGTH = 100_000  # characters of a list that is written as text


class LeftOut(Exception):
    """A row that cannot be used, or is not wanted; `example` is what the row has instead."""

    def __init__(self, reason: str, example: str = ""):
        super().__init__(reason)
        self.reason = reason
        self.example = example


class Unwanted(LeftOut):
    """A row that the benchmark leaves out by its own rules; any number of rows may be."""


class Unlabelled(LeftOut):
    """A multiple-choice row without a label, as in the hidden test splits of the hub."""


def is_missing(value: Any) -> bool:
    """Whether a cell holds nothing: null, NaN (which pandas writes for null) or blanks."""
    if isinstance(value, float):
        return math.isnan(value)
    if isinstance(value, str):
        return not value.strip()
    return value is None


def plain_text(value: Any) -> str:
    """Return a cell as text, "" if it is missing; 2.0, which pandas writes for 2, is "2"."""
    if is_missing(value):
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip()


def parsed(text: str) -> Any:
    """Return the list or mapping that a text writes in JSON or as a Python literal, else None."""
    if text.strip()[:1] not in ("[", "{", "(") or len(text) > MAX_LITERAL_LENGTH:
        return None
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(text.strip())
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            continue
        if isinstance(value, list | tuple | dict):
            return value
    return None


def follow(row: Mapping[str, Any], path: str) -> Any:
    """Return a column; a dot in the path leads into a nested one, or into each of a list.

    Raises KeyError for a missing column, and LeftOut for a missing cell on the way.
    """
    value: Any = row
    for name in path.split("."):
        if is_missing(value):
            raise LeftOut(f"{path.partition('.')[0]} is missing")
        value = _nested(value, name)
    return value


def _nested(value: Any, name: str) -> Any:
    """Return the value under a name, or a list of those in a list of mappings."""
    if isinstance(value, str):
        value = parsed(value)
    if isinstance(value, list | tuple):
        return [entry[name] for entry in value]
    return value[name]


def columns(row: Mapping[str, Any], paths: str | Sequence[str]) -> list[Any]:
    """Return the values of one or several columns; a list contributes each of its values."""
    if isinstance(paths, str):
        paths = [paths]
    values: list[Any] = []
    for path in paths:
        value = follow(row, path)
        if isinstance(value, list | tuple):
            values += value
        else:
            values.append(value)
    return values


def texts_of(value: Any) -> list[Any]:
    """Return the values of a list, also of one that is written as text, else the value alone."""
    if isinstance(value, str):
        literal = parsed(value)
        value = literal if isinstance(literal, list | tuple) else value
    return list(value) if isinstance(value, list | tuple) else [value]
