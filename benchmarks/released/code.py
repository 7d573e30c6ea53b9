"""Run functions of other people's repositories from snapshots, outside this repository.

A snapshot is a git directory. Of a file only the definitions that are asked for are taken, with
those that they use, and written to a scratch folder. Imports that they use are kept, except of
names for which the caller gives a stand-in.
"""

import ast
import builtins
import importlib.util
import io
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

Definition = ast.FunctionDef | ast.ClassDef
DEFINITIONS = (ast.FunctionDef, ast.ClassDef)
IMPORTS = (ast.Import, ast.ImportFrom)


@dataclass(frozen=True)
class Snapshot:
    """A repository at one commit, whose extracted code lies in a folder of its own."""

    repository: str  # owner/name
    commit: str
    git_dir: Path
    scratch: Path

    @classmethod
    def find(cls, repository: str, root: Path, scratch: Path) -> "Snapshot | None":
        """Return the snapshot root/owner+name/repo at its newest commit; None if it is absent."""
        git_dir = root / repository.replace("/", "+") / "repo"
        if not git_dir.is_dir():
            return None
        command = ["git", f"--git-dir={git_dir}", "rev-parse", "HEAD"]
        answer = subprocess.run(command, check=True, capture_output=True, text=True)
        folder = scratch / repository.replace("/", "+")
        folder.mkdir(parents=True, exist_ok=True)
        return cls(repository, answer.stdout.strip(), git_dir, folder)

    def read(self, path: str) -> bytes:
        """Return the content of a file."""
        return self._git("show", f"{self.commit}:{path}")

    def package(self, folder: str) -> None:
        """Extract a whole package of pure Python, and make it importable."""
        archive = self._git("archive", self.commit, folder)
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(self.scratch, filter="data")
        if str(self.scratch) not in sys.path:
            sys.path.append(str(self.scratch))

    def take(self, path: str, names: Iterable[str], **given: Any) -> ModuleType:
        """Return a module with some definitions of a file, and all that they use.

        `outer.inner` names a function within a function. `given` are stand-ins for imported names.
        """
        tree = ast.parse(self.read(path))
        source = ast.unparse(extracted(tree, names, given))
        file = self.scratch / path.replace("/", "__")
        file.write_text(source, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        vars(module).update(given)
        spec.loader.exec_module(module)
        return module

    def _git(self, *arguments: str) -> bytes:
        command = ["git", f"--git-dir={self.git_dir}", *arguments]
        return subprocess.run(command, check=True, capture_output=True).stdout


def extracted(
    tree: ast.Module, names: Iterable[str], given: Mapping[str, Any]
) -> ast.Module:
    """Return the definitions of these names and all statements of the module that they use."""
    statements = statements_by_name(tree)
    wanted = [definition(tree, name) for name in names]
    kept: list[ast.stmt] = []
    while wanted:
        statement = wanted.pop()
        if statement in kept:
            continue
        kept.append(statement)
        for name in names_read(statement):
            if name not in given and name in statements:
                wanted.append(statements[name])
    kept.sort(key=lambda statement: statement.lineno)
    return ast.Module(kept, type_ignores=[])


def statements_by_name(tree: ast.Module) -> dict[str, ast.stmt]:
    """Return the last statement of a module that binds each name."""
    statements: dict[str, ast.stmt] = {}
    for statement in tree.body:
        for name in names_bound(statement):
            statements[name] = statement
    return statements


def names_bound(statement: ast.stmt) -> list[str]:
    """Return the names that a statement of a module defines, imports or assigns."""
    if isinstance(statement, DEFINITIONS):
        return [statement.name]
    if isinstance(statement, IMPORTS):
        return [(alias.asname or alias.name).split(".")[0] for alias in statement.names]
    if isinstance(statement, ast.Assign):
        targets = [node for node in statement.targets if isinstance(node, ast.Name)]
        return [target.id for target in targets]
    return []


def names_read(statement: ast.stmt) -> set[str]:
    """Return the names that a statement reads, builtins left out."""
    names = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and not hasattr(builtins, node.id):
            names.add(node.id)
    return names


def definition(tree: ast.Module, name: str) -> Definition:
    """Return the function or class of a name; LookupError if the file has none."""
    bodies: ast.AST = tree
    for part in name.split("."):
        found = [node for node in ast.walk(bodies) if is_definition(node, part)]
        if not found:
            raise LookupError(f"no definition of {name}")
        bodies = found[0]
    assert isinstance(bodies, DEFINITIONS)
    return bodies


def is_definition(node: ast.AST, name: str) -> bool:
    """Whether a node defines a function or class of this name."""
    return isinstance(node, DEFINITIONS) and node.name == name
