"""Documents for SPICE: the tiny world's own, text files, and data sets of the hub.

`datasets` writes the texts of files and of the hub to its cache once and maps them into memory: a draw costs the same
whatever the number and the length of documents. Knows no roles and no tokens; limits are in bytes of UTF-8.
"""

import hashlib
import json
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from os import PathLike, fspath
from pathlib import Path
from random import Random
from typing import Any

HUB = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+)?")  # owner/name, or owner/name:configuration
SUFFIXES = (".txt", ".text", ".md", ".rst", ".tex", ".jsonl")
FIELDS = ("text", "content", "document", "passage", "raw_content")  # of a JSON line or a data set's row
SHUFFLE = 10_000  # rows that a streamed data set is shuffled through
Rows = Callable[[], Iterator[dict[str, Any]]]


class Mixture:
    """Several corpora in equal parts (Appendix 8: half mathematics, half general), whatever their sizes."""

    def __init__(self, parts: Sequence[Any]):
        self.parts = parts

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def sample(self, rng: Random) -> str:
        """Draw a corpus, then a document of it."""
        return rng.choice(self.parts).sample(rng)


class TextCorpus:
    """The texts in `fields` of rows, which are read on first use into the cache of `datasets` (HF_DATASETS_CACHE).

    A text longer than `limit` bytes of UTF-8 is cut to a segment at a random place. `version` says which rows they are:
    the same ones are not read again. Raises ValueError, on first use, when no row holds a text.
    """

    def __init__(self, name: str, rows: Rows, version: object, fields: Sequence[str], limit: int):
        self.name, self.rows, self.fields, self.limit = name, rows, fields, limit
        self.version = hashlib.sha256(repr((name, fields, version)).encode(errors="surrogateescape")).hexdigest()[:32]

    def _read(self) -> Iterator[dict[str, str]]:
        """Every text, and at last the number of rows without one; half a surrogate pair becomes a question mark."""
        columns: set[str] = set()
        filled: Counter[bool] = Counter()
        for row in self.rows():
            columns.update(row)
            texts = [row[field].removeprefix("\ufeff") for field in self.fields if isinstance(row.get(field), str)]
            text = next(filter(str.strip, texts), "")
            filled[bool(text)] += 1
            if text:
                yield {"text": text.encode(errors="replace").decode()}
        if not filled[True]:
            raise ValueError(
                f"corpus {self.name!r} holds no text: files are {', '.join(SUFFIXES)} in UTF-8; JSON lines and rows "
                f"have it in {', '.join(self.fields)} (here are {sorted(columns)}), "
                "or in the FIELD of corpus=SOURCE#FIELD"
            )
        yield {"text": str(filled[False])}

    @cached_property
    def texts(self) -> Any:
        """All texts and the number that `_read` ends with, mapped into memory."""
        from datasets import Dataset, Features, Value
        from datasets.exceptions import DatasetGenerationError

        features = Features({"text": Value("large_string")})
        try:
            found = Dataset.from_generator(self._read, features, fingerprint=f"coevolve-{self.version}")
        except DatasetGenerationError as error:
            raise (error.__cause__ or error) from None
        texts = found.data.column("text")
        if (lost := texts[-1].as_py()) != "0":
            why = f"which are not {', '.join(SUFFIXES)}, not UTF-8, or have no text in {', '.join(self.fields)}"
            warnings.warn(f"corpus {self.name!r}: {lost} files or lines are left out, {why}", stacklevel=1)
        return texts

    @property
    def unreadable(self) -> int:
        """How many files, lines or rows are left out."""
        return int(self.texts[-1].as_py())

    def __len__(self) -> int:
        return len(self.texts) - 1

    def sample(self, rng: Random) -> str:
        """Draw a document; of a long text only the segment's bytes are read."""
        text = self.texts[rng.randrange(len(self))].as_buffer()
        first = rng.randrange(text.size - self.limit + 1) if text.size > self.limit else 0
        last = min(text.size, first + self.limit)
        if found := _whole_words(bytes(text[first:last]), first > 0, last < text.size):
            return found
        whole = text.to_pybytes().decode().strip().encode()  # blank there: the text's beginning
        return _whole_words(whole[: self.limit], False, len(whole) > self.limit)


def _whole_words(raw: bytes, cut_before: bool, cut_after: bool) -> str:
    """Decode a segment, without the words (or halves of characters) that its ends cut through.

    Where that would cost more than half of it (languages without blanks, long links), words are cut instead.
    """
    text = raw.decode("utf-8", "ignore")
    if cut_before and (found := re.search(r"\s", text)) and found.start() <= len(text) / 2:
        text = text[found.start() :]
    if cut_after and (found := re.search(r"\s\S*\Z", text)) and found.start() >= len(text) / 2:
        text = text[: found.start()]
    return text.strip()


def find(source: str | PathLike | Sequence[str | PathLike], size: int = 20_000, limit: int = 17_976) -> Any:
    """Return the corpus that `source` names; several names are mixed in equal parts, "none" gives None.

    A corpus has a length, and `sample(rng)`, which draws a document uniformly and cuts it to its limit; one of files or
    rows counts in `unreadable` those without a text that it can read.

    A name is math, general or both (the tiny world), a folder or file of text, or a data set of the hub; "#FIELD" at
    its end says which field of a JSON line or a data set's row is the text (otherwise the first of FIELDS is).
    `size` is how many documents the tiny world and data sets have in all, `limit` the most bytes of one.
    Raises ValueError, in one line, for anything else and when files hold no text; warns of texts that are left out.
    """
    from tinyworld import documents

    names = [fspath(one) for one in ([source] if isinstance(source, str | PathLike) else source)]
    if names == ["none"]:  # the ablation of Figure 4(b)
        return None
    parts: list[Any] = []
    for name in names:
        share = max(1, size // len(names))
        halves = documents.corpus(name, share) if name in documents.HALVES else [_texts(name, share, limit)]
        parts.append(halves[0] if len(halves) == 1 else Mixture(halves))
    if not parts:
        raise ValueError("corpus must name at least one source of documents, got none")
    return parts[0] if len(parts) == 1 else Mixture(parts)


def _texts(name: str, size: int, limit: int) -> TextCorpus:
    """The corpus of a folder, a file or a data set of the hub."""
    source, _, field = (name, "", "") if Path(name).expanduser().exists() else name.partition("#")
    path, fields = Path(source).expanduser(), (field,) if field else FIELDS
    if source and path.exists():
        files = _files(path)
        version = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        made = TextCorpus(str(path), partial(_rows_of_files, files, fields[0]), version, fields, limit)
        len(made)  # so that faults are said here
        return made
    if HUB.fullmatch(source):
        return TextCorpus(source, partial(_rows_of_hub, source, size, fields), size, fields, limit)
    allowed = "one of math, general, both, none, a folder or file of text, or owner/name of the hub"
    raise ValueError(f"corpus must be {allowed}, got {name!r}")


def _files(root: Path) -> list[Path]:
    """The files below a folder in a fixed order, links followed, hidden ones left out; or the one file."""
    found, seen = [root] if root.is_file() else [], set()
    for folder, below, names in os.walk(root, followlinks=True):
        place = os.path.realpath(folder)
        if place in seen:  # a link to a folder that was read, perhaps to one around it
            names, below[:] = [], []
        seen.add(place)
        below[:] = sorted(name for name in below if not name.startswith("."))
        found += [Path(folder, name) for name in sorted(names) if not name.startswith(".")]
    return [path for path in found if path.exists()]


def _rows_of_files(files: Sequence[Path], field: str) -> Iterator[dict[str, Any]]:
    """A row for every file and, of JSON lines, for every filled line; empty for what is no text or cannot be read."""
    for path in files:
        try:
            if path.suffix.lower() == ".jsonl":
                with path.open("rb") as file:
                    yield from (_object(line) for line in file if line.strip())
            elif path.suffix.lower() in SUFFIXES:
                text = path.read_bytes().decode()
                yield {} if "\0" in text else {field: text}
            else:
                yield {}  # counted: nobody reads a PDF here, and whoever has some should know
        except (OSError, UnicodeDecodeError):
            yield {}


def _object(line: bytes) -> dict[str, Any]:
    """The object of a JSON line; empty when it holds none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def _rows_of_hub(name: str, size: int, fields: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The first rows of the train split, streamed and shuffled; only one when rows have none of the fields."""
    from datasets import load_dataset

    owner_name, _, configuration = name.partition(":")
    try:
        rows = load_dataset(owner_name, configuration or None, split="train", streaming=True)
    except (OSError, ValueError) as error:
        reason = (str(error).splitlines() or ["no reason given"])[0]
        raise ValueError(f"corpus {name!r} is no folder here, and the hub does not give it: {reason}") from None
    first = next(iter(rows.take(1)), {})
    yield from rows.shuffle(seed=0, buffer_size=SHUFFLE).take(size) if {*fields} & {*first} else [first]
