"""The guard of density: what makes a line of Python hard to read, found in its syntax tree.

`python -m tools.density [PATH ...]` lists every finding (default: all code of this repository). The same rules run as
a test. They bound how much a reader has to hold in mind at once, not how much code there is.
"""

import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("src", "reproduce", "tests", "benchmarks", "tools", "examples")
MAX_EXPRESSIONS_PER_LINE = 5.0
MAX_COLUMNS = 100
MAX_FUNCTION_LINES = 60
MAX_FILE_LINES = 500

# Files in which lines may hold more, each with the reason.
DENSE_BY_NATURE: dict[str, str] = {}

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
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


def code_lines(text: str) -> int:
    """Count the lines of a Python source that hold code: no blanks, no comments, no docstrings."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            lines -= set(range(docstring.lineno, docstring.end_lineno + 1))
    return len(lines)


def expressions(tree: ast.AST) -> int:
    """Count the expressions of a tree, at every depth: `f(x + 1)` has five."""
    return sum(isinstance(node, ast.expr) for node in ast.walk(tree))


def findings(text: str, dense_by_nature: bool = False) -> list[str]:
    """Return what is hard to read in a Python source, each as `LINE: what`."""
    tree = ast.parse(text)
    found = [*_of_the_file(text, tree, dense_by_nature), *_of_its_lines(text)]
    for node in ast.walk(tree):
        found += [f"{node.lineno}: {fault}" for fault in _of_a_node(node)]
    return found


def _of_the_file(text: str, tree: ast.Module, dense_by_nature: bool) -> Iterator[str]:
    size = len(text.splitlines())
    if size > MAX_FILE_LINES:
        yield f"1: {size} lines in a file, at most {MAX_FILE_LINES}"
    density = expressions(tree) / max(code_lines(text), 1)
    if density > MAX_EXPRESSIONS_PER_LINE and not dense_by_nature:
        yield f"1: {density:.2f} expressions a code line, at most {MAX_EXPRESSIONS_PER_LINE}"


def _of_its_lines(text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > MAX_COLUMNS:
            yield f"{number}: {len(line)} columns, at most {MAX_COLUMNS}"


def _of_a_node(node: ast.AST) -> Iterator[str]:
    if isinstance(node, FUNCTIONS):
        size = node.end_lineno - node.lineno + 1
        if size > MAX_FUNCTION_LINES:
            yield f"{node.name} has {size} lines, at most {MAX_FUNCTION_LINES}"
    if isinstance(node, ast.Assign) and _assigns_unrelated_values(node):
        yield "unrelated values are assigned in one tuple"
    if isinstance(node, COMPREHENSIONS) and _contains(node, COMPREHENSIONS):
        yield "a comprehension inside a comprehension"
    if isinstance(node, ast.IfExp) and _contains(node, ast.IfExp):
        yield "a conditional expression inside another"
    if isinstance(node, ast.Dict) and _spreads_a_literal(node):
        yield "a dict literal is spread into a dict literal"


def _contains(node: ast.AST, kinds: type | tuple[type, ...]) -> bool:
    return any(isinstance(inner, kinds) for inner in ast.walk(node) if inner is not node)


def _assigns_unrelated_values(node: ast.Assign) -> bool:
    """Whether `a, b = x, y`; a swap or a simultaneous step, which reads what it assigns, is allowed."""
    if not isinstance(node.value, ast.Tuple):
        return False
    targets = [target for target in node.targets if isinstance(target, ast.Tuple)]
    if not targets:
        return False
    read = {ast.unparse(inner) for inner in ast.walk(node.value) if isinstance(inner, ast.expr)}
    assigned = [ast.unparse(element) for target in targets for element in target.elts]
    return not any(name in read for name in assigned)


def _spreads_a_literal(node: ast.Dict) -> bool:
    spread = [value for key, value in zip(node.keys, node.values, strict=True) if key is None]
    return any(isinstance(value, ast.Dict) for value in spread)


def python_files(*rooms: str | Path) -> list[Path]:
    """Return the Python files of some folders; not the programs that the tests run as hostile data."""
    files = [path for room in rooms for path in sorted((ROOT / room).rglob("*.py"))]
    return [path for path in files if "data" not in path.relative_to(ROOT).parts[:2]]


def main(arguments: list[str]) -> int:
    """Print the findings of some files or folders; return 1 if there are any."""
    count = 0
    paths = [Path(argument).resolve() for argument in arguments] or [ROOT / room for room in ROOMS]
    for path in paths:
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            name = str(file.relative_to(ROOT)) if ROOT in file.parents else str(file)
            if name.startswith("tests/data/"):
                continue
            for fault in findings(file.read_text(encoding="utf-8"), name in DENSE_BY_NATURE):
                print(f"{name}:{fault}")
                count += 1
    print(f"{count} findings")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
