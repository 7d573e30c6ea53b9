"""Documents for SPICE: the tiny world's own, text files, and data sets of the hub.

A corpus has a size and a uniform draw whose cost does not grow with the size. Knows no roles and no tokens.
"""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from random import Random
from typing import Protocol

from published.textfiles import TEXT_FIELDS, FileCorpus, cache_folder, lacking
from tinyworld import documents as tiny

FAMILIES = {  # the tiny stand-ins of Appendix 8's two halves: Nemotron-CC-Math and NaturalReasoning
    "math": ("add", "sub", "mul", "prec", "eq", "next", "word2", "div", "mod", "code"),
    "general": ("fact", "yn", "cmp", "word", "rate", "unit"),
}
TINY = {"math": ("math",), "general": ("general",), "both": ("math", "general")}
NONE = "none"  # no corpus: the ablation of Figure 4(b)
HUB = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+)?")  # owner/name, or owner/name:configuration
SHUFFLE = 10_000  # rows that a streamed data set is shuffled through


class Corpus(Protocol):
    """Documents to draw from."""

    unreadable: int  # files and lines that hold no readable text

    def __len__(self) -> int:
        """How many documents there are."""

    def sample(self, rng: Random) -> str:
        """Draw a document uniformly, cut to the corpus's limit."""


@dataclass(frozen=True)
class TinyCorpus:
    """Procedural documents: worked sums (math) or articles about the fact world (general); none is stored.

    Document i depends on nothing but kind and i, and states no validation or test question.
    """

    kind: str
    size: int
    unreadable: int = 0

    def __len__(self) -> int:
        return self.size

    def document(self, number: int) -> str:
        """Write document `number`."""
        return tiny.document(Random(f"{self.kind} document {number}"), families=FAMILIES[self.kind])[0]

    def sample(self, rng: Random) -> str:
        """Draw one of the `size` documents."""
        return self.document(rng.randrange(self.size))


@dataclass(frozen=True)
class Mixture:
    """Several corpora in equal parts (Appendix 8: half mathematics, half general), whatever their sizes."""

    parts: tuple[Corpus, ...]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @property
    def unreadable(self) -> int:
        """What the parts could not read, together."""
        return sum(part.unreadable for part in self.parts)

    def sample(self, rng: Random) -> str:
        """Draw a corpus, then a document of it."""
        return rng.choice(self.parts).sample(rng)


class HubCorpus:
    """A data set of the hub: its first documents are streamed once, on first use, into the user's cache.

    `name` is owner/name or owner/name:configuration; `size` rows of the train split are kept, of each its `fields`.
    """

    def __init__(self, name: str, size: int, limit: int, fields: Sequence[str] = TEXT_FIELDS):
        self.name, self.size, self.limit, self.fields = name, size, limit, fields

    @cached_property
    def files(self) -> FileCorpus:
        """The streamed copy."""
        return FileCorpus(_streamed(self.name, self.size, self.fields), self.limit, self.fields)

    @property
    def unreadable(self) -> int:
        """Rows of the copy without text."""
        return self.files.unreadable

    def __len__(self) -> int:
        return len(self.files)

    def sample(self, rng: Random) -> str:
        """Draw one of the streamed documents."""
        return self.files.sample(rng)


def find(source: str | PathLike | Sequence[str | PathLike], size: int = 20_000, limit: int = 17_976) -> Corpus | None:
    """Return the corpus that `source` names; several names are mixed in equal parts, "none" gives None.

    A name is math, general or both (the tiny world), a folder or file of text, or a data set of the hub; "#FIELD" at
    its end says which field of a JSON line or a data set's row is the text (otherwise the first of TEXT_FIELDS is).
    `size` is how many documents the tiny world and data sets have in all, `limit` the most bytes of one.
    Raises ValueError, in one line, for anything else.
    """
    names = [fspath(one) for one in ([source] if isinstance(source, str | PathLike) else source)]
    if names == [NONE]:
        return None
    parts = [part for name in names for part in _parts(name, max(1, size // len(names)), limit)]
    if not parts:
        raise ValueError("corpus must name at least one source of documents, got none")
    return parts[0] if len(parts) == 1 else Mixture(tuple(parts))


def _parts(name: str, size: int, limit: int) -> list[Corpus]:
    if name in TINY:
        return [TinyCorpus(kind, max(1, size // len(TINY[name]))) for kind in TINY[name]]
    source, _, field = (name, "", "") if Path(name).expanduser().exists() else name.partition("#")
    path, fields = Path(source).expanduser(), (field,) if field else TEXT_FIELDS
    if source and path.exists():
        return [FileCorpus(path, limit, fields)]
    if HUB.fullmatch(source):
        return [HubCorpus(source, size, limit, fields)]
    kinds = ", ".join((*TINY, NONE))
    raise ValueError(f"corpus must be one of {kinds}, a folder or file of text, or owner/name of the hub, got {name!r}")


def _streamed(name: str, size: int, fields: Sequence[str]) -> Path:
    """Stream `size` documents of a data set into the cache, unless they are there, and return the file."""
    chosen = "" if fields == TEXT_FIELDS else f"#{'#'.join(fields)}"
    place = cache_folder() / f"{re.sub('[/:]', '--', name + chosen)}-{size}.jsonl"
    if place.is_file():
        return place
    from datasets import load_dataset

    owner_name, _, configuration = name.partition(":")
    try:
        rows = load_dataset(owner_name, configuration or None, split="train", streaming=True)
    except (OSError, ValueError) as error:
        reason = (str(error).splitlines() or ["no reason given"])[0]
        raise ValueError(f"corpus {name!r} is no folder here, and the hub does not give it: {reason}") from None
    first = next(iter(rows.take(1)), {})
    if first and not any(isinstance(first.get(field, 0), str | None) for field in fields):  # an empty one may be null
        raise lacking(name, first, fields)
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = place.with_name(f".{place.name}-{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        for row in rows.shuffle(seed=0, buffer_size=SHUFFLE).take(size):
            texts = {field: row[field] for field in fields if isinstance(row.get(field), str)}
            file.write(json.dumps(texts) + "\n")
    os.replace(temporary, place)
    return place
