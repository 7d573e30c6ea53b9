"""Tests as text, read but never run here: which lines are plain data, and which names they leave open."""

import ast
import builtins
import re

DEPTH = 20  # attributes in a row that are followed: a.b.c has two
LONGEST = 20_000  # characters that the caller itself is willing to parse
PLAIN = (bool, int, float, str, bytes, bytearray, list, tuple, set, frozenset, dict)
METHODS = {name for kind in PLAIN for name in dir(kind)}
CLASS = re.compile(r"[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*")
LAZY = ("next", "islice", "run")  # what is done with an endless iterator, and with a coroutine
KINDS = ("isinstance", "issubclass", "raises", "assertRaises", "assertIsInstance")


def _parsed(text: str) -> ast.Module:
    """Syntax tree of a text, empty when that does not parse."""
    try:
        return ast.parse(text if len(text) <= LONGEST else "")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def _assert(node: ast.stmt) -> tuple[str, tuple, object] | None:
    """(function, arguments, expected value) of `assert f(data, ...) == data`, None for any other statement."""
    match node:
        case ast.Assert(test=ast.Compare(left=call, ops=[ast.Eq()], comparators=[value])):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.keywords:
                return call.func.id, tuple(map(ast.literal_eval, call.args)), ast.literal_eval(value)
    return None


def literal_asserts(tests: str) -> list[tuple[str, tuple, object]]:
    """(function, arguments, expected value) of each statement, empty unless all are `assert f(data) == data`."""
    try:
        found = [_assert(node) for node in _parsed(tests).body]
    except (ValueError, TypeError, RecursionError, MemoryError, SyntaxError):
        return []
    return [] if None in found else found


def _parts(node: ast.AST | None) -> list[ast.AST | None]:
    """Elements of a tuple or list as it is written, else the node itself."""
    return getattr(node, "elts", [node])


def _defined(node: ast.AST) -> str:
    """Name that this node gives a meaning to, empty where it gives none."""
    if isinstance(node, (ast.Name, ast.keyword)):
        return node.id if isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)) else ""
    name = getattr(node, "asname", None) or getattr(node, "name", None) or getattr(node, "arg", None)
    return name.split(".")[0] if isinstance(name, str) else ""


def free_names(tests: str) -> list[str]:
    """Names that the tests use, do not define and do not get from Python; empty when they do not parse."""
    nodes = list(ast.walk(_parsed(tests)))
    used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    free = used - set(map(_defined, nodes)) - set(dir(builtins))
    return sorted(name for name in free if not name.startswith("__"))


def _dotted(node: ast.AST | None) -> str:
    """`a.b` of a name or its attributes; empty for all else, and beyond DEPTH of them: each is asked for its own."""
    names: list[str] = []
    while isinstance(node, ast.Attribute) and len(names) < DEPTH:
        names.insert(0, node.attr)
        node = node.value
    return ".".join([node.id, *names]) if isinstance(node, ast.Name) else ""


class _Uses:
    """What tests do with functions of the candidate (`names`) and with answers, which is what those return."""

    def __init__(self, tree: ast.Module, names: list[str]) -> None:
        self.nodes, self.names = list(ast.walk(tree)), set(names)
        self.classes = {node.name for node in self.nodes if isinstance(node, ast.ClassDef)}
        functions = {node.name for node in self.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        variables = {_defined(node) for node in self.nodes if isinstance(node, (ast.Name, ast.arg))}
        self.live = self.names | self.classes | functions | (set(dir(builtins)) - variables)  # functions and classes
        self.kept: dict[str, str] = {}  # variables and attributes that hold an answer: who gave it
        for node in self.nodes:
            giver = self.giver(getattr(node, "value", None) or getattr(node, "iter", None))
            for target in getattr(node, "targets", [getattr(node, "target", None)]) if giver else ():
                self.kept |= {ast.unparse(part): giver for part in _parts(target) if part}

    def named(self, node: ast.AST | None) -> bool:
        """Whether the node is the name of something of the candidate's."""
        return isinstance(node, ast.Name) and node.id in self.names

    def giver(self, node: ast.AST | None) -> str:
        """Name of what answered this: a call of it, a variable that holds it, a part of it; empty for all else."""
        while isinstance(node, ast.Subscript):
            node = node.value
        if isinstance(node, ast.Call) and self.named(node.func):
            return node.func.id
        return self.kept.get(_dotted(node), "")

    def no_data(self, node: ast.AST) -> bool:
        """Whether an argument is a function, a class or an object of one."""
        match node:
            case ast.Call(func=ast.Name(id=name)):
                return name in self.classes or (name in self.names and bool(CLASS.fullmatch(name)))
            case ast.Name(id=name):
                return name in self.live
        return isinstance(node, ast.Lambda)

    def needs_objects(self, node: ast.AST) -> bool:
        """Whether this place needs more than calls with data that are answered with data."""
        match node:
            case ast.Call(func=func, args=args, keywords=words):
                args = [*args, *(word.value for word in words)]
                last = getattr(func, "attr", getattr(func, "id", ""))
                if self.named(func):
                    return any(self.no_data(part) for arg in args for part in _parts(arg))
                if last in KINDS:
                    return any(self.named(part) for arg in args for part in _parts(arg))
                return bool(self.giver(func) or (last in LAZY and args and self.giver(args[0])))
            case ast.Attribute(value=value, attr=attr) if self.named(value):
                return attr not in ("__name__", "__call__")
            case ast.Attribute(value=value, attr=attr) if giver := self.giver(value):
                return attr not in METHODS or bool(CLASS.fullmatch(giver))
            case ast.ExceptHandler(type=kind):
                return any(map(self.named, _parts(kind)))
            case ast.ClassDef() | ast.FunctionDef():
                parts = [*getattr(node, "bases", ()), *node.decorator_list]
                return any(self.named(part) or self.giver(part) for part in parts)
            case ast.withitem(context_expr=value) | ast.Await(value=value):
                return bool(self.giver(value))
        return False


def beyond_data(tests: str, names: list[str]) -> bool:
    """Whether the tests need more of these names than calls with data that are answered with data."""
    try:
        uses = _Uses(_parsed(tests), names)
        return any(map(uses.needs_objects, uses.nodes))
    except RecursionError:
        return False
