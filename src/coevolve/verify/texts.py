"""Tests as text, read but never run here: which lines are plain data, and which names they leave open."""

import ast
import builtins

LONGEST = 20_000  # characters that the trainer itself is willing to parse


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text) if len(text) <= LONGEST else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _assert(node: ast.stmt) -> tuple[str, tuple, object] | None:
    """(function, arguments, expected value) of `assert f(data, ...) == data`, None for any other statement."""
    match node:
        case ast.Assert(
            test=ast.Compare(
                left=ast.Call(func=ast.Name(id=name), args=args, keywords=[]), ops=[ast.Eq()], comparators=[value]
            )
        ):
            return name, tuple(ast.literal_eval(arg) for arg in args), ast.literal_eval(value)
    return None


def literal_asserts(tests: str) -> list[tuple[str, tuple, object]]:
    """(function, arguments, expected value) of each statement, empty unless all are `assert f(data) == data`."""
    tree = _parsed(tests)
    try:
        found = [_assert(node) for node in tree.body] if tree else []
    except (ValueError, TypeError, RecursionError, MemoryError, SyntaxError):
        return []
    return [] if None in found else found


def free_names(tests: str) -> list[str]:
    """Names that the tests use, do not define and do not get from Python; empty when they do not parse."""
    used, own = set(), set(dir(builtins))
    try:
        for node in ast.walk(_parsed(tests) or ast.Module([], [])):
            if isinstance(node, ast.Name):
                (used if isinstance(node.ctx, ast.Load) else own).add(node.id)
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
                own.add(node.name)
            elif isinstance(node, ast.arg):
                own.add(node.arg)
            elif isinstance(node, ast.alias):
                own.add((node.asname or node.name).split(".")[0])
            elif isinstance(node, ast.ExceptHandler) and node.name:
                own.add(node.name)
    except RecursionError:
        return []
    return sorted(name for name in used - own if not name.startswith("__"))
