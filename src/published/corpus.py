"""Documents for SPICE: the tiny world's procedural ones, text files, and data sets of the hub.

Texts of files and of the hub are written once to the cache of `datasets` and mapped into memory, so
the cost of a draw does not depend on the number or the length of documents. All limits are in bytes
of UTF-8. The module knows no roles and no tokens.
"""

import hashlib
import json
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from os import PathLike, fspath
from pathlib import Path
from random import Random
from typing import Any

from coevolve.validation import expand_home

# owner/name or owner/name:configuration.
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+)?")
SUFFIXES = (".txt", ".text", ".md", ".rst", ".tex", ".jsonl")
# Fields that may hold the text of a row, in order of precedence.
FIELDS = ("text", "content", "document", "passage", "raw_content")
SHUFFLE_BUFFER = 10_000  # rows of a streamed data set
BYTE_ORDER_MARK = "\ufeff"
ReadRows = Callable[[], Iterator[dict[str, Any]]]


class Mixture:
    """Several corpora in equal parts, whatever their sizes.

    Appendix 8 mixes mathematical and general documents half and half.
    """

    def __init__(self, parts: Sequence[Any]):
        self.parts = parts

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def sample(self, rng: Random) -> str:
        """Draw a corpus, then one of its documents."""
        part = rng.choice(self.parts)
        document: str = part.sample(rng)
        return document


class TextCorpus:
    """Texts of rows, drawn uniformly and cut to `limit` bytes of UTF-8 at a random place.

    The text of a row is the first of its `fields` that is not blank. Rows are read on first use
    into the cache of `datasets` (HF_DATASETS_CACHE). `version` identifies the rows: a version that
    is in the cache is not read again. Raises ValueError on first use when no row holds a text.
    """

    def __init__(
        self,
        name: str,
        rows: ReadRows,
        version: object,
        fields: Sequence[str],
        limit: int,
    ):
        self.name = name
        self.rows = rows
        self.fields = fields
        self.limit = limit
        identity = repr((name, fields, version)).encode(errors="surrogateescape")
        self.version = hashlib.sha256(identity).hexdigest()[:32]

    def _read(self) -> Iterator[dict[str, str]]:
        """Yield every text, and finally the number of rows without one.

        Lone surrogates become question marks, because UTF-8 cannot encode them.
        """
        columns: set[str] = set()
        text_count = 0
        unreadable_count = 0
        for row in self.rows():
            columns.update(row)
            text = self._text_of(row)
            if text:
                text_count += 1
                yield {"text": text.encode(errors="replace").decode()}
            else:
                unreadable_count += 1
        if text_count == 0:
            raise ValueError(
                f"corpus {self.name!r} holds no text: "
                f"files must be {', '.join(SUFFIXES)} in UTF-8; "
                f"JSON lines and rows must have it in {', '.join(self.fields)} "
                f"(got {sorted(columns)}), or in the FIELD of corpus=SOURCE#FIELD"
            )
        yield {"text": str(unreadable_count)}

    def _text_of(self, row: Mapping[str, Any]) -> str:
        """Return the first text of a row that is not blank, or "" if there is none."""
        for field in self.fields:
            value = row.get(field)
            if isinstance(value, str):
                text = value.removeprefix(BYTE_ORDER_MARK)
                if text.strip():
                    return text
        return ""

    @cached_property
    def texts(self) -> Any:
        """All texts and the number that `_read` ends with, mapped into memory."""
        from datasets import Dataset, Features, Value
        from datasets.exceptions import DatasetGenerationError

        features = Features({"text": Value("large_string")})
        fingerprint = f"coevolve-{self.version}"
        try:
            dataset = Dataset.from_generator(
                self._read, features, fingerprint=fingerprint
            )
        except DatasetGenerationError as error:
            raise (error.__cause__ or error) from None
        texts = dataset.data.column("text")
        unreadable = texts[-1].as_py()
        if unreadable != "0":
            warnings.warn(
                f"corpus {self.name!r}: {unreadable} files or lines are left out "
                f"because they are not {', '.join(SUFFIXES)}, are not UTF-8, "
                f"or have no text in {', '.join(self.fields)}",
                stacklevel=1,
            )
        return texts

    @property
    def unreadable(self) -> int:
        """The number of files, lines or rows that are left out."""
        return int(self.texts[-1].as_py())

    def __len__(self) -> int:
        return len(self.texts) - 1

    def sample(self, rng: Random) -> str:
        """Draw a document; of a long text only the bytes of the segment are read."""
        index = rng.randrange(len(self))
        buffer = self.texts[index].as_buffer()
        start = 0
        if buffer.size > self.limit:
            start = rng.randrange(buffer.size - self.limit + 1)
        end = min(buffer.size, start + self.limit)
        segment = _whole_words(bytes(buffer[start:end]), start > 0, end < buffer.size)
        if segment:
            return segment
        # The segment is blank: return the beginning of the text instead.
        stripped = buffer.to_pybytes().decode().strip().encode()
        return _whole_words(stripped[: self.limit], False, len(stripped) > self.limit)


def _whole_words(segment: bytes, cut_before: bool, cut_after: bool) -> str:
    """Decode a segment, without the words and characters that were cut at its ends.

    A cut word stays if dropping it would cost more than half of the segment, as in languages
    without spaces and in long links.
    """
    text = segment.decode("utf-8", "ignore")
    if cut_before:
        first_space = re.search(r"\s", text)
        if first_space and first_space.start() <= len(text) / 2:
            text = text[first_space.start() :]
    if cut_after:
        last_space = re.search(r"\s\S*\Z", text)
        if last_space and last_space.start() >= len(text) / 2:
            text = text[: last_space.start()]
    return text.strip()


def find(
    source: str | PathLike | Sequence[str | PathLike],
    size: int = 20_000,
    limit: int = 17_976,
) -> Any:
    """Return the corpus that `source` names, or None for "none".

    A name is math, general or both (the tiny world), a folder or file of text, or a data set of the
    hub. A "#FIELD" at its end names the field that holds the text in JSON lines and in rows of data
    sets (default: the first of FIELDS that does). Several names are mixed in equal parts. `size`
    is the total number of documents of the tiny world and of data sets, `limit` the maximum number
    of bytes of a document.

    A corpus has a length and a method `sample(rng)`, which draws a document uniformly and cuts it
    to the limit. A corpus of files or rows counts those without readable text in `unreadable`,
    and warns about them. Raises ValueError for any other name and when files hold no text.
    """
    sources = [source] if isinstance(source, str | PathLike) else source
    names = [fspath(entry) for entry in sources]
    if names == ["none"]:  # the ablation of Figure 4(b)
        return None
    if not names:
        raise ValueError("corpus must name at least one source of documents, got none")
    size_per_name = max(1, size // len(names))
    return _mixed([_corpus(name, size_per_name, limit) for name in names])


def _mixed(parts: Sequence[Any]) -> Any:
    """Return the mixture of several corpora; a single corpus needs none."""
    return parts[0] if len(parts) == 1 else Mixture(parts)


def _corpus(name: str, size: int, limit: int) -> Any:
    """Return the corpus of one name: of the tiny world, of files, or of the hub."""
    from tinyworld import documents

    name = expand_home(name)
    if name in documents.HALVES:
        return _mixed(documents.corpus(name, size))
    source = name
    field = ""
    if not Path(name).exists():
        source, _, field = name.partition("#")
    fields = (field,) if field else FIELDS
    path = Path(source)
    if source and path.exists():
        return _file_corpus(path, fields, limit)
    if HUB_NAME.fullmatch(source):
        rows = partial(_rows_of_hub, source, size, fields)
        return TextCorpus(source, rows, size, fields, limit)
    raise ValueError(
        "corpus must be one of math, general, both, none, a folder or file of text, "
        f"or owner/name of the hub, got {name!r}"
    )


def _file_corpus(path: Path, fields: Sequence[str], limit: int) -> TextCorpus:
    """Return the corpus of a folder or file, already read so that faults show at once."""
    files = _files(path)
    version = []
    for file in files:
        stat = file.stat()
        version.append((str(file), stat.st_size, stat.st_mtime_ns))
    rows = partial(_rows_of_files, files, fields[0])
    corpus = TextCorpus(str(path), rows, version, fields, limit)
    len(corpus)  # reads the files
    return corpus


def _files(root: Path) -> list[Path]:
    """Return the visible files of a folder and its subfolders in a fixed order, or the one file.

    Links are followed. A folder that several links reach, perhaps in a circle, is listed once.
    """
    if root.is_file():
        return [root]
    files: list[Path] = []
    visited: set[str] = set()
    for folder, subfolders, names in os.walk(root, followlinks=True):
        real_folder = os.path.realpath(folder)
        if real_folder in visited:
            subfolders.clear()
            continue
        visited.add(real_folder)
        subfolders[:] = _visible(subfolders)
        files += [Path(folder, name) for name in _visible(names)]
    return [file for file in files if file.exists()]  # without broken links


def _visible(names: Sequence[str]) -> list[str]:
    return sorted(name for name in names if not name.startswith("."))


def _rows_of_files(files: Sequence[Path], field: str) -> Iterator[dict[str, Any]]:
    """Yield a row for every file, or for every line of JSON that is not blank.

    A row is empty if the file or the line cannot be read as text.
    """
    for path in files:
        try:
            yield from _rows_of_file(path, field)
        except (OSError, UnicodeDecodeError):
            yield {}


def _rows_of_file(path: Path, field: str) -> Iterator[dict[str, Any]]:
    suffix = path.suffix.lower()
    if suffix == ".jsonl":
        with path.open("rb") as file:
            for line in file:
                if line.strip():
                    yield _json_object(line)
    elif suffix in SUFFIXES:
        text = path.read_bytes().decode()
        is_binary = "\0" in text
        yield {} if is_binary else {field: text}
    else:
        yield {}  # counted as unreadable, so that users learn that their PDFs are not read


def _json_object(line: bytes) -> dict[str, Any]:
    """Return the object of a JSON line, or an empty one if the line holds none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def _rows_of_hub(
    name: str, size: int, fields: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield the first `size` rows of the shuffled train split, which is streamed.

    If the rows have none of the fields, yield only the first one, which is enough for the message.
    """
    from datasets import load_dataset

    dataset_name, _, configuration = name.partition(":")
    try:
        rows = load_dataset(
            dataset_name, configuration or None, split="train", streaming=True
        )
    except (OSError, ValueError) as error:
        lines = str(error).splitlines()
        reason = lines[0] if lines else "no reason given"
        raise ValueError(
            f"corpus {name!r} is not a local folder, and the hub refuses it: {reason}"
        ) from None
    first_row = next(iter(rows.take(1)), {})
    if set(fields).isdisjoint(first_row):
        yield first_row
        return
    yield from rows.shuffle(seed=0, buffer_size=SHUFFLE_BUFFER).take(size)
