"""What a notebook says before it runs: its code, the parameters it declares, and whether values fit them.

Papermill warns about unknown names only and pastes names into code; here they are refused before a kernel starts.
Nothing is evaluated: types come from annotations, or from the kind of literal that is the default.
"""

import ast
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from reproduce import UserError, one_line

TYPES = {"str": str, "int": int, "float": float, "bool": bool, "list": list, "dict": dict, "None": type(None)}


@cache
def code_cells(path: Path) -> tuple[tuple[str, bool], ...]:
    """Return every code cell's text, and whether the cell is tagged parameters."""
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        return tuple(("".join(cell["source"]), "parameters" in cell["metadata"].get("tags", [])) for cell in code)
    except FileNotFoundError:
        raise UserError(f"notebook {path} does not exist") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"notebook {path} cannot be read: {type(error).__name__}: {error}") from None


def declared(path: Path) -> dict[str, tuple[type, ...]]:
    """List the parameters of a notebook: name -> allowed types; an empty tuple allows any plain value."""
    tagged = [text for text, is_tagged in code_cells(path) if is_tagged]
    if len(tagged) != 1:
        raise UserError(f"notebook {path}: {len(tagged)} cells are tagged parameters, one is needed")
    try:
        body = ast.parse(tagged[0]).body
    except SyntaxError as error:
        raise UserError(f"notebook {path}: the parameters cell is not Python: {error}") from None
    fields = {}
    for line in body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            fields[line.target.id] = annotated(path, line)
        elif isinstance(line, ast.Assign):
            fields |= {name.id: implied(line.value) for name in line.targets if isinstance(name, ast.Name)}
    return fields


def annotated(path: Path, line: ast.AnnAssign) -> tuple[type, ...]:
    """Read `int`, `list[int]` or `str | None` as types."""
    names = [part.split("[")[0].strip() for part in ast.unparse(line.annotation).split("|")]
    if unknown := [name for name in names if name not in TYPES]:
        raise UserError(f"notebook {path}: {unknown[0]!r} is no parameter type; allowed: {', '.join(TYPES)}")
    return tuple(TYPES[name] for name in names)


def implied(value: ast.expr) -> tuple[type, ...]:
    """Take the type of a literal default; None or an expression allows any plain value."""
    if isinstance(value, ast.UnaryOp):
        value = value.operand
    if isinstance(value, ast.Constant) and value.value is not None:
        return (type(value.value),)
    return {ast.List: (list,), ast.Dict: (dict,)}.get(type(value), ())


def check_parameters(path: Path, values: Mapping[str, Any]) -> None:
    """Refuse parameters that the notebook does not declare, of another type, or that are no plain finite values."""
    fields = declared(path)
    for name, value in values.items():
        shown = one_line(repr(value), 60)
        if name not in fields:
            known = ", ".join(fields) or "none"
            raise UserError(f"notebook {path}: unknown parameter {one_line(repr(name), 60)}; declared: {known}")
        whole_number = type(value) is int and float in fields[name]
        if fields[name] and type(value) not in fields[name] and not whole_number:
            wanted = " or ".join(kind.__name__ for kind in fields[name])
            raise UserError(f"notebook {path}: {name} must be {wanted}, not {shown}")
        try:
            json.dumps(value, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise UserError(f"notebook {path}: {name} must be a plain finite value, not {shown}: {error}") from None
