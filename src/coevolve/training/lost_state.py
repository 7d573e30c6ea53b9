"""Warns of what a method remembers between steps where a resumed run would not find it.

A checkpoint holds the items of a method's pools. Its fields are settings, which must not change
within a run, and a resumed run makes all other attributes anew.
"""

import inspect
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

from tqdm.auto import tqdm

from coevolve.methods.base import Method

PLAIN_TYPES = (type(None), bool, int, float, complex, str, bytes)
SEQUENCES = (list, tuple, deque)
CONTAINERS = (*SEQUENCES, dict, set, frozenset)
# What lies deeper is compared by identity, so that a list may hold itself.
MAX_DEPTH = 5
ADVICE = (
    "keep it in a pool (docs/your-own-method.md, 'Remember something between steps')"
)


class AttributeWatch:
    """Compares a method's attributes with what they were when the watch was made.

    Plain values, lists, dicts, sets, numpy arrays and `Random` are compared by content, all other
    objects by identity. Cached properties do not count, because a resumed run computes them again.
    """

    def __init__(self, method: Method):
        """Note the attributes as they are now."""
        self.method = method
        self._before = _contents(method)
        self._told: set[str] = set()

    def warn(self, step: int) -> None:
        """Print a line for each attribute that is new or has changed; each is told only once."""
        for name, content in _contents(self.method).items():
            is_same = name in self._before and content == self._before[name]
            if not is_same and name not in self._told:
                self._told.add(name)
                tqdm.write(_warning(self.method, name, step))


def _warning(method: Method, name: str, step: int) -> str:
    if name in type(method).model_fields:
        kind = "field"
        why = "and a run does not resume with other fields"
    else:
        kind = "attribute"
        why = "and a resumed run does not know its value"
    return (
        f"warning: the {kind} {name!r} of {type(method).__name__} has changed by step {step}, "
        f"{why}: {ADVICE}"
    )


@dataclass(frozen=True)
class _Content:
    """What two values are compared by: their type, and what is inside."""

    type: type
    parts: Any


def _contents(method: Method) -> dict[str, _Content]:
    """Return the content of each attribute of a method, also of lists that its class holds."""
    return {name: _content(value) for name, value in _attributes(method)}


def _attributes(method: Method) -> Iterator[tuple[str, object]]:
    cls = type(method)
    for base in reversed(cls.__mro__):
        if issubclass(base, Method):
            yield from _shared_containers(base)
    yield from (method.__pydantic_private__ or {}).items()
    for name, value in vars(method).items():
        if not isinstance(inspect.getattr_static(cls, name, None), cached_property):
            yield name, value


def _shared_containers(cls: type) -> Iterator[tuple[str, object]]:
    """Yield the containers that a class holds for all its instances, pydantic's own excepted."""
    for name, value in vars(cls).items():
        is_authors = not name.startswith(("__", "_abc_", "model_"))
        if is_authors and isinstance(value, CONTAINERS):
            yield name, value


def _content(value: object, depth: int = 0) -> _Content:
    """Return a copy of what counts in a value."""
    kind = type(value)
    if isinstance(value, PLAIN_TYPES):
        return _Content(kind, (value,))  # in a tuple, where nan equals itself
    if isinstance(value, Random):
        return _Content(kind, value.getstate())
    if hasattr(value, "tobytes"):  # an array of numpy
        return _Content(kind, value.tobytes())
    if isinstance(value, CONTAINERS) and depth < MAX_DEPTH:
        return _Content(kind, _content_of_items(value, depth + 1))
    return _Content(kind, _Identity(value))


def _content_of_items(container: Any, depth: int) -> object:
    if isinstance(container, SEQUENCES):
        return tuple(_content(item, depth) for item in container)
    if isinstance(container, dict):
        return {key: _content(item, depth) for key, item in container.items()}
    return frozenset(container)


class _Identity:
    """Equals only the same object, which it keeps alive so that no other one takes its place."""

    def __init__(self, value: object):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)
