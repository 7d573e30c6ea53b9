"""Methods by name: the papers', their baselines, and a user's own."""

import ast
import importlib.util
import sys
import tomllib
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from coevolve import plugins
from coevolve.methods.base import Method
from coevolve.validation import check_choice, user_path

METHODS: dict[str, str] = tomllib.loads(
    Path(__file__).with_name("methods.toml").read_text(encoding="utf-8")
)


def get_method(name: str) -> type[Method]:
    """Return a method's class: one of METHODS, path/file.py:Class or package.module:Class.

    Raises ValueError if the file, the module or the class is missing, or is no subclass of Method,
    and for an error in a user's file, with its line.
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
    with _placed():
        module = _import(name, place)
    found = getattr(module, class_name, None)
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise ValueError(
            f"method {name!r} cannot be loaded: {place} has no subclass of Method called "
            f"{class_name!r}"
        )
    return found


def make_method(name: str, /, **fields: Any) -> Method:
    """Return the method of this name with fields; errors as for `get_method`.

    A ValueError of the method's own checks stays as it is.
    """
    cls = get_method(name)
    with _placed(but=ValueError):
        return cls(**fields)


def _import(name: str, place: str) -> ModuleType:
    """Import the file or module of a method; raise ValueError if it is missing."""
    file = user_path(place)
    is_file = place.endswith(".py")
    if is_file and not file.is_file():
        raise ValueError(f"method {name!r} cannot be loaded: there is no file {file}")
    try:
        return import_file(file) if is_file else importlib.import_module(place)
    except (ModuleNotFoundError, SyntaxError, TypeError, ValueError) as error:
        if _place_in_users_file(error):
            raise
        raise ValueError(f"method {name!r} cannot be loaded: {error}") from None


@contextmanager
def _placed(but: type[Exception] | tuple[()] = ()) -> Iterator[None]:
    """Turn an exception of a user's file into one line: FILE, line N: ERROR: its message.

    Exceptions of the class `but` pass unchanged.
    """
    try:
        yield
    except but:
        raise
    except Exception as error:
        place = _place_in_users_file(error)
        if not place:
            raise
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        message = " ".join(text.split())
        raise ValueError(f"{place}: {type(error).__name__}: {message}") from error


def _place_in_users_file(error: Exception) -> str:
    """Return "FILE, line N" where a user's file failed, "" if none did."""
    if isinstance(error, SyntaxError) and plugins.is_users_file(error.filename or ""):
        return f"{error.filename}, line {error.lineno}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if plugins.is_users_file(frame.filename):
            return f"{frame.filename}, line {frame.lineno}"
    return ""


def _class_in(file: Path) -> str:
    """Return the name of the last class that a file defines, CLASS if it has none."""
    names = ["CLASS"]
    if file.is_file():
        with _placed():
            tree = ast.parse(file.read_bytes(), str(file))
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
