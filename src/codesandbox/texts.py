"""Tests as text, parsed but not run: which lines are plain data, and which names are free."""

import ast
import builtins
import re
from typing import NamedTuple

MAX_ATTRIBUTES = 20  # in a row that are followed: a.b.c has two
MAX_CHARACTERS = 20_000  # that the caller itself is willing to parse
PLAIN_TYPES = (
    bool,
    int,
    float,
    str,
    bytes,
    bytearray,
    list,
    tuple,
    set,
    frozenset,
    dict,
)
PLAIN_ATTRIBUTES = {name for kind in PLAIN_TYPES for name in dir(kind)}
CAMEL_CASE = re.compile(
    r"[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*"
)  # how classes are written
LAZY_CONSUMERS = (
    "next",
    "islice",
    "run",
)  # they need an endless iterator or a coroutine
CLASS_CONSUMERS = (
    "isinstance",
    "issubclass",
    "raises",
    "assertRaises",
    "assertIsInstance",
)
# All that parsing or evaluating untrusted text may raise.
PARSE_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError)


class LiteralAssert(NamedTuple):
    """A statement `assert function(*arguments) == expected` in which all values are literals."""

    function: str
    arguments: tuple
    expected: object


def _parsed(text: str) -> ast.Module:
    """Return the syntax tree of a text; an empty one if it is too long or does not parse."""
    try:
        source = text.removeprefix("\ufeff")  # a byte-order mark
        return ast.parse(source if len(source) <= MAX_CHARACTERS else "")
    except PARSE_ERRORS:
        return ast.Module([], [])


def _literal_assert(node: ast.stmt) -> LiteralAssert | None:
    """Read `assert f(data, ...) == data`; None for any other statement."""
    match node:
        case ast.Assert(
            test=ast.Compare(left=call, ops=[ast.Eq()], comparators=[expected])
        ):
            match call:
                case ast.Call(func=ast.Name(id=function), keywords=[]):
                    arguments = tuple(map(ast.literal_eval, call.args))
                    return LiteralAssert(
                        function, arguments, ast.literal_eval(expected)
                    )
    return None


def literal_asserts(tests: str) -> list[LiteralAssert]:
    """Read tests of which every statement is `assert f(data) == data`; empty for all others."""
    asserts = []
    try:
        for node in _parsed(tests).body:
            asserts.append(_literal_assert(node))
    except (TypeError, *PARSE_ERRORS):
        return []
    return [] if None in asserts else asserts


def _elements(node: ast.AST | None) -> list[ast.AST | None]:
    """Return the elements of a tuple, list or set display, else the node alone."""
    return getattr(node, "elts", [node])


def _defined_name(node: ast.AST) -> str:
    """Return the name that this node defines, empty if it defines none."""
    if isinstance(node, ast.Name):
        is_assigned = isinstance(node.ctx, (ast.Store, ast.Del))
        return node.id if is_assigned else ""
    if isinstance(
        node, ast.keyword
    ):  # its `arg` belongs to the function that is called
        return ""
    for field in ("asname", "name", "arg"):  # of imports, definitions and parameters
        name = getattr(node, field, None)
        if name:
            return name.split(".")[0] if isinstance(name, str) else ""
    return ""


def free_names(tests: str) -> list[str]:
    """Return the names that the tests use and neither define nor get from Python.

    Empty when the tests do not parse.
    """
    used = set()
    defined = set()
    for node in ast.walk(_parsed(tests)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            used.add(node.id)
        defined.add(_defined_name(node))
    free = used - defined - set(dir(builtins))
    return sorted(name for name in free if not name.startswith("__"))


def _dotted_name(node: ast.AST | None) -> str:
    """Return `a.b` for a name or its attributes, empty for all else and beyond MAX_ATTRIBUTES.

    Without the limit a long chain would cost quadratic time, as every attribute of it is followed.
    """
    attributes: list[str] = []
    while isinstance(node, ast.Attribute) and len(attributes) < MAX_ATTRIBUTES:
        attributes.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *attributes])


class _Uses:
    """How tests use the candidate's functions (`names`) and the answers of these functions."""

    def __init__(self, tree: ast.Module, names: list[str]) -> None:
        self.nodes = list(ast.walk(tree))
        self.names = set(names)
        self.classes = set()  # that the tests define
        functions = set()
        variables = set()
        for node in self.nodes:
            if isinstance(node, ast.ClassDef):
                self.classes.add(node.name)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                functions.add(node.name)
            elif isinstance(node, (ast.Name, ast.arg)):
                variables.add(_defined_name(node))
        unshadowed_builtins = set(dir(builtins)) - variables
        self.callables = self.names | self.classes | functions | unshadowed_builtins
        self.givers: dict[
            str, str
        ] = {}  # variable or attribute with an answer: whose answer
        for node in self.nodes:
            self._follow_assignment(node)

    def _follow_assignment(self, node: ast.AST) -> None:
        """Record the variables to which an assignment or a loop gives an answer."""
        source = getattr(node, "value", None) or getattr(node, "iter", None)
        giver = self.giver(source)
        if not giver:
            return
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        for target in targets:
            for element in _elements(target):
                if element:
                    self.givers[ast.unparse(element)] = giver

    def is_candidates(self, node: ast.AST | None) -> bool:
        """Whether the node is one of the candidate's names."""
        return isinstance(node, ast.Name) and node.id in self.names

    def giver(self, node: ast.AST | None) -> str:
        """Return the candidate's function that gave this answer, or part of one; else empty."""
        while isinstance(node, ast.Subscript):
            node = node.value
        if isinstance(node, ast.Call) and self.is_candidates(node.func):
            return node.func.id
        return self.givers.get(_dotted_name(node), "")

    def is_no_data(self, node: ast.AST) -> bool:
        """Whether an argument is a function, a class or an object of one."""
        match node:
            case ast.Call(func=ast.Name(id=name)):
                is_candidates_class = name in self.names and CAMEL_CASE.fullmatch(name)
                return name in self.classes or bool(is_candidates_class)
            case ast.Name(id=name):
                return name in self.callables
        return isinstance(node, ast.Lambda)

    def needs_objects(self, node: ast.AST) -> bool:
        """Whether this node needs more than calls with data that are answered with data."""
        match node:
            case ast.Call():
                return self._call_needs_objects(node)
            case ast.Attribute():
                return self._attribute_needs_objects(node)
            case ast.ExceptHandler(type=kind):
                return any(map(self.is_candidates, _elements(kind)))
            case ast.ClassDef(bases=bases, decorator_list=decorators):
                return any(map(self._is_candidates_or_answer, [*bases, *decorators]))
            case ast.FunctionDef(decorator_list=decorators):
                return any(map(self._is_candidates_or_answer, decorators))
            case ast.withitem(context_expr=value) | ast.Await(value=value):
                return bool(self.giver(value))
        return False

    def _is_candidates_or_answer(self, node: ast.AST) -> bool:
        return self.is_candidates(node) or bool(self.giver(node))

    def _call_needs_objects(self, call: ast.Call) -> bool:
        arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
        items = []
        for argument in arguments:
            items += _elements(argument)
        if self.is_candidates(call.func):
            return any(map(self.is_no_data, items))
        function = getattr(call.func, "attr", getattr(call.func, "id", ""))
        if function in CLASS_CONSUMERS:
            return any(map(self.is_candidates, items))
        if self.giver(call.func):
            return True
        is_lazy = function in LAZY_CONSUMERS
        return bool(is_lazy and arguments and self.giver(arguments[0]))

    def _attribute_needs_objects(self, attribute: ast.Attribute) -> bool:
        if self.is_candidates(attribute.value):
            return attribute.attr not in ("__name__", "__call__")
        giver = self.giver(attribute.value)
        if not giver:
            return False
        return attribute.attr not in PLAIN_ATTRIBUTES or bool(
            CAMEL_CASE.fullmatch(giver)
        )


def needs_more_than_data(tests: str, names: list[str]) -> bool:
    """Whether the tests use these names for more than calls with data, answered with data."""
    try:
        uses = _Uses(_parsed(tests), names)
        return any(map(uses.needs_objects, uses.nodes))
    except RecursionError:
        return False
