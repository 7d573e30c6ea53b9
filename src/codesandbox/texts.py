"""Tests as text, read but never run here: which lines are plain data, and which names they leave open."""

import ast
import builtins
import re

LONGEST = 20_000  # characters that the trainer itself is willing to parse
PLAIN = (bool, int, float, str, bytes, bytearray, list, tuple, set, frozenset, dict)
METHODS = {name for kind in PLAIN for name in dir(kind)}
CLASS = re.compile(r"[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*")
LAZY = ("next", "islice", "run")  # what is done with an endless iterator, and with a coroutine
KINDS = ("isinstance", "issubclass", "raises", "assertRaises", "assertIsInstance")


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


class _Uses:
    """What tests do with functions of the candidate (`names`) and with what those return."""

    def __init__(self, tree: ast.Module, names: list[str]) -> None:
        self.nodes, self.names = list(ast.walk(tree)), set(names)
        defined = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef
        self.own = {node.name: type(node) for node in self.nodes if isinstance(node, defined)}
        self.variables = {node.id for node in self.nodes if isinstance(node, ast.Name) and type(node.ctx) is ast.Store}
        self.variables |= {node.arg for node in self.nodes if isinstance(node, ast.arg)}
        self.kept: dict[str, str] = {}  # variables and attributes that hold an answer: who gave it
        for node in self.nodes:
            giver = self.giver(getattr(node, "value", None) or getattr(node, "iter", None))
            for target in getattr(node, "targets", [getattr(node, "target", None)]) if giver else ():
                self.kept |= {ast.unparse(part): giver for part in getattr(target, "elts", [target]) if part}

    def named(self, node: ast.AST | None) -> bool:
        """Whether the node is the name of something of the candidate's."""
        return isinstance(node, ast.Name) and node.id in self.names

    def giver(self, node: ast.AST | None) -> str:
        """Name of what answered this: a call of it, a variable that holds it, a part of it; empty for all else."""
        while isinstance(node, ast.Subscript):
            node = node.value
        if isinstance(node, ast.Call) and self.named(node.func):
            return node.func.id
        held = isinstance(node, (ast.Name, ast.Attribute)) and bool(self.kept)
        return self.kept.get(ast.unparse(node), "") if held else ""

    def no_data(self, node: ast.AST) -> bool:
        """Whether an argument is a function, a class or an object of one."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            made = self.own.get(node.func.id) is ast.ClassDef
            return made or (self.named(node.func) and bool(CLASS.fullmatch(node.func.id)))
        if isinstance(node, ast.Name):
            builtin = hasattr(builtins, node.id) and node.id not in self.variables
            return self.named(node) or node.id in self.own or builtin
        return isinstance(node, ast.Lambda)

    def of_call(self, node: ast.Call) -> bool:
        """Whether a call needs more than data, by what it calls or by its arguments."""
        args = [*node.args, *(word.value for word in node.keywords)]
        if self.named(node.func):
            return any(map(self.no_data, args))
        last = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        kinds = [part for arg in args if last in KINDS for part in getattr(arg, "elts", [arg])]
        return bool(
            self.giver(node.func)
            or any(map(self.named, kinds))
            or (last in LAZY and last not in self.own and args and self.giver(args[0]))
        )

    def of_node(self, node: ast.AST) -> bool:
        """Whether this place needs more than calls with data that are answered with data."""
        match node:
            case ast.Call():
                return self.of_call(node)
            case ast.Attribute(value=value, attr=attr):
                giver = self.giver(value)
                own = self.named(value) and attr not in ("__name__", "__call__")
                return own or bool(giver and (attr not in METHODS or CLASS.fullmatch(giver)))
            case ast.ExceptHandler(type=kind):
                return any(map(self.named, getattr(kind, "elts", [kind])))
            case ast.ClassDef() | ast.FunctionDef():
                parts = [*getattr(node, "bases", ()), *node.decorator_list]
                return any(self.named(part) or self.giver(part) for part in parts)
            case ast.With(items=items):
                return any(self.giver(item.context_expr) for item in items)
            case ast.Await(value=value):
                return bool(self.giver(value))
        return False


def beyond_data(tests: str, names: list[str]) -> int:
    """Line of the tests that needs more of these names than calls with data that are answered with data; 0: none."""
    try:
        tree = _parsed(tests)
        uses = _Uses(tree, names) if tree else None
        return next((getattr(node, "lineno", 1) for node in uses.nodes if uses.of_node(node)), 0) if uses else 0
    except RecursionError:
        return 0
