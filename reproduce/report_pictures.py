"""The size of a picture; a page that names it does not move its text when the picture loads."""

import re
import struct
from dataclasses import dataclass
from pathlib import Path

PNG_START = b"\x89PNG\r\n\x1a\n"
PNG_HEADER = struct.Struct(">8s8xII")  # the start, a chunk's head, width, height
SVG_TAG = re.compile(r"<svg\b[^>]*>")
SVG_LENGTH = r'\s{}="([\d.]+)(px|pt)?"'
PIXELS = {"pt": 96 / 72, "px": 1.0, None: 1.0}  # of a unit of length, in CSS


@dataclass(frozen=True)
class Size:
    """Width and height in CSS pixels."""

    width: int
    height: int


def size_of(file: Path) -> Size | None:
    """Return the size at which a browser shows a PNG or SVG file; None if it names none."""
    if file.suffix == ".png":
        return _size_of_png(file)
    tag = SVG_TAG.search(file.read_text("utf-8"))
    if tag is None:
        return None
    sides = []
    for name in ("width", "height"):
        length = re.search(SVG_LENGTH.format(name), tag[0])
        if length is None:
            return None
        sides.append(float(length[1]) * PIXELS[length[2]])
    width, height = sides
    return Size(round(width), round(height))


def _size_of_png(file: Path) -> Size | None:
    with file.open("rb") as picture:
        header = picture.read(PNG_HEADER.size)
    if len(header) < PNG_HEADER.size:
        return None
    start, width, height = PNG_HEADER.unpack(header)
    return Size(width, height) if start == PNG_START else None
