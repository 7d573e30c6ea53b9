"""The papers' data sets: the registry of benchmarks.toml, the sources of their rows, their items.

Rows come from a mirror if there is one, else from the hub. The mirror is the folder in
COEVOLVE_DATA. It holds KEY/SPLIT.jsonl (or .parquet, or numbered parts), with one folder for each
configuration of a benchmark that has several.
"""

import json
import os
import re
import tomllib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

from coevolve.validation import check_choice, user_path
from published.files import NumberedRow, numbered, read_lines, read_parquet
from published.mirror import listed_files, split_files
from published.row_counts import RowCounts, say
from published.rows import READERS, Item, Row, check_columns, digest, with_lists
from published.values import LeftOut, is_missing, plain_text

VARIABLE = "COEVOLVE_DATA"
MAX_REASON_LENGTH = 200  # characters of another library's message


@dataclass(frozen=True)
class Benchmark:
    """An entry of the registry, as benchmarks.toml describes it."""

    key: str
    split: str  # that is evaluated
    read: str  # a key of `rows.READERS`
    fields: Mapping[str, Any]
    scorer: str
    licence: str
    hub: str = ""  # empty: it cannot be downloaded
    configs: Sequence[str] = ()
    train: str = ""  # empty: there is only one split
    revision: str | None = None
    # Files that are downloaded and read directly, because the data set is a script.
    files: Sequence[str] = ()
    judge: str = ""
    # n if there is no test split and a hash puts 1 in n questions into the test.
    test_one_in: int = 0
    origin: str = ""  # the benchmark whose numbers identify the questions

    @property
    def has_training_part(self) -> bool:
        """Whether there are questions besides those that are evaluated."""
        return bool(self.train or self.test_one_in)


@dataclass(frozen=True)
class Paper:
    """The benchmarks that a paper evaluates, and the seed questions of its method."""

    # Maximum number of items of each tested benchmark, 0 for all.
    tests: Mapping[str, int]
    # Number of seed questions from each benchmark, 0 for all.
    seeds: Mapping[str, int]
    # The columns of a benchmark and the patterns that they must match in its seeds.
    where: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # Evaluated benchmarks that also give seeds, because they have only one split.
    forced: Sequence[str] = ()
    # Samples per item of a benchmark, which are averaged.
    repeats: Mapping[str, int] = field(default_factory=dict)
    # The sampling temperature of a benchmark, and of all others (None: that of the run).
    temperatures: Mapping[str, float] = field(default_factory=dict)
    temperature: float | None = None
    # The paper's name of a benchmark.
    domains: Mapping[str, str] = field(default_factory=dict)


_TABLES = tomllib.loads(
    Path(__file__).with_name("benchmarks.toml").read_text(encoding="utf-8")
)
BENCHMARKS = {
    key: Benchmark(key, **table) for key, table in _TABLES["benchmarks"].items()
}
PAPERS = {name: Paper(**table) for name, table in _TABLES["papers"].items()}


@dataclass(frozen=True)
class RowSource:
    """The rows of one file of the mirror, or of one configuration on the hub."""

    name: str  # for messages: the data set, and its file or repository
    config: str | None
    rows: Iterable[NumberedRow]


def items(key: str, part: str = "test") -> list[Item]:
    """Return the questions of a benchmark's evaluated split, or with part="train" of the other.

    Without a train split both parts come from the evaluated one: by hash if the registry says so,
    else whole. One line on stderr counts the rows that are left out or read in another form.
    Raises ValueError for an unknown key or part, when rows cannot be loaded or read, and when too
    many are left out (see `row_counts`).
    """
    check_choice("benchmark", key, BENCHMARKS)
    check_choice("part", part, ("test", "train"))
    benchmark = BENCHMARKS[key]
    split = benchmark.split
    if part == "train" and benchmark.train:
        split = benchmark.train
    loaded = _load_split(key, split, os.environ.get(VARIABLE))
    if not benchmark.test_one_in:
        return list(loaded)
    is_test = part == "test"
    return [
        candidate
        for candidate in loaded
        if in_hash_split(candidate, benchmark.test_one_in) == is_test
    ]


def in_hash_split(item: Item, one_in: int) -> bool:
    """Whether the hash of the question puts it into a 1-in-n split."""
    return int(digest(item.question), 16) % one_in == 0


def draw(candidates: Sequence[Item], count: int, purpose: str) -> list[Item]:
    """Draw `count` items (0: all) and return them in their order.

    The draw depends only on `purpose` and on the list.
    """
    if not count or count >= len(candidates):
        return list(candidates)
    rng = Random(f"{purpose} 42")
    indices = rng.sample(range(len(candidates)), count)
    return [candidates[i] for i in sorted(indices)]


@lru_cache(maxsize=64)
def _load_split(key: str, split: str, mirror: str | None) -> tuple[Item, ...]:
    """Return all items of a split, in the original order; `mirror` only keys the cache.

    Raises ValueError when neither the mirror nor the hub has the data set, and when a row is not
    what the reader expects; the message names data set, file and row.
    """
    benchmark = BENCHMARKS[key]
    folder = _mirror_folder(benchmark)
    if folder:
        sources = list(_mirror_sources(benchmark, folder, split))
    else:
        sources = list(_hub_sources(benchmark, split))
    first_name = sources[0].name.removeprefix(f"{key}: ")
    counts = RowCounts(key, first_name if len(sources) == 1 else f"split {split}")
    loaded: list[Item] = []
    for source in sources:
        prefix = f"{_short_name(source)} " if len(sources) > 1 else ""
        for row in source.rows:
            place = f"{prefix}row {row.number}"
            loaded += _read_row(key, source, row, counts, place)
    counts.check()
    if counts.has_news:
        say(counts.line())
    return tuple(loaded)


def _short_name(source: RowSource) -> str:
    """Return the name of a source's file or configuration, for lines that count rows."""
    file = Path(source.name).name
    return f"{source.config}/{file}" if source.config else file


def _read_row(
    key: str, source: RowSource, row: NumberedRow, counts: RowCounts, place: str
) -> list[Item]:
    """Return the item of a row, or nothing if it is left out, and count it.

    Raises ValueError, which names the row, for a row of another form.
    """
    try:
        content = row.content
        cells = json.loads(content) if isinstance(content, str) else content
        read, changes = _item(key, {"subset": source.config} | cells)
    except LeftOut as why:
        counts.leave_out(place, why)
        return []
    except KeyError as error:
        raise ValueError(
            f"{source.name} row {row.number} has no column {error}"
        ) from None
    except (LookupError, TypeError, AttributeError, ValueError, zlib.error) as error:
        reason = _one_line(error)
        raise ValueError(
            f"{source.name} row {row.number} is not a row of {key} ({reason})"
        ) from None
    counts.add(place, changes)
    return [read]


def item(key: str, row: Row) -> Item | None:
    """Read a row of a benchmark; None for a row that is left out.

    Raises KeyError with the name of a missing column.
    """
    try:
        read, _ = _item(key, row)
    except LeftOut:
        return None
    return read


def _item(key: str, row: Row) -> tuple[Item, tuple[str, ...]]:
    """Return the item of a row and what the row does not write as published; or raise LeftOut."""
    benchmark = BENCHMARKS[key]
    spec = benchmark.fields
    row = with_lists(row, spec["question"])
    reading = READERS[benchmark.read](row, spec)
    gold = reading.gold
    scorer = benchmark.scorer
    if "letters" in spec:
        letter = re.fullmatch(r"\(([A-Z])\)", gold)
        if letter:
            scorer = "choice"
            gold = letter[1]
    row_id = plain_text(row.get(spec.get("id")))
    stem = spec.get("stem", spec["question"])
    read = Item(
        family=key,
        id=row_id or digest(reading.question),
        question=reading.question,
        gold=gold,
        scorer=scorer,
        judge=benchmark.judge,
        stem=stem.format_map(row),
        origin=benchmark.origin,
        meta=_meta(row, spec),
    )
    return read, reading.changes


def _meta(row: Row, spec: Row) -> dict[str, Any]:
    """Return the columns that `keep` names, and the published solution if there is one."""
    meta = {}
    for name in spec.get("keep", ()):
        value = row.get(name)
        if value and not is_missing(value):
            meta[name] = value
    if "solution" in spec:
        with suppress(LeftOut):
            check_columns(row, spec["solution"])
            meta["solution"] = spec["solution"].format_map(row)
    return meta


def check(key: str) -> None:
    """Raise ValueError when neither the mirror, the cache nor the hub has a data set."""
    from coevolve.training import preflight

    benchmark = BENCHMARKS[key]
    if _mirror_folder(benchmark):
        return
    file = benchmark.files[0] if benchmark.files else "README.md"
    refusal = preflight.why_hub_cannot_serve(
        benchmark.hub, "dataset", file, benchmark.revision
    )
    if refusal:
        raise ValueError(f"{key} {refusal}; or put a copy into {VARIABLE}/{key}")


def _mirror_folder(benchmark: Benchmark) -> Path | None:
    """Return the mirror's folder of a data set, or None if it comes from the hub.

    Raises ValueError when neither has it.
    """
    mirror = os.environ.get(VARIABLE)
    if mirror:
        root = user_path(mirror)
        if not root.is_dir():
            raise ValueError(
                f"{VARIABLE} must be a folder of data sets, got {mirror!r}"
            )
        folder = root / benchmark.key
        if folder.is_dir():
            return folder
    if not benchmark.hub:
        raise ValueError(
            f"{benchmark.key} cannot be downloaded (docs/data.md): "
            f"put its files into {VARIABLE}/{benchmark.key}"
        )
    return None


def _mirror_sources(
    benchmark: Benchmark, folder: Path, split: str
) -> Iterator[RowSource]:
    """Yield the rows of each file of the mirror.

    Files are SPLIT.jsonl, or parts as the hub names them (SPLIT-00000-of-00002.parquet).
    """
    has_several_configs = len(benchmark.configs) > 1
    for config in benchmark.configs or (None,):
        config_folder = folder / config if config and has_several_configs else folder
        if benchmark.files:
            files = listed_files(config_folder, benchmark.files, benchmark.key)
        else:
            files = split_files(config_folder, split, benchmark.key)
        for file in files:
            rows = _read_file(file, benchmark.key)
            yield RowSource(f"{benchmark.key}: {file}", config, rows)


def _read_file(file: Path, key: str) -> list[NumberedRow]:
    """Return the rows of a parquet file, or the lines of any other file.

    Raises ValueError when the file's content is not what its name says.
    """
    try:
        return read_parquet(file) if file.suffix == ".parquet" else read_lines(file)
    except (ValueError, OSError) as error:
        reason = _one_line(error)
        raise ValueError(f"{key}: {file} cannot be read: {reason}") from None


def _hub_sources(benchmark: Benchmark, split: str) -> Iterator[RowSource]:
    """Yield the hub's rows at the pinned revision; for a script-based data set, its files."""
    from huggingface_hub.errors import HTTPError  # httpx's class: failed connections

    name = f"{benchmark.key}: {benchmark.hub}"
    try:
        if benchmark.files:
            yield from _hub_files(benchmark, name)
        else:
            yield from _hub_configs(benchmark, name, split)
    except (HTTPError, OSError) as error:
        # OSError: the hub or `datasets` refuses.
        raise ValueError(
            f"{name} could not be loaded ({_one_line(error)}); "
            f"or put a copy into {VARIABLE}/{benchmark.key}"
        ) from error


def _hub_files(benchmark: Benchmark, name: str) -> Iterator[RowSource]:
    from huggingface_hub import hf_hub_download

    for file_name in benchmark.files:
        file = hf_hub_download(
            benchmark.hub,
            file_name,
            repo_type="dataset",
            revision=benchmark.revision,
        )
        yield RowSource(name, None, _read_file(Path(file), benchmark.key))


def _hub_configs(benchmark: Benchmark, name: str, split: str) -> Iterator[RowSource]:
    from datasets import load_dataset

    for config in benchmark.configs or (None,):
        rows = load_dataset(
            benchmark.hub, config, split=split, revision=benchmark.revision
        )
        yield RowSource(name, config, numbered(rows))


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text[:MAX_REASON_LENGTH] or type(error).__name__
