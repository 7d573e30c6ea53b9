"""What a notebook says before it runs: its code, the parameters it declares, and whether values fit them.

Papermill warns about unknown names only and pastes names into code; here they are refused before a kernel starts.
Nothing is evaluated: a parameter's type is that of the literal that is the default.
"""

import ast
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from reproduce import UserError, one_line


@cache
def code_cells(path: Path) -> tuple[tuple[str, bool], ...]:
    """Return every code cell's text, and whether the cell is tagged parameters."""
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        return tuple(("".join(cell["source"]), "parameters" in cell["metadata"].get("tags", [])) for cell in code)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"notebook {path} cannot be read: {type(error).__name__}: {error}") from None


def declared(path: Path) -> dict[str, type | None]:
    """List the parameters of a notebook: name -> the type of the default; None allows any plain value."""
    tagged = [text for text, is_tagged in code_cells(path) if is_tagged]
    if len(tagged) != 1:
        raise UserError(f"notebook {path}: {len(tagged)} cells are tagged parameters, one is needed")
    try:
        lines = [line for line in ast.parse(tagged[0]).body if isinstance(line, (ast.Assign, ast.AnnAssign))]
        targets = [line.target if isinstance(line, ast.AnnAssign) else line.targets[0] for line in lines]
        defaults = [ast.literal_eval(line.value) for line in lines]
    except (SyntaxError, ValueError) as error:
        raise UserError(f"notebook {path}: parameters must be names with literal defaults: {error}") from None
    named = zip(targets, defaults, strict=True)
    return {ast.unparse(target): None if default is None else type(default) for target, default in named}


def check_parameters(path: Path, values: Mapping[str, Any]) -> None:
    """Refuse parameters that the notebook does not declare, of another type, or that are no plain finite values."""
    fields = declared(path)
    for name, value in values.items():
        shown = one_line(repr(value), 60)
        if name not in fields:
            known = ", ".join(fields) or "none"
            raise UserError(f"notebook {path}: unknown parameter {one_line(repr(name), 60)}; declared: {known}")
        allowed = (int, float) if fields[name] is float else (fields[name],)
        if fields[name] and type(value) not in allowed:
            raise UserError(f"notebook {path}: {name} must be {fields[name].__name__}, not {shown}")
        try:
            json.dumps(value, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise UserError(f"notebook {path}: {name} must be a plain finite value, not {shown}: {error}") from None
