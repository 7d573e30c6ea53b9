"""A notebook's own parameter schema, read from its tagged cell, and the check of values against it.

Papermill only warns about unknown names and pastes names into code; here they are refused before a kernel
starts. Nothing is evaluated: types come from annotations, or from the kind of literal that is the default.
"""

import ast
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reproduce import UserError, one_line

TYPES = {"str": str, "int": int, "float": float, "bool": bool, "list": list, "dict": dict, "None": type(None)}
MAX_NODES, MAX_TEXT, MAX_DEPTH, MAX_INT = 10_000, 65_536, 8, 2**63


def read_notebook(path: Path) -> dict[str, Any]:
    """Read a notebook's JSON without its schema check, which is slow to import."""
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(notebook["cells"], list):
            raise ValueError("cells is not a list")
        return notebook
    except FileNotFoundError:
        raise UserError(f"notebook {path} does not exist") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"notebook {path} cannot be read: {type(error).__name__}: {error}") from None


def source(cell: Mapping[str, Any]) -> str:
    """Return a cell's text, which notebooks store as a string or as a list of lines."""
    text = cell.get("source", "")
    return text if isinstance(text, str) else "".join(text)


def declared(path: Path) -> dict[str, tuple[type, ...]]:
    """List the parameters of a notebook: name -> allowed types; an empty tuple allows any plain value."""
    tagged = [cell for cell in read_notebook(path)["cells"] if "parameters" in cell.get("metadata", {}).get("tags", [])]
    if len(tagged) != 1:
        raise UserError(f"notebook {path}: {len(tagged)} cells are tagged parameters, one is needed")
    try:
        body = ast.parse(source(tagged[0])).body
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


def fits(value: Any, types: tuple[type, ...]) -> bool:
    """Say whether a value has one of the types; a bool is no int, an int is a float."""
    return not types or type(value) in types or (type(value) is int and float in types)


def fault(value: Any) -> str | None:
    """Say why a value is no plain, finite, bounded JSON value, or None if it is one."""
    todo, seen, text = [(value, 0)], 0, 0
    while todo:
        node, depth = todo.pop()
        seen += 1
        if seen > MAX_NODES or depth > MAX_DEPTH or text > MAX_TEXT:
            return "is too large"
        if isinstance(node, dict):
            todo += [(child, depth + 1) for pair in node.items() for child in pair]
            if not all(isinstance(key, str) for key in node):
                return "has a key that is not a string"
        elif isinstance(node, list):
            todo += [(child, depth + 1) for child in node[: MAX_NODES + 1]]
        elif isinstance(node, str):
            text += len(node)
            if any("\ud800" <= c <= "\udfff" or c == "\0" for c in node):
                return "holds characters that are no text"
        elif isinstance(node, float) and not math.isfinite(node):
            return "is not finite"
        elif type(node) not in (int, float, bool, type(None)):
            return f"is a {type(node).__name__}"
        elif type(node) is int and abs(node) >= MAX_INT:
            return "is too large"
    return "is too large" if text > MAX_TEXT else None


def check_parameters(path: Path, values: Mapping[str, Any]) -> None:
    """Refuse parameters that the notebook does not declare, of another type, or that are no plain values."""
    if not isinstance(values, Mapping):
        raise UserError(f"parameters of {path} must be a table of names and values")
    fields = declared(path)
    for name, value in values.items():
        if not isinstance(name, str) or name not in fields:
            raise UserError(
                f"notebook {path}: unknown parameter {one_line(repr(name), 60)}; "
                f"declared: {', '.join(fields) or 'none'}"
            )
        if not fits(value, fields[name]):
            wanted = " or ".join(kind.__name__ for kind in fields[name])
            raise UserError(f"notebook {path}: {name} must be {wanted}, not {one_line(repr(value), 60)}")
        if reason := fault(value):
            raise UserError(f"notebook {path}: the value of {name} {reason}")
