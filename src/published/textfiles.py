"""Text files as documents: an index of byte offsets made once, and draws that read only what they return.

The index is memory-mapped and kept in the user's cache, so a draw costs the same whatever the number of documents.
Knows no tokens: limits are in bytes of UTF-8.
"""

import hashlib
import json
import os
import re
import warnings
from array import array
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from random import Random

import numpy as np

SUFFIXES = (".txt", ".text", ".md", ".rst", ".tex", ".jsonl")
BOM = BOM_UTF8.decode()
PLACES = 20  # drawn in a long text that may be blank there
TEXT_FIELDS = ("text", "content", "document", "passage", "raw_content")  # of a JSON line or a data set's row


class FileCorpus:
    """A folder of text files (one document each) and JSON lines (one a line), or one such file.

    A document longer than `limit` bytes of UTF-8 is cut to a segment at a random place; a line's is in the first of
    `fields` that holds text. Raises ValueError when nothing is readable, or a file's lines have none of these fields.
    """

    def __init__(self, root: str | Path, limit: int, fields: Sequence[str] = TEXT_FIELDS):
        self.root, self.limit, self.fields = Path(root), limit, fields
        self.files = _text_files(self.root)
        self.rows, self.unreadable = _index(self.root, self.files, fields)
        if not len(self.rows):
            kinds = f"{', '.join(SUFFIXES)} in UTF-8"
            raise ValueError(f"corpus {str(root)!r} holds no readable document ({kinds}; {self.unreadable} unreadable)")
        if self.unreadable:
            warnings.warn(
                f"corpus {str(root)!r}: {self.unreadable} files or lines are left out, which are not UTF-8 "
                f"or have no text in {', '.join(fields)}",
                stacklevel=2,
            )

    def __len__(self) -> int:
        return len(self.rows)

    def sample(self, rng: Random) -> str:
        """Draw a document; only its own bytes are read, and of a long text only the segment's."""
        file, start, size = map(int, self.rows[rng.randrange(len(self.rows))])
        path, line = self.files[file], None
        if path.suffix.lower() == ".jsonl":
            line = _text_of(_row(_read(path, start, size)), self.fields).encode(errors="replace")  # half pairs
            size = len(line)
        for _ in range(PLACES):
            first = _place(size, self.limit, rng)
            last = min(size, first + self.limit)
            raw = _read(path, first, last - first) if line is None else line[first:last]
            if text := _whole_words(raw, first > 0, last < size):
                return text
        with path.open("rb") if line is None else BytesIO(line) as lines:  # a text that is blank nearly everywhere
            raw = next(its.strip() for its in lines if its.removeprefix(BOM_UTF8).strip())
            return _whole_words(raw[: self.limit], False, len(raw) > self.limit)


class Lacking(ValueError):
    """Rows in which no field is known to hold the text."""


def lacking(source: str, found: Iterable[str], fields: Sequence[str]) -> Lacking:
    """The error of rows with these fields, in one line."""
    return Lacking(
        f"corpus {source!r} has no text in {', '.join(fields)}; its fields are {sorted(found)}: "
        "name the one to read after a #, as in corpus=SOURCE#FIELD"
    )


def _text_files(root: Path) -> list[Path]:
    """The text files below a folder in a fixed order, links followed, hidden ones left out; or the one file."""
    if root.is_file():
        return [root] if root.suffix.lower() in SUFFIXES else []
    found, seen = [], set()
    for folder, below, names in os.walk(root, followlinks=True):
        place = os.path.realpath(folder)
        if place in seen:  # a link to a folder that was read, perhaps to one around it
            below[:] = []
            continue
        seen.add(place)
        below[:] = sorted(name for name in below if not name.startswith("."))
        found += [Path(folder, name) for name in sorted(names) if not name.startswith(".")]
    return [path for path in found if path.suffix.lower() in SUFFIXES]


def cache_folder() -> Path:
    """Where indices and streamed data sets are kept: XDG_CACHE_HOME, else ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path(os.path.expanduser("~"), ".cache"), "coevolve", "corpora")


def _index(root: Path, files: Sequence[Path], fields: Sequence[str]) -> tuple[np.ndarray, int]:
    """Return rows of (file, start, bytes), memory-mapped, and how many files and lines are unreadable."""
    key = hashlib.sha256("\n".join([str(root.resolve()), *fields]).encode(errors="surrogateescape"))
    for path in files:
        at = path.stat() if path.exists() else os.stat_result([0] * 10)  # a link to nowhere: unreadable
        key.update(f"\n{path.relative_to(root)} {at.st_size} {at.st_mtime_ns}".encode(errors="surrogateescape"))
    place = cache_folder() / f"index-{key.hexdigest()[:32]}.npy"
    if place.is_file() or _kept(place, rows := _scan(files, fields)):
        rows = np.load(place, mmap_mode="r", allow_pickle=False)
    return rows[1:], int(rows[0, 0])


def _kept(place: Path, rows: np.ndarray) -> bool:
    """Write an index whole or not at all; False where the cache cannot be written."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = place.with_name(f".{place.stem}-{os.getpid()}.npy")
        np.save(temporary, rows)
        os.replace(temporary, place)
    except OSError:
        return False
    return True


def _scan(files: Sequence[Path], fields: Sequence[str]) -> np.ndarray:
    """Read every file once: a first row with the number of unreadable texts, then a row per document."""
    rows, unreadable, lacked = array("q"), 0, None
    for number, path in enumerate(files):
        try:
            for start, size in _spans(path, fields):
                if size:
                    rows.extend((number, start, size))
                else:
                    unreadable += 1
        except (OSError, UnicodeDecodeError):
            unreadable += 1
        except Lacking as error:  # its lines are counted
            lacked = error
    if lacked and not rows:
        raise lacked
    return np.concatenate([[[unreadable, 0, 0]], np.frombuffer(rows, dtype=np.int64).reshape(-1, 3)])


def _spans(path: Path, fields: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield (start, bytes) of each document of a file; no bytes for a line or a file without text."""
    if path.suffix.lower() != ".jsonl":
        filled = False
        with path.open(encoding="utf-8") as file:  # strict: raises on anything that is not UTF-8
            while text := file.read(2**20):
                if "\0" in text:  # not text, whatever its name says
                    filled = False
                    break
                filled = filled or bool(text.replace(BOM, "").strip())
        yield 0, path.stat().st_size if filled else 0
        return
    start, found = 0, set()
    with path.open("rb") as file:
        for line in file:
            if line.strip():
                row = _row(line)
                found |= row.keys()
                yield start, len(line) if _text_of(row, fields) else 0
            start += len(line)
    if found and found.isdisjoint(fields):
        raise lacking(str(path), found, fields)


def _row(line: bytes) -> dict:
    """The object of a JSON line; empty when it holds none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def _text_of(row: dict, fields: Sequence[str]) -> str | None:
    texts = map(row.get, fields)
    return next((text for text in texts if isinstance(text, str) and text.strip()), None)


def _read(path: Path, start: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(size)


def _place(size: int, limit: int, rng: Random) -> int:
    """Where a segment of at most `limit` of `size` bytes begins."""
    return rng.randrange(size - limit + 1) if size > limit else 0


def _whole_words(raw: bytes, cut_before: bool, cut_after: bool) -> str:
    """Decode a segment, without the words (or halves of characters) that its ends cut through.

    Where that would cost more than half of it (languages without blanks, long links), words are cut instead.
    """
    text = raw.decode("utf-8", "ignore").removeprefix(BOM)
    if cut_before and (found := re.search(r"\s", text)) and found.start() <= len(text) / 2:
        text = text[found.start() :]
    if cut_after and (found := re.search(r"\s\S*\Z", text)) and found.start() >= len(text) / 2:
        text = text[: found.start()]
    return text.strip()
