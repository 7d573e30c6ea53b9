"""Bounded messages that carry data only: frames of tagged JSON, one a line.

A value of builtin types becomes a tree: None, bools and strings stand for themselves, every other
value is [tag, body]. Nothing in this module executes what it reads.
"""

import json
from collections.abc import ItemsView, Iterable, Iterator, KeysView, ValuesView

MAX_RESULT_BYTES = 1 << 20  # of all frames that one process may send back
MAX_INPUT_BYTES = 1 << 26  # of one value that the caller or the tests may send
MAX_DEPTH = 60
TAGS = {list: "l", tuple: "t", set: "s", frozenset: "f"}
ITERATOR_TAG = "g"
DICT_TAG = "d"
INT_TAG = "i"
FLOAT_TAG = "r"
BYTES_TAG = "b"
BYTEARRAY_TAG = "y"


def _int_tree(value: int) -> list:
    return [INT_TAG, hex(int.__int__(value))]


def _float_tree(value: float) -> list:
    zero_without_sign = float.__add__(value, 0.0)  # -0.0 becomes 0.0, which is equal
    return [FLOAT_TAG, float.hex(zero_without_sign)]


def _bytes_tree(value: bytes) -> list:
    return [BYTES_TAG, bytes.hex(value)]


def _bytearray_tree(value: bytearray) -> list:
    return [BYTEARRAY_TAG, bytearray.hex(value)]


def _int_size(value: int) -> int:
    return int.bit_length(value) // 4


def _iterator(parts: Iterable) -> Iterator:
    return iter(list(parts))


# Trees of the plain types without parts, and their sizes in bytes. All of them call the methods
# of the plain type itself, so that a derived class cannot lie about its content.
SCALARS = {
    str: str.__str__,
    int: _int_tree,
    float: _float_tree,
    bytes: _bytes_tree,
    bytearray: _bytearray_tree,
}
SIZES = {
    str: str.__len__,
    bytes: bytes.__len__,
    bytearray: bytearray.__len__,
    int: _int_size,
}
PLAIN_TYPES = (bool, *SCALARS, dict, *TAGS)
ITERATORS = (Iterator, range, KeysView, ValuesView, ItemsView)
BUILDERS = {tag: kind for kind, tag in TAGS.items()} | {ITERATOR_TAG: _iterator}


class TooLargeError(ValueError):
    """A value is larger or deeper than a message may carry."""


class Encoder:
    """Turn values into trees until `room` bytes are used up.

    Equal values give equal trees: sets and dicts are sorted, so the caller compares trees and
    never hashes what an untrusted process chose. Types must be exact unless `loose` or `carry` is
    set; an object of a class that derives from a plain type then counts as the plain value in it,
    whatever its own methods say.

    `loose` also gives one tree to values that Python's == calls equal: True, 1 and 1.0. `carry` is
    for values that another process uses and no comparison sees: dicts keep their order, and
    iterators (ranges and views too) are run to their end and arrive as iterators.

    Raises TooLargeError when the room is used up or a value is too deep, TypeError on objects.
    """

    def __init__(
        self, room: int = MAX_RESULT_BYTES, loose: bool = False, carry: bool = False
    ) -> None:
        self.room = room
        self.loose = loose
        self.carry = carry

    def __call__(self, value: object, depth: int = 0) -> object:
        """Encode one value, which stands `depth` levels deep in another."""
        kind = self._plain_type(value)
        if self.loose and (kind is bool or (kind is float and float.is_integer(value))):
            value, kind = kind.__int__(value), int
        self._charge(value, kind, depth)
        if value is None or kind is bool:
            return value
        if kind in SCALARS:
            return self._scalar(value, kind)
        if kind is dict:
            pairs = []
            for key, item in dict.items(value):
                pairs.append([self(key, depth + 1), self(item, depth + 1)])
            return [DICT_TAG, pairs if self.carry else sorted(pairs, key=json.dumps)]
        if kind not in TAGS:
            if self.carry and isinstance(value, ITERATORS):
                return [ITERATOR_TAG, [self(item, depth + 1) for item in value]]
            raise TypeError(f"only plain data comes back, not {type(value).__name__}")
        items = [self(item, depth + 1) for item in kind.__iter__(value)]
        if kind in (list, tuple):
            return [TAGS[kind], items]
        tag = TAGS[set] if self.loose else TAGS[kind]
        return [tag, sorted(items, key=json.dumps)]

    def _plain_type(self, value: object) -> type:
        """Return the type that a value counts as: its own, or the plain type it derives from."""
        kind = type(value)
        if value is None or not (self.loose or self.carry):
            return kind
        return next((plain for plain in PLAIN_TYPES if issubclass(kind, plain)), kind)

    def _charge(self, value: object, kind: type, depth: int) -> None:
        """Take a value's own bytes off the room before any work; its parts are charged later."""
        size = SIZES[kind](value) if kind in SIZES else 0
        self.room -= 4 + size
        if self.room < 0 or depth > MAX_DEPTH:
            raise TooLargeError("the value is too large or too deep")

    def _scalar(self, value: object, kind: type) -> object:
        tree = SCALARS[kind](value)
        if self.loose and kind is bytearray:  # equal to bytes of the same content
            return [BYTES_TAG, tree[1]]
        return tree


def encode(value: object, loose: bool = False, carry: bool = False) -> object:
    """Encode one value of at most 64 MiB that the caller or the tests made."""
    return Encoder(MAX_INPUT_BYTES, loose, carry)(value)


def decode(tree: object) -> object:
    """Build the value of a tree.

    For guarded processes only: keys chosen to collide in a hash table cost quadratic time.
    """
    if type(tree) is not list:
        return tree
    tag, body = tree
    if tag == DICT_TAG:
        return {decode(key): decode(item) for key, item in body}
    if tag in BUILDERS:
        return BUILDERS[tag](map(decode, body))
    if tag == INT_TAG:
        return int(body, 16)
    if tag == FLOAT_TAG:
        return float.fromhex(body)
    return {BYTES_TAG: bytes, BYTEARRAY_TAG: bytearray}[tag].fromhex(body)


def encode_frame(*frame: object) -> bytes:
    """Return the bytes of one frame: JSON and a newline."""
    return json.dumps(frame).encode() + b"\n"


def _refuse_number(text: str) -> None:
    # Numbers travel as tagged text. A bare 1 would be equal to True when the caller compares.
    raise ValueError(f"a bare number: {text[:20]}")


def decode_frame(line: bytes) -> list:
    """Read one line from an untrusted process: a non-empty list that starts with a string.

    Raises ValueError for every other line.
    """
    try:
        frame = json.loads(
            line.decode("ascii"),
            parse_int=_refuse_number,
            parse_float=_refuse_number,
            parse_constant=_refuse_number,
        )
    except RecursionError as error:
        raise ValueError("the frame is too deep") from error
    if type(frame) is not list or not frame or type(frame[0]) is not str:
        raise ValueError("not a frame")
    return frame


def decode_frames(data: bytes) -> list[list]:
    """Read all that an untrusted process wrote; the first broken frame ends it as a failure."""
    frames = []
    for line in filter(None, data.split(b"\n")):
        try:
            frames.append(decode_frame(line))
        except ValueError:
            frames.append(["x", "garbled", ""])
            break
    return frames
