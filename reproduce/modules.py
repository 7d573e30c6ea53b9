"""Which of our modules some code needs, found by reading import statements, and a hash of each that ignores prose.

An import inside a function may never happen, so it is followed unless it leads to a method or a published data set:
those count where a run names them, or the run's own method imports them.
"""

import ast
import hashlib
import re
from collections.abc import Iterable
from functools import cache, cached_property
from pathlib import Path

NAMED = ("coevolve.methods.", "coevolve.methods.baselines.", "published.")  # only imported by name
NO_DATA = (".py", ".pyc", ".so", ".md")


def digest(data: bytes) -> str:
    """Hash bytes into 20 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()[:20]


def parse(text: str) -> ast.Module | None:
    """Return Python as a tree; None for text that is not Python, such as a cell with magics."""
    try:
        return ast.parse(text)
    except SyntaxError:
        return None


class Code(ast.NodeTransformer):
    """Leaves strings that stand alone out of a tree."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Return the node; nothing below an expression can stand alone."""
        return node if isinstance(node, ast.expr) else super().generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        """Return the statement, or None for a string."""
        return None if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str) else node


@cache  # many items share notebooks and modules, here and below
def without_prose(text: str) -> str:
    """Return Python without comments, docstrings and layout; text that is not Python as it is."""
    tree = parse(text)
    return text if tree is None else ast.unparse(Code().visit(tree))


@cache
def constants(text: str) -> set[str]:
    """Return all strings that code holds."""
    nodes = ast.walk(parse(text) or ast.Module())
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


@cache
def import_statements(text: str) -> list[tuple[ast.Import | ast.ImportFrom, bool]]:
    """List import statements, and whether each stands inside a function; those for type checkers are left out."""
    found, todo = [], [(parse(text) or ast.Module(), False)]
    while todo:
        node, late = todo.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found.append((node, late))
        if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            late = late or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            todo += [(child, late) for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)]
    return found


class Modules:
    """The modules of one repository: those below src/, and those of its root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.find, self.facts = cache(self.find), cache(self.facts)  # each file is read once

    def find(self, name: str) -> Path | None:
        """Return a module's file, or None if the module is not ours."""
        bases = [base / name.replace(".", "/") for base in (self.root / "src", self.root)]
        files = [file for base in bases for file in (base.with_name(f"{base.name}.py"), base / "__init__.py")]
        return next((file for file in files if file.is_file()), None)

    def imports(self, text: str, name: str = "", is_package: bool = False) -> set[tuple[str, bool]]:
        """Return our modules that a text imports, and whether only inside functions; `name` is the text's module."""
        found = set()
        for node, late in import_statements(text):
            if isinstance(node, ast.Import):
                named = [alias.name for alias in node.names]
            else:
                above = name.split(".")[: len(name.split(".")) - node.level + is_package] if node.level else []
                home = ".".join([*above, *([node.module] if node.module else [])])
                named = [home, *(self.lazy(home, alias.name) for alias in node.names)]
            for one in named:
                parts = one.split(".")
                found |= {(".".join(parts[:size]), late) for size in range(1, len(parts) + 1)}
        return {(module, late) for module, late in found if self.find(module)}

    def lazy(self, package: str, name: str) -> str:
        """Return the module that `from package import name` loads: the package's table of lazy names may say which."""
        file = self.find(package)
        named = re.search(rf'"{name}": "([\w.]+)"', file.read_text(encoding="utf-8")) if file else None
        return named[1] if named and not self.find(f"{package}.{name}") else f"{package}.{name}"

    def file_of(self, name: str) -> Path | None:
        """Return the file of a module, or of code that is named by its path (below the root); None if not ours."""
        return self.root / name if name.endswith(".py") else self.find(name)

    def facts(self, name: str, file: Path) -> tuple[str, set[tuple[str, bool]]]:
        """Return a module's hash, and what it imports."""
        text = file.read_text(encoding="utf-8")
        return digest(without_prose(text).encode()), self.imports(text, name, file.name == "__init__.py")

    def needed(self, roots: Iterable[str]) -> dict[str, str]:
        """Return name -> hash for the roots that are ours and all that they import, directly or not."""
        todo, found = list(roots), {}
        while todo:
            name = todo.pop()
            file = self.file_of(name)
            if file is not None and name not in found:
                found[name], imports = self.facts(name, file)
                todo += [name for name, late in imports if not (late and name.startswith(NAMED))]
        return found

    @cached_property
    def data(self) -> dict[str, list[str]]:
        """Files that are no code, below the root, by the module next to which they lie, or else by their package."""
        found: dict[str, list[str]] = {}
        for base, home in ((self.root / "src", "."), (self.root, "reproduce/analysis")):
            for file in sorted((base / home).rglob("*")):
                parts = file.relative_to(base).with_suffix("").parts
                hidden = any(part.startswith(".") or part.endswith(".egg-info") for part in parts)
                if file.is_file() and file.suffix not in NO_DATA and not hidden:
                    names = (".".join(parts[:size]) for size in range(len(parts), 0, -1))
                    owner = next((name for name in names if self.find(name)), "")
                    found.setdefault(owner, []).append(str(file.relative_to(self.root)))
        return found
