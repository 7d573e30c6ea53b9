"""What a notebook declares before it runs: its code, its parameters, and whether values fit them.

Papermill only warns about unknown names and pastes names into code; they are refused before a
kernel starts. Nothing is evaluated: a parameter's type is that of its literal default.
"""

import ast
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from reproduce import UserError, one_line

# Errors of a file that is missing, is no text or JSON, is nested too deeply, or has another form.
UNREADABLE = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
)


# The tag of the cell after which papermill sets the values of a batch.
PARAMETERS = "parameters"
# The tag of a folded cell before it, with parameters that only a batch sets.
BATCH = "batch"


class CodeCell(NamedTuple):
    """The text of a notebook's code cell, and which tag of a cell of parameters it has, if any."""

    text: str
    tag: str


@cache
def code_cells(path: Path) -> tuple[CodeCell, ...]:
    """Return every code cell of a notebook. Raises UserError for a file that is no notebook."""
    cells = []
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            text = "".join(cell["source"])
            if cell["cell_type"] == "code":
                tags = cell["metadata"].get("tags", [])
                known = [tag for tag in (PARAMETERS, BATCH) if tag in tags]
                cells.append(CodeCell(text, "".join(known)))
    except UNREADABLE as error:
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"notebook {path} cannot be read: {reason}") from None
    return tuple(cells)


def declared(path: Path) -> dict[str, type | None]:
    """Return parameter -> type of its default; None, for the default None, allows any plain value.

    Raises UserError unless exactly one cell is tagged parameters, no cell is tagged batch after it,
    and all defaults are literals.
    """
    tagged = [cell for cell in code_cells(path) if cell.tag]
    tags = [cell.tag for cell in tagged]
    if tags.count(PARAMETERS) != 1:
        raise UserError(
            f"notebook {path}: exactly one cell must be tagged {PARAMETERS}, "
            f"got {tags.count(PARAMETERS)}"
        )
    if tags[-1] != PARAMETERS:
        raise UserError(
            f"notebook {path}: the cell tagged {PARAMETERS} must come after that tagged {BATCH}, "
            "because a batch sets all values after it"
        )
    types: dict[str, type | None] = {}
    try:
        for statement in ast.parse("\n".join(cell.text for cell in tagged)).body:
            if isinstance(statement, ast.AnnAssign):
                target = statement.target
            elif isinstance(statement, ast.Assign):
                target = statement.targets[0]
            else:
                continue
            name = ast.unparse(target)
            default = ast.literal_eval(statement.value)
            types[name] = None if default is None else type(default)
    except (SyntaxError, *UNREADABLE) as error:
        raise UserError(
            f"notebook {path}: parameters must be names with literal defaults: {error}"
        ) from None
    return types


def check_parameters(path: Path, values: Mapping[str, Any]) -> None:
    """Check values against the parameters that a notebook declares.

    Raises UserError for an undeclared name, another type, or a value that is not plain and finite.
    """
    types = declared(path)
    for name, value in values.items():
        if name not in types:
            allowed = ", ".join(types) or "none"
            unknown = one_line(repr(name), 60)
            raise UserError(
                f"notebook {path}: unknown parameter {unknown}; declared: {allowed}"
            )
        _check_value(f"notebook {path}: {name}", value, types[name])


def _check_value(parameter: str, value: Any, expected: type | None) -> None:
    shown = one_line(repr(value), 60)
    if expected is not None:
        allowed = (int, float) if expected is float else (expected,)
        if type(value) not in allowed:
            raise UserError(f"{parameter} must be {expected.__name__}, not {shown}")
    try:
        json.dumps(value, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{parameter} must be a plain finite value, not {shown}: {error}"
        ) from None
