"""The papers' data sets: the registry of benchmarks.toml, where their rows come from, and their items.

Rows come from a mirror first, else the hub. The mirror is the folder in COEVOLVE_DATA: KEY/SPLIT.jsonl (or .parquet,
or numbered parts), with a folder per configuration where a benchmark has several.
"""

import json
import os
import re
import tomllib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

from coevolve.validation import check_choice
from published.rows import READERS, Item, Row, digest

VARIABLE = "COEVOLVE_DATA"


@dataclass(frozen=True)
class Benchmark:
    """A row of the registry, see benchmarks.toml."""

    key: str
    split: str
    read: str
    fields: Mapping[str, Any]
    scorer: str
    licence: str
    hub: str = ""  # empty: it cannot be downloaded
    configs: Sequence[str] = ()
    train: str = ""  # empty: there is only one split
    revision: str | None = None
    files: Sequence[str] = ()  # read as they are: the data set is a script
    judge: str = ""
    ours: int = 0  # no test split: one item in so many is ours
    origin: str = ""  # the benchmark that numbers the same questions

    @property
    def trains(self) -> bool:
        """Whether there are questions beside those that are evaluated."""
        return bool(self.train or self.ours)


@dataclass(frozen=True)
class Paper:
    """What a paper evaluates, and what its method starts from."""

    tests: Mapping[str, int]  # benchmark: items at most, 0 for all
    seeds: Mapping[str, int]  # benchmark: how many
    where: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # which rows: a column's pattern
    forced: Sequence[str] = ()  # seeds out of questions that are evaluated: there are no others
    repeats: Mapping[str, int] = field(default_factory=dict)  # samples an item, averaged
    temperatures: Mapping[str, float] = field(default_factory=dict)
    temperature: float | None = None  # of all tests; None: the set-up's own
    domains: Mapping[str, str] = field(default_factory=dict)  # what the paper calls its sources


_TABLES = tomllib.loads(Path(__file__).with_name("benchmarks.toml").read_text(encoding="utf-8"))
BENCHMARKS = {key: Benchmark(key, **table) for key, table in _TABLES["benchmarks"].items()}
PAPERS = {name: Paper(**table) for name, table in _TABLES["papers"].items()}


def items(key: str, part: str = "test") -> list[Item]:
    """Return the questions of a benchmark's evaluated split, or with part="train" of its train split if it has one.

    A benchmark without a test split of its own is divided by hash. Raises ValueError for an unknown key or part, and
    when the rows cannot be had or read, in one line.
    """
    check_choice("benchmark", key, BENCHMARKS)
    check_choice("part", part, ("test", "train"))
    known = BENCHMARKS[key]
    split = known.train if part == "train" and known.train else known.split
    found = _loaded(key, split, os.environ.get(VARIABLE))
    return [item for item in found if not known.ours or share(item, known.ours) == (part == "test")]


def share(item: Item, one_in: int) -> bool:
    """Return whether an item is in the part that one in so many questions make, by the hash of its text."""
    return int(digest(item.question), 16) % one_in == 0


def draw(found: Sequence[Item], count: int, why: str) -> list[Item]:
    """Return `count` items (0: all) in their order; which ones depends on nothing but `why` and the list."""
    if not count or count >= len(found):
        return list(found)
    return [found[i] for i in sorted(Random(f"{why} 42").sample(range(len(found)), count))]


@lru_cache(maxsize=64)
def _loaded(key: str, split: str, mirror: str | None) -> tuple[Item, ...]:
    """All items of a split, in the original order.

    Raises ValueError, in one line, when the data set is neither in the mirror nor to be had, and when a row is not what
    the reader expects (data set, file and row).
    """
    found, known = [], BENCHMARKS[key]
    place = _mirrored(known)
    for where, config, rows in _local(known, place, split) if place else _remote(known, split):
        for number, row in enumerate(rows, 1):
            try:
                columns = json.loads(row) if isinstance(row, str) else row
                found.append(item(key, {"subset": config} | columns))
            except KeyError as error:
                raise ValueError(f"{where} row {number} has no column {error}") from None
            except (LookupError, TypeError, AttributeError, ValueError, zlib.error) as error:
                why = f"does not read as {key}'s rows do ({_line(error)})"
                raise ValueError(f"{where} row {number} {why}") from None
    return tuple(filter(None, found))


def item(key: str, row: Row) -> Item | None:
    """Read a row of a benchmark; None for a row that is not to be used. KeyError names a missing column."""
    known, spec = BENCHMARKS[key], BENCHMARKS[key].fields
    read = READERS[known.read](row, spec)
    if read is None:
        return None
    (question, gold), scorer = read, known.scorer
    if "letters" in spec and (letter := re.fullmatch(r"\(([A-Z])\)", gold)):
        scorer, gold = "choice", letter[1]
    number = row.get(spec.get("id"))
    number = digest(question) if number is None else str(number)
    stem = spec.get("stem", spec["question"]).format_map(row)
    meta = {name: row[name] for name in spec.get("keep", ()) if row.get(name)}
    if "solution" in spec:
        meta["solution"] = spec["solution"].format_map(row)
    return Item(key, number, question, gold, scorer, known.judge, stem, known.origin, meta=meta)


def check(key: str) -> None:
    """Raise ValueError, in one line, when a data set is neither in the mirror nor in the cache nor on the hub."""
    from coevolve.training import preflight

    known = BENCHMARKS[key]
    if not _mirrored(known):
        file = (*known.files, "README.md")[0]
        if why := preflight.why_hub_cannot_serve(known.hub, "dataset", file, known.revision):
            raise ValueError(f"{key} {why}; a copy can stand in {VARIABLE}/{key}")


def _mirrored(known: Benchmark) -> Path | None:
    """The mirror's folder of a data set; ValueError when there is none and there is no download either."""
    named = os.environ.get(VARIABLE)
    root = Path(named).expanduser() if named else None
    if root and not root.is_dir():
        raise ValueError(f"{VARIABLE} must be a folder of data sets, got {named!r}")
    if root and (root / known.key).is_dir():
        return root / known.key
    if not known.hub:
        raise ValueError(f"{known.key} cannot be downloaded (docs/data.md): make {VARIABLE}/{known.key} of its files")
    return None


def _local(known: Benchmark, place: Path, split: str) -> Iterator[tuple[str, str | None, list[Any]]]:
    """(where they stand, their configuration, rows) of each file of the mirror; text is a line of JSON.

    Files are SPLIT.jsonl, or parts as the hub names them (SPLIT-00000-of-00002.parquet).
    """
    name = re.compile(rf"{re.escape(split)}(-\d+-of-\d+)?\.(jsonl|parquet)")
    for config in known.configs or (None,):
        folder = place / config if config and len(known.configs) > 1 else place
        files = sorted(path for path in folder.glob("*") if path.name in known.files or name.fullmatch(path.name))
        if not files:
            raise ValueError(f"{known.key}: no {split}.jsonl or .parquet in {folder}")
        for file in files:
            yield f"{known.key}: {file}", config, _read(file, known.key)


def _read(file: Path, key: str) -> list[Any]:
    """The rows of a parquet file, or the lines of any other; ValueError when the file is not what its name says.

    `datasets` would guess types, and give a column that a row lacks as an empty one.
    """
    try:
        if file.suffix == ".parquet":
            import pyarrow.parquet

            return pyarrow.parquet.read_table(file).to_pylist()
        return [line for line in file.read_text(encoding="utf-8").split("\n") if line]
    except (ValueError, OSError) as error:
        raise ValueError(f"{key}: {file} cannot be read: {_line(error)}") from None


def _remote(known: Benchmark, split: str) -> Iterator[tuple[str, str | None, Iterable[Any]]]:
    """The hub's rows at the pinned revision; of a data set that is a script the files as they are."""
    from datasets import load_dataset
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HTTPError  # httpx's own: connections that fail

    where = f"{known.key}: {known.hub}"
    try:
        for name in known.files:
            file = hf_hub_download(known.hub, name, repo_type="dataset", revision=known.revision)
            yield where, None, _read(Path(file), known.key)
        for config in () if known.files else known.configs or (None,):
            yield where, config, load_dataset(known.hub, config, split=split, revision=known.revision)
    except (HTTPError, OSError) as error:  # OSError: the refusals of the hub and of `datasets` as well
        why = f"could not be had ({_line(error)}); a copy can stand in {VARIABLE}/{known.key}"
        raise ValueError(f"{where} {why}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
