"""What comes from outside the core: other packages' entry points, and files of a user's own.

The core imports none of them by name. `pyproject.toml` lists the entry points of this repository;
your own package can add to the same groups.
"""

import ast
import hashlib
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# Each group is documented as {name of its entries: the object that they load}.

# {world name, before a colon: factory(name, paper, needs_seeds) -> World}
WORLDS = "coevolve.worlds"
# {model name: factory(name) -> its folder}
MODELS = "coevolve.models"
# {"find": factory(names, documents, max_bytes) -> a source of documents}
CORPORA = "coevolve.corpora"
# {task language: a module that reads and verifies tasks}
EXECUTORS = "coevolve.executors"
# {name: a Method class outside the core}
METHODS = "coevolve.methods"
# {command: the function behind it}
COMMANDS = "coevolve.commands"


@cache
def announced(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name."""
    return {entry.name: entry for entry in entry_points(group=group)}


def load(group: str, name: str) -> Any:
    """Import and return the object announced under a name.

    Raises ValueError if there is none, because the package is not installed or its metadata is
    older than its code.
    """
    entry = announced(group).get(name)
    if entry is None:
        names = ", ".join(sorted(announced(group))) or "none"
        raise ValueError(
            f"no installed package announces {name!r} in {group} (there are: {names}); "
            "reinstall coevolve with `make setup` or `pip install -e .`"
        )
    return entry.load()


# Files of a user's own method.

WITH_BODY = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
INSTALLED = tuple(
    Path(sysconfig.get_path(name)).resolve()
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
# Folders of packages in every Python: the user's own one, a base interpreter's, Debian's.
PACKAGE_FOLDERS = ("site-packages", "dist-packages")
THIS_REPOSITORY = (
    Path(__file__).resolve().parent.parent
)  # or the folder that it is installed in


def is_users_file(name: str) -> bool:
    """Whether a Python file is neither Python's own nor an installed package's nor ours."""
    path = Path(name)
    if path.suffix != ".py" or not path.is_file():
        return False
    parents = path.resolve().parents
    if any(folder.name in PACKAGE_FOLDERS for folder in parents):
        return False
    return not any(folder in parents for folder in (*INSTALLED, THIS_REPOSITORY))


def hashes_of_sources(cls: type) -> dict[str, str]:
    """Return a hash of each file of a user's that a class depends on, by the file's path.

    These are the files of the class, of its bases and of whatever they import, as far as they are a
    user's own; {} for a class of this repository. Comments, docstrings and layout do not count.
    """
    hashes: dict[str, str] = {}
    pending = []
    for base in cls.__mro__:
        module = sys.modules.get(base.__module__)
        pending.append(getattr(module, "__file__", None) or "")
    while pending:
        name = pending.pop()
        if name in hashes or not is_users_file(name):
            continue
        tree = ast.parse(Path(name).read_bytes())
        hashes[name] = _hash_of_code(tree)
        pending += _imported_files(tree, Path(name))
    return dict(sorted(hashes.items()))


def _hash_of_code(tree: ast.Module) -> str:
    """Hash what a file does: its syntax tree without texts that stand alone."""
    for node in ast.walk(tree):
        if isinstance(node, WITH_BODY):
            node.body = [part for part in node.body if not _is_docstring(part)]
    dump = ast.dump(tree).encode()
    return hashlib.blake2b(dump, digest_size=8).hexdigest()


def _is_docstring(node: ast.AST) -> bool:
    match node:
        case ast.Expr(ast.Constant(str())):
            return True
    return False


def _imported_files(tree: ast.Module, file: Path) -> Iterator[str]:
    """Yield the files of the modules that a file imports, also those inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield _file_of_module(alias.name)
        elif isinstance(node, ast.ImportFrom) and node.level:
            folder = file.parents[node.level - 1]
            place = folder.joinpath(*(node.module or "").split("."))
            for candidate in (place, *(place / alias.name for alias in node.names)):
                yield str(candidate.with_suffix(".py"))
                yield str(candidate / "__init__.py")
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield _file_of_module(node.module)
            for alias in node.names:
                yield _file_of_module(f"{node.module}.{alias.name}")


def _file_of_module(name: str) -> str:
    """Return a module's file, "" if it has none or is missing."""
    module = sys.modules.get(name)
    if module is not None:
        return getattr(module, "__file__", None) or ""
    try:
        spec = find_spec(name)
    except Exception:  # noqa: BLE001 it imports the packages around the module
        return ""
    return (spec.origin if spec else None) or ""
