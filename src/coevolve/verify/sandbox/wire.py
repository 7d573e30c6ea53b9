"""Bounded, data-only messages: tagged JSON in length-prefixed frames. Nothing here runs what it reads.

A value of exact builtin types becomes a tree: None, bools and strings stand for themselves, all else is [tag, body].
"""

import json
import math
import struct
from collections.abc import Iterator

LIMIT = 1 << 20  # bytes of results that one run may send
INPUT = 1 << 26  # bytes of one frame to a child
DEPTH = 60
TAGS = {list: "l", tuple: "t", set: "s", frozenset: "f"}
KINDS = {tag: kind for kind, tag in TAGS.items()}


class TooLargeError(ValueError):
    """A value is larger or deeper than a run may send."""


class Encoder:
    """Turns values into trees until `room` bytes are used up; raises TooLargeError then, TypeError on objects.

    Equal values give equal trees: sets and dicts are sorted, so that the trainer compares trees and never hashes what
    an untrusted process chose. `loose` writes what Python's == calls equal alike: True, 1 and 1.0.
    """

    def __init__(self, room: int = LIMIT, loose: bool = False) -> None:
        self.room, self.loose = room, loose

    def __call__(self, value: object, depth: int = 0) -> object:
        """Encode one value."""
        kind = type(value)
        if self.loose and (kind is bool or (kind is float and value.is_integer())):
            value, kind = int(value), int
        self.room -= 4 + (len(value) if kind in (str, bytes) else value.bit_length() // 4 if kind is int else 0)
        least = 4 * len(value) if kind in TAGS or kind is dict else 0  # said before the work on it
        if self.room < least or depth > DEPTH:
            raise TooLargeError("the value is too large or too deep")
        if value is None or kind in (bool, str):
            return value
        if kind in (int, float, bytes):
            return ["i", hex(value)] if kind is int else ["r" if kind is float else "b", (value or kind()).hex()]
        if kind is dict:
            pairs = [[self(key, depth + 1), self(item, depth + 1)] for key, item in value.items()]
            return ["d", sorted(pairs, key=json.dumps)]
        if kind not in TAGS:
            raise TypeError(f"only plain data comes back, not {kind.__name__}")
        items = [self(item, depth + 1) for item in value]
        ordered = kind in (list, tuple)
        return [TAGS[kind if ordered or not self.loose else set], items if ordered else sorted(items, key=json.dumps)]


def encode(value: object, loose: bool = False) -> object:
    """Encode one value that the trainer itself made, of up to 64 MiB."""
    return Encoder(INPUT, loose)(value)


def decode(tree: object) -> object:
    """Build the value of a tree. For guarded processes only: keys made to collide cost quadratic time."""
    if type(tree) is not list:
        return tree
    tag, body = tree
    if tag == "d":
        return {decode(key): decode(item) for key, item in body}
    if tag in KINDS:
        return KINDS[tag](map(decode, body))
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
