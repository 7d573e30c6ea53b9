"""Bounded, data-only messages: tagged JSON in length-prefixed frames. Nothing here runs what it reads.

A value of builtin types becomes a tree: None, bools and strings stand for themselves, all else is [tag, body].
"""

import json
import math
import struct
from collections.abc import ItemsView, Iterator, KeysView, ValuesView

LIMIT = 1 << 20  # bytes of results that one run may send
INPUT = 1 << 26  # bytes of one frame to a child
DEPTH = 60
TAGS = {list: "l", tuple: "t", set: "s", frozenset: "f"}
KINDS = {tag: kind for kind, tag in TAGS.items()}
# Plain types without parts, and what gives their true value for an object of a derived class.
SCALARS = {
    str: lambda value: str.__getitem__(value, slice(None)),
    int: int.__int__,
    float: float.__float__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    bytearray: lambda value: bytearray.__getitem__(value, slice(None)),
}
BASES = (bool, *SCALARS, dict, *TAGS)
ITERATORS = (Iterator, range, KeysView, ValuesView, ItemsView)


class TooLargeError(ValueError):
    """A value is larger or deeper than a run may send."""


def _base(kind: type) -> type:
    """The plain type that this class is or derives from; the class itself where there is none."""
    return next((base for base in BASES if issubclass(kind, base)), kind)


class Encoder:
    """Turns values into trees until `room` bytes are used up; raises TooLargeError then, TypeError on objects.

    Equal values give equal trees: sets and dicts are sorted, so that the trainer compares trees and never hashes what
    an untrusted process chose. Types must be exact, unless `loose` or `carry` is said: then an object of a class that
    derives from a plain type counts as the plain value in it, whatever its own methods say. `loose` also writes what
    Python's == calls equal alike: True, 1 and 1.0. `carry` is for values that another process will use and nobody
    compares: dicts keep their order, and iterators (ranges and views too) are run to their end and arrive as iterators.
    """

    def __init__(self, room: int = LIMIT, loose: bool = False, carry: bool = False) -> None:
        self.room, self.loose, self.carry = room, loose, carry

    def __call__(self, value: object, depth: int = 0) -> object:
        """Encode one value."""
        exact = kind = type(value)
        if (self.loose or self.carry) and value is not None and kind not in BASES:
            kind = _base(exact)
        if self.loose and (kind is bool or (kind is float and float.is_integer(value))):
            value, kind = int.__int__(value) if kind is bool else float.__int__(value), int
        self._pay(value, kind, depth)
        if value is None or kind is bool:
            return value
        if kind in SCALARS:
            return self._scalar(SCALARS[kind](value), kind)
        if kind is dict:
            pairs = [[self(key, depth + 1), self(item, depth + 1)] for key, item in dict.items(value)]
            return ["d", pairs if self.carry else sorted(pairs, key=json.dumps)]
        if self.carry and kind not in TAGS and isinstance(value, ITERATORS):
            return ["g", [self(item, depth + 1) for item in value]]
        if kind not in TAGS:
            raise TypeError(f"only plain data comes back, not {exact.__name__}")
        items = [self(item, depth + 1) for item in kind.__iter__(value)]
        ordered = kind in (list, tuple)
        return [TAGS[kind if ordered or not self.loose else set], items if ordered else sorted(items, key=json.dumps)]

    def _pay(self, value: object, kind: type, depth: int) -> None:
        """Take room for a value before any work on it; raises TooLargeError where too little is left."""
        least = 0
        if kind in (str, bytes, bytearray):
            self.room -= kind.__len__(value)
        elif kind is int:
            self.room -= int.bit_length(value) // 4
        elif kind is dict or kind in TAGS:
            least = 4 * kind.__len__(value)
        self.room -= 4
        if self.room < least or depth > DEPTH:
            raise TooLargeError("the value is too large or too deep")

    def _scalar(self, value: object, kind: type) -> object:
        if kind is str:
            return value
        if kind is int:
            return ["i", hex(value)]
        tag = "r" if kind is float else "y" if kind is bytearray and not self.loose else "b"
        return [tag, (value or kind()).hex()]


def encode(value: object, loose: bool = False, carry: bool = False) -> object:
    """Encode one value of up to 64 MiB that the trainer or the tests made."""
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
    if tag == "g":
        return iter([decode(item) for item in body])
    if tag == "y":
        return bytearray.fromhex(body)
    return int(body, 16) if tag == "i" else float.fromhex(body) if tag == "r" else bytes.fromhex(body)


def near(a: object, b: object, tolerance: float) -> bool:
    """Whether tree `b`, from anywhere, equals `a`; numbers, one a float, up to `tolerance`, absolute or relative."""
    if a == b or not tolerance or type(a) is not list or type(b) is not list or not len(b) == 2:
        return a == b
    (kind, x), (other, y) = a, b
    if kind in ("i", "r") and other in ("i", "r") and "r" in (kind, other):
        try:
            return math.isclose(decode(a), decode(b), rel_tol=tolerance, abs_tol=tolerance)
        except (ValueError, TypeError, OverflowError):
            return False
    if kind != other or type(x) is not list or type(y) is not list or len(x) != len(y):
        return False
    if kind == "d":  # pairs line up: the keys are sorted
        return all(near(["l", pair], ["l", found], tolerance) for pair, found in zip(x, y, strict=True))
    return all(near(item, found, tolerance) for item, found in zip(x, y, strict=True))


def pack(frame: list) -> bytes:
    """Bytes of one frame: four bytes of length, then JSON."""
    data = json.dumps(frame).encode()
    return struct.pack(">I", len(data)) + data


def _refuse(text: str) -> None:
    raise ValueError(f"a bare number: {text[:20]}")


class Frames:
    """Cuts a byte stream from an untrusted process into frames; ValueError on anything that is not one."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self.buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[list]:
        """Add bytes and yield the frames now complete. Each is a non-empty list that starts with a string."""
        self.buffer += data
        while len(self.buffer) >= 4:
            (size,) = struct.unpack(">I", self.buffer[:4])
            if size > self.limit:
                raise ValueError("the frame is too large")
            if len(self.buffer) < 4 + size:
                break
            text = self.buffer[4 : 4 + size].decode("ascii")
            del self.buffer[: 4 + size]
            try:
                frame = json.loads(text, parse_int=_refuse, parse_float=_refuse, parse_constant=_refuse)
            except RecursionError as error:
                raise ValueError("the frame is too deep") from error
            if type(frame) is not list or not frame or type(frame[0]) is not str:
                raise ValueError("not a frame")
            yield frame
