"""Which modules of this repository some code needs, and a hash of each that ignores prose.

Import statements are read, never executed. An import inside a function may never happen: it is
followed unless it leads to a method or a published data set; those count where a run names them or
the run's method imports them.
"""

import ast
import hashlib
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

# Modules that are imported only by name.
NAMED = ("coevolve.methods.", "published.")
# Groups of entry points whose modules any code may load that loads plugins at all.
ANYWHERE = ("coevolve.worlds", "coevolve.models", "coevolve.executors")
# Groups that count where a method's source names them, as `plugins.CORPORA`.
BY_ATTRIBUTE = {"CORPORA": "coevolve.corpora", "EXECUTORS": "coevolve.executors"}
NO_DATA = (".py", ".pyc", ".so", ".md")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class ImportStatement(NamedTuple):
    """An import statement, and whether it stands inside a function."""

    node: ast.Import | ast.ImportFrom
    is_late: bool


class Import(NamedTuple):
    """An imported module of this repository, and whether the import stands inside a function."""

    module: str
    is_late: bool


class ModuleFacts(NamedTuple):
    """A module's hash without prose, and the modules of this repository that it imports."""

    digest: str
    imports: set[Import]


def digest(data: bytes) -> str:
    """Hash bytes into 20 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()[:20]


def parse(text: str) -> ast.Module | None:
    """Return the syntax tree; None for text that is not Python, such as a cell with magics."""
    try:
        return ast.parse(text)
    except SyntaxError:
        return None


def is_string(node: ast.AST) -> bool:
    """Whether a node is a string literal."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


class ProseRemover(ast.NodeTransformer):
    """Removes strings that stand alone, such as docstrings, from a syntax tree."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Visit the children of a statement; no statement stands below an expression."""
        if isinstance(node, ast.expr):
            return node
        return super().generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        """Return the statement, or None if it is a string."""
        return None if is_string(node.value) else node


@cache  # many items share notebooks and modules; the same holds for the two functions below
def without_prose(text: str) -> str:
    """Return Python without comments, docstrings and layout; other text unchanged."""
    tree = parse(text)
    if tree is None:
        return text
    return ast.unparse(ProseRemover().visit(tree))


@cache
def constants(text: str) -> set[str]:
    """Return all string literals of some code."""
    tree = parse(text)
    if tree is None:
        return set()
    return {node.value for node in ast.walk(tree) if is_string(node)}


@cache
def import_statements(text: str) -> list[ImportStatement]:
    """List the import statements of some code, except those for type checkers."""
    statements = []
    pending = [(parse(text) or ast.Module(), False)]
    while pending:
        node, is_late = pending.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            statements.append(ImportStatement(node, is_late))
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        children_are_late = is_late or isinstance(node, FUNCTIONS)
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.expr):
                pending.append((child, children_are_late))
    return statements


def dotted_prefixes(name: str) -> list[str]:
    """Return `a`, `a.b` and `a.b.c` for `a.b.c`, shortest first."""
    prefixes = []
    prefix = ""
    for part in name.split("."):
        prefix = f"{prefix}.{part}" if prefix else part
        prefixes.append(prefix)
    return prefixes


class Modules:
    """The modules of one repository: those below src/, and those of its root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.find = cache(self.find)
        self.facts = cache(self.facts)  # each file is read once

    def find(self, name: str) -> Path | None:
        """Return a module's file, or None if the module is not part of this repository."""
        for folder in (self.root / "src", self.root):
            base = folder / name.replace(".", "/")
            for file in (base.with_name(f"{base.name}.py"), base / "__init__.py"):
                if file.is_file():
                    return file
        return None

    def imports(
        self, text: str, name: str = "", is_package: bool = False
    ) -> set[Import]:
        """Return the modules of this repository that some code imports, with their packages.

        `name` is the module that holds the code; relative imports start there.
        """
        package = name
        if not is_package:
            package, _, _ = name.rpartition(".")
        imports = set()
        for statement in import_statements(text):
            for target in self._targets(statement.node, package):
                for module in dotted_prefixes(target):
                    if self.find(module):
                        imports.add(Import(module, statement.is_late))
        return imports

    def _targets(self, node: ast.Import | ast.ImportFrom, package: str) -> list[str]:
        """Return the dotted names that an import statement in a module of `package` may load."""
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.Import):
            return names
        source: list[str] = []
        if node.level:  # one dot is the package itself, each further dot its parent
            parts = package.split(".")
            parents_up = node.level - 1
            source = parts[: len(parts) - parents_up]
        if node.module:
            source.append(node.module)
        dotted_source = ".".join(source)
        members = [self.loaded_by(dotted_source, name) for name in names]
        return [dotted_source, *members]

    def loaded_by(self, package: str, name: str) -> str:
        """Return the module that `from package import name` loads.

        A package that imports its public names on first use has a table of their modules.
        """
        member = f"{package}.{name}"
        file = self.find(package)
        if file is None or self.find(member):
            return member
        text = file.read_text(encoding="utf-8")
        entry = re.search(rf'"{name}": "([\w.]+)"', text)
        if entry is None:
            return member
        return entry[1]

    def file_of(self, name: str) -> Path | None:
        """Return the file of a module or of a path below the root; None for a foreign module."""
        if name.endswith(".py"):
            return self.root / name
        return self.find(name)

    def facts(self, name: str, file: Path) -> ModuleFacts:
        """Return a module's hash, and what it imports."""
        text = file.read_text(encoding="utf-8")
        code = without_prose(text)
        imports = self.imports(text, name, is_package=file.name == "__init__.py")
        return ModuleFacts(digest(code.encode()), imports)

    @cached_property
    def announced(self) -> dict[str, dict[str, str]]:
        """The entry points of pyproject.toml: {group: {name: module}}."""
        file = self.root / "pyproject.toml"
        if not file.is_file():
            return {}
        project = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
        groups: dict[str, dict[str, str]] = {}
        for group, entries in project.get("entry-points", {}).items():
            modules = {name: value.partition(":")[0] for name, value in entries.items()}
            groups[group] = modules
        return groups

    def plugins_used(self, text: str) -> list[str]:
        """Return the modules announced in the groups that a method's source loads."""
        modules: list[str] = []
        for attribute, group in BY_ATTRIBUTE.items():
            if f"plugins.{attribute}" in text:
                modules += self.announced.get(group, {}).values()
        return modules

    def _plugins_anywhere(self) -> list[str]:
        """Return announced modules that count wherever plugins are loaded, unless named only."""
        modules: list[str] = []
        for group in ANYWHERE:
            modules += self.announced.get(group, {}).values()
        return [module for module in modules if not module.startswith(NAMED)]

    def needed(self, roots: Iterable[str]) -> dict[str, str]:
        """Return module -> hash for the roots and all that they import, directly or not.

        Modules of other packages are left out.
        """
        hashes: dict[str, str] = {}
        pending = list(roots)
        while pending:
            name = pending.pop()
            file = self.file_of(name)
            if file is None or name in hashes:
                continue
            facts = self.facts(name, file)
            hashes[name] = facts.digest
            if name == "coevolve.plugins":
                pending += self._plugins_anywhere()
            for module, is_late in facts.imports:
                if not (is_late and module.startswith(NAMED)):
                    pending.append(module)
        return hashes

    @cached_property
    def data(self) -> dict[str, list[str]]:
        """The data files below src/ and reproduce/analysis/, by the module that owns them.

        A file belongs to the module of its name beside it, or else to its package. Paths are
        relative to the root.
        """
        source = self.root / "src"
        analysis = self.root / "reproduce" / "analysis"
        files_of: dict[str, list[str]] = defaultdict(list)
        for folder, import_root in ((source, source), (analysis, self.root)):
            for file in sorted(folder.rglob("*")):
                name = file.relative_to(import_root).with_suffix("")
                if _is_data(file, name):
                    owner = self._owner(name.parts)
                    path = file.relative_to(self.root)
                    files_of[owner].append(str(path))
        return dict(files_of)

    def _owner(self, parts: tuple[str, ...]) -> str:
        """Return the module or innermost package at these parts of a path; "" if there is none."""
        for size in range(len(parts), 0, -1):
            module = ".".join(parts[:size])
            if self.find(module):
                return module
        return ""


def _is_data(file: Path, name: Path) -> bool:
    """Whether a file is data: not code, not documentation, not in a hidden or metadata folder."""
    for part in name.parts:
        if part.startswith(".") or part.endswith(".egg-info"):
            return False
    return file.is_file() and file.suffix not in NO_DATA
