"""Bounded, data-only messages: one frame a line, of tagged JSON. Nothing here runs what it reads.

A value of builtin types becomes a tree: None, bools and strings stand for themselves, all else is [tag, body].
"""

import json
from collections.abc import ItemsView, Iterator, KeysView, ValuesView

LIMIT = 1 << 20  # bytes of results that one run may send
INPUT = 1 << 26  # bytes of one value that the caller may send
DEPTH = 60
TAGS = {list: "l", tuple: "t", set: "s", frozenset: "f"}
KINDS = {tag: kind for kind, tag in TAGS.items()} | {"g": lambda parts: iter(list(parts))}
# Trees of the plain types without parts. The types' own methods are called, so a derived class cannot lie.
SCALARS = {
    str: str.__str__,
    int: lambda value: ["i", hex(int.__int__(value))],
    float: lambda value: ["r", float.hex(float.__add__(value, 0.0))],  # -0.0 is 0.0
    bytes: lambda value: ["b", bytes.hex(value)],
    bytearray: lambda value: ["y", bytearray.hex(value)],
}
SIZES = {str: str.__len__, bytes: bytes.__len__, bytearray: bytearray.__len__, int: lambda v: int.bit_length(v) // 4}
BASES = (bool, *SCALARS, dict, *TAGS)
ITERATORS = (Iterator, range, KeysView, ValuesView, ItemsView)


class TooLargeError(ValueError):
    """A value is larger or deeper than a run may send."""


class Encoder:
    """Turns values into trees until `room` bytes are used up; raises TooLargeError then, TypeError on objects.

    Equal values give equal trees: sets and dicts are sorted, so that the caller compares trees and never hashes what
    an untrusted process chose. Types must be exact, unless `loose` or `carry` is set: then an object of a class that
    derives from a plain type counts as the plain value in it, whatever its own methods say. `loose` also writes what
    Python's == calls equal alike: True, 1 and 1.0. `carry` is for values that another process will use and nobody
    compares: dicts keep their order, and iterators (ranges and views too) are run to their end and arrive as iterators.
    """

    def __init__(self, room: int = LIMIT, loose: bool = False, carry: bool = False) -> None:
        self.room, self.loose, self.carry = room, loose, carry

    def __call__(self, value: object, depth: int = 0) -> object:
        """Encode one value."""
        kind = type(value)
        if (self.loose or self.carry) and value is not None:
            kind = next((base for base in BASES if issubclass(kind, base)), kind)
        if self.loose and (kind is bool or (kind is float and float.is_integer(value))):
            value, kind = kind.__int__(value), int
        self.room -= 4 + (SIZES[kind](value) if kind in SIZES else 0)  # before any work; parts pay for themselves
        if self.room < 0 or depth > DEPTH:
            raise TooLargeError("the value is too large or too deep")
        if value is None or kind is bool:
            return value
        if kind in SCALARS:
            tree = SCALARS[kind](value)
            return ["b", tree[1]] if self.loose and kind is bytearray else tree
        if kind is dict:
            pairs = [[self(key, depth + 1), self(item, depth + 1)] for key, item in dict.items(value)]
            return ["d", pairs if self.carry else sorted(pairs, key=json.dumps)]
        if kind not in TAGS:
            if self.carry and isinstance(value, ITERATORS):
                return ["g", [self(item, depth + 1) for item in value]]
            raise TypeError(f"only plain data comes back, not {type(value).__name__}")
        items = [self(item, depth + 1) for item in kind.__iter__(value)]
        if kind in (list, tuple):
            return [TAGS[kind], items]
        return ["s" if self.loose else TAGS[kind], sorted(items, key=json.dumps)]


def encode(value: object, loose: bool = False, carry: bool = False) -> object:
    """Encode one value of up to 64 MiB that the caller or the tests made."""
    return Encoder(INPUT, loose, carry)(value)


def decode(tree: object) -> object:
    """Build the value of a tree. For guarded processes only: keys made to collide cost quadratic time."""
    if type(tree) is not list:
        return tree
    tag, body = tree
    if tag == "d":
        return {decode(key): decode(item) for key, item in body}
    if tag in KINDS:
        return KINDS[tag](map(decode, body))
    if tag == "i":
        return int(body, 16)
    return float.fromhex(body) if tag == "r" else {"b": bytes, "y": bytearray}[tag].fromhex(body)


def line(*frame: object) -> bytes:
    """Bytes of one frame: JSON and a newline."""
    return json.dumps(frame).encode() + b"\n"


def _refuse(text: str) -> None:
    raise ValueError(f"a bare number: {text[:20]}")  # the caller would take 1 for True


def frame(text: bytes) -> list:
    """Read one line from an untrusted process: a non-empty list that starts with a string, else ValueError."""
    try:
        found = json.loads(text.decode("ascii"), parse_int=_refuse, parse_float=_refuse, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("the frame is too deep") from error
    if type(found) is not list or not found or type(found[0]) is not str:
        raise ValueError("not a frame")
    return found


def frames(data: bytes) -> list[list]:
    """Frames of everything that an untrusted process wrote; at the first broken one, a failure ends the list."""
    found = []
    for text in filter(None, data.split(b"\n")):
        try:
            found.append(frame(text))
        except ValueError:
            return [*found, ["x", "garbled", ""]]
    return found
