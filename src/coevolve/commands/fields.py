"""`coevolve fields METHOD`: every field with its values, what it may be, and its meaning."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from coevolve.commands import terminal
from coevolve.commands.arguments import (
    MethodName,
    Pairs,
    Preset,
    read_overrides,
    say_preset_section,
)
from coevolve.methods.base import Method
from coevolve.training import config
from coevolve.training.settings import OptimizationConfig
from coevolve.validation import allowed_text

NAME_WIDTH = 30
# The sections after the method's own fields; a field that none names belongs to learning.
MODEL_FIELDS = ("model", "lora", "engine", "prompt", "prompt_folder", "max_tokens")
OUTPUT_FIELDS = (
    "eval_every",
    "eval_items",
    "test_items",
    "save_every",
    "keep_episodes",
    "strategies",
    "track",
)
TYPE_WORDS = {
    int: "whole number",
    float: "number",
    bool: "true or false",
    str: "text",
    type(None): "null",
}
# How a command line writes values that docstrings name as Python does.
PYTHON_VALUES = {"None": "null", "True": "true", "False": "false"}
PYTHON_VALUE = re.compile(r"\b(None|True|False)\b(?=:)")
# Attributes of pydantic's constraints, in words.
BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


@dataclass(frozen=True)
class Row:
    """A field: its value in the paper (or its default), the preset's, and what is said of it."""

    name: str
    paper: Any
    preset: Any
    allowed: str
    meaning: str


def fields(method: MethodName, pairs: Pairs = None, preset: Preset = "quick") -> None:
    """List the fields of a method, with their values and meanings."""
    overrides = read_overrides(method, pairs)
    run = config.build(method, preset, out=".", overrides=overrides)
    say_preset_section(method, preset)
    rows = {row.name: row for row in _rows_of(run)}
    source = "the paper's value" if run.method.paper_name else "the default"
    terminal.show(
        f"Each field with {source}, and after -> that of the preset {preset}, if it differs.\n"
        "Set it in `coevolve train`: field=value, or --field value. Type a value as it is printed\n"
        "here: field=null for none, field='' for an empty text, field='[]' or field='{}' for an\n"
        "empty list or table."
    )
    for title, names in _sections(type(run.method)).items():
        terminal.show()
        terminal.show(terminal.styled(title, bold=True))
        for name in names:
            _show(rows[name])


def _rows_of(run: config.Run) -> list[Row]:
    """Return the rows of all fields that a configuration can set."""
    values = config.flatten(run.describe())
    help_texts = config.field_help(type(run.method))
    infos = config.Run.model_fields | type(run.method).model_fields
    defaults = config.field_defaults(type(run.method))
    defaults |= config.field_defaults(config.Run)
    paper_values = defaults | dict(run.method.PAPER_RUN_VALUES)
    if run.method.paper_name:
        paper_values = values | {
            change.field: change.paper for change in config.differences(run)
        }
    rows = []
    for name in defaults:
        row = Row(
            name=name,
            paper=paper_values[name],
            preset=values[name],
            allowed=allowed(infos[name]),
            meaning=help_texts[name],
        )
        rows.append(row)
    return rows


def _sections(cls: type[Method]) -> dict[str, list[str]]:
    """Return the names of all fields by section."""
    of_all_methods = set(Method.model_fields)
    own = [name for name in cls.model_fields if name not in of_all_methods]
    taken = {*own, *MODEL_FIELDS, *OUTPUT_FIELDS}
    run_fields = config.field_defaults(config.Run)
    shared = [*run_fields, *(name for name in cls.model_fields if name not in own)]
    learning = [name for name in shared if name not in taken]
    first = [name for name in learning if name not in OptimizationConfig.model_fields]
    last = [name for name in learning if name in OptimizationConfig.model_fields]
    return {
        "The method": own,
        "Learning": first + last,
        "The model and its prompts": list(MODEL_FIELDS),
        "Evaluation and output": list(OUTPUT_FIELDS),
    }


def _show(row: Row) -> None:
    value = written(row.paper)
    if row.preset != row.paper:
        value += f" -> {written(row.preset)}"
    name = terminal.styled(f"{row.name:{NAME_WIDTH - 2}}", terminal.NAME)
    terminal.show(f"  {name}{terminal.styled(value, bold=True)}")
    meaning = PYTHON_VALUE.sub(lambda found: PYTHON_VALUES[found[0]], row.meaning)
    text = meaning if not row.allowed else f"{meaning} Allowed: {row.allowed}."
    for line in terminal.wrapped(text, NAME_WIDTH):
        terminal.show(" " * NAME_WIDTH + line)


def written(value: Any) -> str:
    """Return a value as a command line writes it: [a, b] for lists, '' for an empty text."""
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(map(written, value)) + "]"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) or "''"


def allowed(field: FieldInfo) -> str:
    """Return what a field may be: its choices, or its type with its limits."""
    text = allowed_text(field)
    if text:
        return text
    words = _words_of_type(field.annotation)
    limits = _limits(field.metadata)
    return " ".join([words, *limits]).strip()


def _words_of_type(annotation: Any) -> str:
    """Return the words for a type; the limits of a part of it follow the part."""
    origin = get_origin(annotation)
    if origin is Literal:
        return " | ".join(written(choice) for choice in get_args(annotation))
    if origin is Annotated:
        part, *marks = get_args(annotation)
        return " ".join([_words_of_type(part), *_limits(marks)])
    if origin in (Union, UnionType):
        return " or ".join(map(_words_of_type, get_args(annotation)))
    if origin is tuple:
        parts = [part for part in get_args(annotation) if part is not Ellipsis]
        return "a list of " + ", ".join(map(_words_of_type, parts))
    return TYPE_WORDS.get(annotation, "")


def _limits(marks: Iterable[object]) -> list[str]:
    """Return the limits among the metadata of a type, such as "above 0"."""
    limits = []
    for mark in marks:
        for attribute, word in BOUNDS.items():
            limit = getattr(mark, attribute, None)
            if limit is not None:
                limits.append(f"{word} {limit:g}")
    return limits
