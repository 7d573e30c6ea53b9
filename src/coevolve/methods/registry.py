"""Methods by name: the papers', their baselines, and a user's own."""

import ast
import importlib.util
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

from coevolve.methods.base import Method
from coevolve.validation import check_choice, user_path

METHODS: dict[str, str] = tomllib.loads(
    Path(__file__).with_name("methods.toml").read_text(encoding="utf-8")
)


def get_method(name: str) -> type[Method]:
    """Return a method's class: one of METHODS, path/file.py:Class or package.module:Class.

    Raises ValueError if the file, the module or the class is missing, or is no subclass of Method.
    """
    if name.endswith(".py"):
        raise ValueError(
            f"method must name a class of the file, as in {name}:{_class_in(user_path(name))}, "
            f"got {name!r}"
        )
    if ":" not in name:
        check_choice(
            "method", name, [*METHODS, "FILE.py:CLASS", "PACKAGE.MODULE:CLASS"]
        )
    place, _, class_name = METHODS.get(name, name).rpartition(":")
    try:
        if place.endswith(".py"):
            module = import_file(user_path(place))
        else:
            module = importlib.import_module(place)
    except FileNotFoundError as error:
        raise ValueError(
            f"method {name!r} cannot be loaded: there is no file {error.filename}"
        ) from None
    except (ModuleNotFoundError, TypeError, ValueError) as error:
        raise ValueError(f"method {name!r} cannot be loaded: {error}") from None
    found = getattr(module, class_name, None)
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise ValueError(
            f"method {name!r} cannot be loaded: {place} has no subclass of Method called "
            f"{class_name!r}"
        )
    return found


def _class_in(file: Path) -> str:
    """Return the name of the last class that a file defines, CLASS if it has none."""
    names = ["CLASS"]
    if file.is_file():
        tree = ast.parse(file.read_bytes())
        names += [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    return names[-1]


def import_file(file: Path) -> ModuleType:
    """Import a file once, under a name made from its path.

    The name is the same in every process, so that the file's classes can be pickled.
    """
    name = str(file.resolve()).replace(".", "_")
    if name in sys.modules:
        return sys.modules[name]
    spec: Any = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
