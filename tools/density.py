"""The guard of density: what makes a line of Python hard to read, found in its syntax tree.

`python -m tools.density [PATH ...]` lists every finding (default: all code of this repository).
The same rules run as a test. They bound how much a reader has to hold in mind at once, not how
much code there is.
"""

import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("src", "reproduce", "tests", "benchmarks", "tools", "examples")
HOSTILE = "tests/data/"  # programs that the tests run as data, not code of ours
MAX_EXPRESSIONS_PER_LINE = 5.0
MAX_COLUMNS = 100
MAX_FUNCTION_LINES = 60
MAX_FILE_LINES = 500

# Files in which lines may hold more, each with the reason: four at most.
DENSE_BY_NATURE: dict[str, str] = {}

Kinds = type | tuple[type, ...]
COMPREHENSIONS = (
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DOCUMENTED = (ast.Module, ast.ClassDef, *FUNCTIONS)
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(text: str) -> set[int]:
    """Return the numbers of the lines that hold code: no blanks, comments or docstrings."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            first_line, _ = token.start
            last_line, _ = token.end
            lines |= set(range(first_line, last_line + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            lines -= set(range(docstring.lineno, docstring.end_lineno + 1))
    return lines


def expressions(tree: ast.AST) -> int:
    """Count the expressions of a tree, at every depth: `f(x + 1)` has five."""
    return sum(isinstance(node, ast.expr) for node in ast.walk(tree))


def findings(text: str, dense_by_nature: bool = False) -> list[str]:
    """Return what is hard to read in a Python source, each as `LINE: what`."""
    tree = ast.parse(text)
    lines = list(_file_findings(text, tree, dense_by_nature))
    lines += _line_findings(text)
    for node in ast.walk(tree):
        for fault in _node_findings(node):
            lines.append(f"{node.lineno}: {fault}")
    return lines


def _file_findings(text: str, tree: ast.Module, dense_by_nature: bool) -> Iterator[str]:
    size = len(text.splitlines())
    if size > MAX_FILE_LINES:
        yield f"1: {size} lines in a file, at most {MAX_FILE_LINES}"
    density = expressions(tree) / max(len(code_lines(text)), 1)
    if density > MAX_EXPRESSIONS_PER_LINE and not dense_by_nature:
        limit = MAX_EXPRESSIONS_PER_LINE
        yield f"1: {density:.2f} expressions a code line, at most {limit}"


def _line_findings(text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > MAX_COLUMNS:
            yield f"{number}: {len(line)} columns, at most {MAX_COLUMNS}"


def _node_findings(node: ast.AST) -> Iterator[str]:
    if isinstance(node, FUNCTIONS):
        size = node.end_lineno - node.lineno + 1
        if size > MAX_FUNCTION_LINES:
            yield f"{node.name} has {size} lines, at most {MAX_FUNCTION_LINES}"
    if assigns_unrelated_values(node):
        yield "unrelated values are assigned in one tuple"
    if nests_comprehensions(node):
        yield "a comprehension inside a comprehension"
    if isinstance(node, ast.IfExp) and _contains(node, ast.IfExp):
        yield "a conditional expression inside another"
    if spreads_a_literal(node):
        yield "a dict literal is spread into a dict literal"


def _contains(node: ast.AST, kinds: Kinds) -> bool:
    inner_nodes = list(ast.walk(node))[1:]  # the first is the node itself
    return any(isinstance(inner, kinds) for inner in inner_nodes)


def nests_comprehensions(node: ast.AST) -> bool:
    """Whether the node is a comprehension that contains another."""
    return isinstance(node, COMPREHENSIONS) and _contains(node, COMPREHENSIONS)


def assigns_unrelated_values(node: ast.AST) -> bool:
    """Whether the node is `a, b = x, y`.

    A swap or a simultaneous step, which reads what it assigns, is allowed.
    """
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    assigned = []
    for target in node.targets:
        if isinstance(target, ast.Tuple):
            assigned += [ast.unparse(element) for element in target.elts]
    read = set()
    for inner in ast.walk(node.value):
        if isinstance(inner, ast.expr):
            read.add(ast.unparse(inner))
    return bool(assigned) and read.isdisjoint(assigned)


def spreads_a_literal(node: ast.AST) -> bool:
    """Whether the node is `{**{...}}`."""
    if not isinstance(node, ast.Dict):
        return False
    for key, value in zip(node.keys, node.values, strict=True):
        is_spread = key is None
        if is_spread and isinstance(value, ast.Dict):
            return True
    return False


def python_files(path: Path) -> list[Path]:
    """Return the Python files of a file or folder, without the tests' hostile programs."""
    if path.is_file():
        return [path]
    hostile = ROOT / HOSTILE
    files = sorted(path.rglob("*.py"))
    return [file for file in files if hostile not in file.parents]


def name_of(file: Path) -> str:
    """Return the file's path below the repository; outside of it the whole path."""
    if ROOT in file.parents:
        return str(file.relative_to(ROOT))
    return str(file)


def main(arguments: list[str]) -> int:
    """Print the findings of some files or folders; return 1 if there are any."""
    count = 0
    paths = [Path(argument).resolve() for argument in arguments]
    for path in paths or [ROOT / room for room in ROOMS]:
        for file in python_files(path):
            name = name_of(file)
            text = file.read_text(encoding="utf-8")
            for fault in findings(text, name in DENSE_BY_NATURE):
                print(f"{name}:{fault}")
                count += 1
    print(f"{count} findings")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
