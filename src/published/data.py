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
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

from coevolve.validation import check_choice, user_path
from published.rows import READERS, Item, Row, digest

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
    rows: Iterable[Any]  # mappings, or lines of JSON


def items(key: str, part: str = "test") -> list[Item]:
    """Return the questions of a benchmark's evaluated split, or with part="train" of the other.

    Without a train split both parts come from the evaluated one: by hash if the registry says so,
    else whole. Raises ValueError for an unknown key or part, and when rows cannot be loaded or
    read.
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
        sources = _mirror_sources(benchmark, folder, split)
    else:
        sources = _hub_sources(benchmark, split)
    loaded = []
    for source in sources:
        for number, row in enumerate(source.rows, 1):
            loaded.append(_read_row(key, source, number, row))
    return tuple(one for one in loaded if one is not None)


def _read_row(key: str, source: RowSource, number: int, row: Any) -> Item | None:
    """Return the item of a row; ValueError names the row that cannot be read."""
    try:
        columns = json.loads(row) if isinstance(row, str) else row
        return item(key, {"subset": source.config} | columns)
    except KeyError as error:
        raise ValueError(f"{source.name} row {number} has no column {error}") from None
    except (LookupError, TypeError, AttributeError, ValueError, zlib.error) as error:
        reason = _one_line(error)
        raise ValueError(
            f"{source.name} row {number} is not a row of {key} ({reason})"
        ) from None


def item(key: str, row: Row) -> Item | None:
    """Read a row of a benchmark; None for a row that is left out.

    Raises KeyError with the name of a missing column.
    """
    benchmark = BENCHMARKS[key]
    spec = benchmark.fields
    reading = READERS[benchmark.read](row, spec)
    if reading is None:
        return None
    gold = reading.gold
    scorer = benchmark.scorer
    if "letters" in spec:
        letter = re.fullmatch(r"\(([A-Z])\)", gold)
        if letter:
            scorer = "choice"
            gold = letter[1]
    row_id = row.get(spec.get("id"))
    stem = spec.get("stem", spec["question"])
    return Item(
        family=key,
        id=digest(reading.question) if row_id is None else str(row_id),
        question=reading.question,
        gold=gold,
        scorer=scorer,
        judge=benchmark.judge,
        stem=stem.format_map(row),
        origin=benchmark.origin,
        meta=_meta(row, spec),
    )


def _meta(row: Row, spec: Row) -> dict[str, Any]:
    """Return the columns that `keep` names, and the published solution if there is one."""
    meta = {name: row[name] for name in spec.get("keep", ()) if row.get(name)}
    if "solution" in spec:
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
    pattern = re.compile(rf"{re.escape(split)}(-\d+-of-\d+)?\.(jsonl|parquet)")
    has_several_configs = len(benchmark.configs) > 1
    for config in benchmark.configs or (None,):
        config_folder = folder / config if config and has_several_configs else folder
        files = []
        for path in config_folder.glob("*"):
            if path.name in benchmark.files or pattern.fullmatch(path.name):
                files.append(path)
        if not files:
            raise ValueError(
                f"{benchmark.key}: no {split}.jsonl or .parquet in {config_folder}"
            )
        for file in sorted(files):
            rows = _read_file(file, benchmark.key)
            yield RowSource(f"{benchmark.key}: {file}", config, rows)


def _read_file(file: Path, key: str) -> list[Any]:
    """Return the rows of a parquet file, or the lines of any other file.

    `datasets` is not used, because it would guess types and fill columns that a row lacks. Raises
    ValueError when the file's content is not what its name says.
    """
    try:
        if file.suffix == ".parquet":
            import pyarrow.parquet

            rows: list[Any] = pyarrow.parquet.read_table(file).to_pylist()
            return rows
        text = file.read_text(encoding="utf-8")
        return [line for line in text.split("\n") if line]
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
        yield RowSource(name, config, rows)


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text[:MAX_REASON_LENGTH] or type(error).__name__
