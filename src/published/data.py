"""The papers' data sets: the registry of benchmarks.toml, one loader to items, and which paper uses what.

Where rows come from: sources; what they become: rows; their score: grading; how protocols see them: dataworld.
"""

import tomllib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

from coevolve.checks import among
from published import rows, sources
from published.rows import Item, digest

FILE = Path(__file__).with_name("benchmarks.toml")


@dataclass(frozen=True)
class Benchmark:
    """A row of the registry, see benchmarks.toml."""

    key: str
    split: str
    read: str
    scorer: str
    licence: str
    size: int  # items of the evaluated split, as published
    hub: str | None = None
    config: str | None = None
    configs: tuple[str, ...] = ()
    train: str | None = None  # None: there is only one split
    revision: str | None = None
    files: tuple[str, ...] = ()  # read as they are: the data set is a script
    fields: Mapping[str, Any] = field(default_factory=dict)
    judge: str = ""
    tolerance: float = 0.0
    gated: bool = False
    ours: int = 0  # no test split: one item in so many is ours
    origin: str = ""  # the benchmark that numbers the same questions
    note: str = ""


@dataclass(frozen=True)
class Paper:
    """What a paper evaluates, and what its method starts from."""

    tests: Mapping[str, int]  # benchmark: items at most, 0 for all
    seeds: Mapping[str, int]  # benchmark: how many
    where: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # which rows: a list, or min and max
    forced: Sequence[str] = ()  # seeds out of questions that are evaluated: there are no others
    repeats: Mapping[str, int] = field(default_factory=dict)  # samples an item, averaged
    temperatures: Mapping[str, float] = field(default_factory=dict)
    temperature: float | None = None  # of all tests; None: the set-up's own
    domains: Mapping[str, str] = field(default_factory=dict)  # what the paper calls its sources
    note: str = ""


@lru_cache(maxsize=1)
def _file() -> dict[str, dict[str, dict]]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def registry() -> dict[str, Benchmark]:
    """All benchmarks by key."""
    lists = ("configs", "files")
    return {
        key: Benchmark(key, **{name: tuple(value) if name in lists else value for name, value in row.items()})
        for key, row in _file()["benchmarks"].items()
    }


@lru_cache(maxsize=1)
def papers() -> dict[str, Paper]:
    """Tests and seeds of the five papers."""
    return {name: Paper(**row) for name, row in _file()["papers"].items()}


def benchmark(key: str) -> Benchmark:
    """A benchmark by its key; ValueError naming all of them."""
    among("benchmark", key, registry())
    return registry()[key]


@lru_cache(maxsize=64)
def _loaded(key: str, split: str, folder: Path | None) -> tuple[Item, ...]:
    its = benchmark(key)
    return tuple(filter(None, (_item(its, where, row) for where, row in sources.rows(its, split))))


def _item(its: Benchmark, where: str, row: Mapping[str, Any]) -> Item | None:
    """A row as an item; ValueError naming data set, file and row when the row is not what the reader expects."""
    try:
        return rows.item(its, row)
    except KeyError as error:
        raise ValueError(f"{where} has no column {error}") from None
    except (LookupError, TypeError, AttributeError, ValueError, zlib.error) as error:
        why = " ".join(str(error).split())[:200]
        raise ValueError(f"{where} does not read as {its.key}'s rows do ({why})") from None


def items(key: str, part: str = "test") -> list[Item]:
    """The questions of a benchmark's evaluated split, or with part="train" of its train split if it has one.

    A benchmark without a test split of its own is divided by hash. Raises ValueError for an unknown key or part, and
    when the rows cannot be had.
    """
    its = benchmark(key)
    among("part", part, ("test", "train"))
    split = its.train if part == "train" and its.train else its.split
    found = _loaded(key, split, sources.mirror())
    return [item for item in found if not its.ours or share(item, its.ours) == (part == "test")]


def share(item: Item, one_in: int) -> bool:
    """Whether an item belongs to the part that one in so many questions make, by the hash of its text."""
    return int(digest(item.question), 16) % one_in == 0


def draw(found: Sequence[Item], count: int, why: str) -> list[Item]:
    """`count` items (0: all) in their order; which ones hangs on nothing but `why` and the list."""
    if not count or count >= len(found):
        return list(found)
    return [found[i] for i in sorted(Random(f"{why} 42").sample(range(len(found)), count))]
