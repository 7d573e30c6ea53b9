"""Mistakes in the batch's files, options and notebooks: one line each, before anything starts."""

import json
import re
import runpy
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from data_files import tables
from toy_repository import Toy

from reproduce import UserError, keys, plan
from reproduce.__main__ import main
from reproduce.notebooks import check_parameters, declared

MISTAKES = tables("mistakes")


@dataclass(frozen=True)
class Edit:
    """A mistake in a file of the toy repository, and a part of the message about it."""

    file: str
    old: str
    new: str
    message: str


EDITS = [
    Edit(file, *edit)
    for file, table in MISTAKES["reproduce"].items()
    for edit in table["edits"]
]


def check_mistake(
    toy: Toy, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str
) -> None:
    """Run the batch in this process; it must raise a one-line error and write nothing."""
    package = toy.root / "src/coevolve"
    registry = runpy.run_path(str(package / "methods/registry.py"))
    monkeypatch.setattr("coevolve.methods.registry.METHODS", registry["METHODS"])
    names = runpy.run_path(str(package / "training/config.py"))
    configuration = SimpleNamespace(**names)
    for module in (plan, keys):
        monkeypatch.setattr(module, "configuration", lambda root: configuration)
    with pytest.raises(UserError, match=re.escape(message)) as error:
        main([*options, "--root", str(toy.root)])
    assert len(str(error.value).splitlines()) == 1 or "cannot be read" in message
    assert not (toy.root / "results").exists()


@pytest.mark.parametrize("edit", EDITS)
def test_a_mistake_in_a_file_is_one_line(
    toy: Toy, monkeypatch: pytest.MonkeyPatch, edit: Edit
) -> None:
    toy.edit(f"reproduce/{edit.file}", edit.old, edit.new)
    check_mistake(toy, monkeypatch, [], edit.message)


@pytest.mark.parametrize(("options", "message"), MISTAKES["options"].items())
def test_a_mistake_in_an_option_is_one_line(
    toy: Toy, monkeypatch: pytest.MonkeyPatch, options: str, message: str
) -> None:
    check_mistake(toy, monkeypatch, options.split(), message)


PARAMETERS = """\
steps = 1  # n
lr: float = 1e-3
name: str | None = None
table: dict = {}
free = None
sign = -1.5
"""


def write_notebook(path: Path, parameters: str) -> Path:
    """Write a notebook with one cell, which declares parameters."""
    metadata = {"tags": ["parameters"]}
    cell = {"cell_type": "code", "source": parameters, "metadata": metadata}
    path.write_text(json.dumps({"cells": [cell]}))
    return path


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    """A notebook that declares PARAMETERS."""
    return write_notebook(tmp_path / "notebook.ipynb", PARAMETERS)


def test_a_parameter_has_the_type_of_its_default(notebook: Path) -> None:
    assert declared(notebook) == {
        "steps": int,
        "lr": float,
        "name": None,
        "table": dict,
        "free": None,
        "sign": float,
    }


def test_plain_values_of_the_declared_types_are_accepted(notebook: Path) -> None:
    values = {
        "steps": 5,
        "lr": 1,
        "name": '"""; import os #\\',
        "table": {"a": [1, {"b": None}]},
    }
    check_parameters(notebook, values)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x = 0; __import__('os').system('true'); y", 1),
        ("steps", "5"),
        ("steps", True),
        ("steps", None),
        ("lr", float("nan")),
        ("name", b"__import__('os')"),
        ("table", {(1, 2): 3}),
        ("table", {"a": {1, 2}}),
        ("table", {"a": float("inf")}),
    ],
)
def test_other_values_are_refused(notebook: Path, name: str, value: Any) -> None:
    with pytest.raises(UserError, match="notebook.ipynb: "):
        check_parameters(notebook, {name: value})


@pytest.mark.parametrize("parameters", ["x: int = f()", "x = = 1"])
def test_parameters_without_literal_defaults_are_refused(
    tmp_path: Path, parameters: str
) -> None:
    notebook = write_notebook(tmp_path / "notebook.ipynb", parameters)
    with pytest.raises(UserError, match="must be names with literal defaults"):
        declared(notebook)
