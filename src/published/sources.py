"""Where the rows of a data set come from: a local mirror first, else the hub, at the pinned revision.

The mirror is the folder in COEVOLVE_DATA: KEY/SPLIT.jsonl (or .json, .parquet, numbered parts), with a folder per
configuration where a benchmark has several. A data set that needs consent or a download by hand says so in one line.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from published.data import Benchmark

Row = dict[str, Any]
VARIABLE = "COEVOLVE_DATA"
USACO = "usaco_subset307_dict.json"


def mirror() -> Path | None:
    """The folder of local copies, None when COEVOLVE_DATA is not set; ValueError when it is no folder."""
    named = os.environ.get(VARIABLE)
    if named and not Path(named).expanduser().is_dir():
        raise ValueError(f"{VARIABLE} must be a folder of data sets, got {named!r}")
    return Path(named).expanduser() if named else None


def rows(benchmark: "Benchmark", split: str) -> Iterator[tuple[str, Row]]:
    """Yield (where it stands, row) of a split in its original schema and order; `subset` is added to several.

    Raises ValueError, in one line, when the data set is neither in the mirror nor to be had, and why; and when a file
    cannot be read as what its name says.
    """
    place = _mirrored(benchmark)
    if place:
        yield from _local(benchmark, place, split)
    else:
        yield from _remote(benchmark, split)


def check(benchmark: "Benchmark") -> None:
    """Raise ValueError, in one line, when a data set is neither in the mirror nor in the cache nor on the hub."""
    if _mirrored(benchmark) or _cached(benchmark):
        return
    from coevolve import preflight

    why = preflight.ask(benchmark.hub, "dataset", (*benchmark.files, "README.md")[0])
    if why:
        raise ValueError(f"{benchmark.key} {why}; a copy can stand in {VARIABLE}/{benchmark.key}")


def _mirrored(benchmark: "Benchmark") -> Path | None:
    """The mirror's folder of a data set; ValueError when there is none and there is no download either."""
    root = mirror()
    if root and (root / benchmark.key).is_dir():
        return root / benchmark.key
    if benchmark.hub is None:
        where = f"put it into {VARIABLE}/{benchmark.key}"
        raise ValueError(f"{benchmark.key} cannot be downloaded ({benchmark.note}); {where}")
    return None


def _cached(benchmark: "Benchmark") -> bool:
    """Whether an earlier run has downloaded a data set."""
    from datasets.config import HF_DATASETS_CACHE
    from huggingface_hub import try_to_load_from_cache

    if benchmark.files:
        known = {"repo_type": "dataset", "revision": benchmark.revision}
        return all(isinstance(try_to_load_from_cache(benchmark.hub, name, **known), str) for name in benchmark.files)
    return (Path(HF_DATASETS_CACHE) / benchmark.hub.replace("/", "___")).is_dir()


def _local(benchmark: "Benchmark", place: Path, split: str) -> Iterator[tuple[str, Row]]:
    if benchmark.key == "usaco":
        yield from _numbered(_usaco(place), f"{benchmark.key}: {place}", None)
        return
    for config in benchmark.configs or (None,):
        folder = place / config if config else place
        files = [folder / name for name in benchmark.files] or _parts(folder, split)
        files = [file for file in files if file.is_file()]
        if not files:
            raise ValueError(f"{benchmark.key}: no {split}.jsonl, .json or .parquet in {folder}")
        for file in files:
            yield from _numbered(_read(file, benchmark.key), f"{benchmark.key}: {file}", config)


def _parts(folder: Path, split: str) -> list[Path]:
    """SPLIT.jsonl and the parts that the hub calls SPLIT-00000-of-00002.parquet."""
    name = re.compile(rf"{re.escape(split)}(-\d+-of-\d+)?\.(jsonl|json|parquet)")
    return sorted(path for path in folder.glob("*") if name.fullmatch(path.name))


def _read(file: Path, key: str) -> list[Row]:
    """The rows of a file; ValueError naming the data set, the file and, of several, the row that cannot be read."""
    where = f"{key}: {file}"
    try:
        if file.suffix == ".parquet":
            import pyarrow.parquet

            return pyarrow.parquet.read_table(file).to_pylist()
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".json":
            return _list(json.loads(text))
        found = []
        for line in filter(None, text.split("\n")):
            where = f"{key}: {file} row {len(found) + 1}"
            found.append(json.loads(line))
        return found
    except (ValueError, OSError) as error:
        raise ValueError(f"{where} cannot be read: {' '.join(str(error).split())[:200]}") from None


def _list(found: object) -> list:
    if not isinstance(found, list):
        raise ValueError(f"expected a list of rows, got {type(found).__name__}")
    return found


def _numbered(found: Iterable[Row], place: str, config: str | None) -> Iterator[tuple[str, Row]]:
    for number, row in enumerate(found, 1):
        if not isinstance(row, Mapping):
            raise ValueError(f"{place} row {number} must be an object with the set's columns, got {repr(row)[:40]}")
        yield f"{place} row {number}", {**row, "subset": config} if config else dict(row)


def _remote(benchmark: "Benchmark", split: str) -> Iterator[tuple[str, Row]]:
    from datasets import load_dataset
    from datasets.exceptions import DatasetNotFoundError
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HTTPError

    pinned = {"revision": benchmark.revision} if benchmark.revision else {}
    try:
        for name in benchmark.files:
            file = Path(hf_hub_download(benchmark.hub, name, repo_type="dataset", **pinned))
            yield from _numbered(_read(file, benchmark.key), f"{benchmark.key}: {file}", None)
        for config in () if benchmark.files else benchmark.configs or (benchmark.config,):
            found = load_dataset(benchmark.hub, config, split=split, **pinned)
            yield from _numbered(found, f"{benchmark.key}: {benchmark.hub}", config if benchmark.configs else None)
    except (DatasetNotFoundError, HTTPError, OSError) as error:  # OSError: the hub's own refusals as well
        raise ValueError(_advice(benchmark, error)) from error


def _advice(benchmark: "Benchmark", error: Exception) -> str:
    page = f"https://huggingface.co/datasets/{benchmark.hub}"
    copy = f"a copy can stand in {VARIABLE}/{benchmark.key}"
    if _lost(error):
        from coevolve import preflight

        return f"{benchmark.key} is not in the cache, and {preflight.unreachable(error)}; {copy}"
    why = (str(error).splitlines() or [type(error).__name__])[0]
    if benchmark.gated:
        login = "set HF_TOKEN or `hf auth login`"
        return f"{benchmark.key} is gated: accept its conditions on {page}, then {login} ({why})"
    return f"{benchmark.key} could not be had from {page}; {copy} ({why})"


def _lost(error: Exception) -> bool:
    """Whether nobody answered, or nobody was to be asked: the network's fault and not a refusal."""
    from huggingface_hub.errors import HfHubHTTPError, HTTPError, LocalEntryNotFoundError

    silent = isinstance(error, HTTPError) and not isinstance(error, HfHubHTTPError)
    return silent or isinstance(error, (ConnectionError, TimeoutError, LocalEntryNotFoundError))


def _usaco(place: Path) -> Iterator[Row]:
    """The problems of princeton-nlp/USACO's archive with their tests, wherever in the folder it was unpacked."""
    table = next(iter(sorted(place.rglob(USACO))), None)
    if table is None:
        raise ValueError(f"usaco: no {USACO} in {place}; unpack data.zip of princeton-nlp/USACO there")
    folders = {path.name: path for path in sorted(place.rglob("*")) if path.is_dir()}
    try:
        problems = json.loads(table.read_text(encoding="utf-8")).items()
    except (ValueError, AttributeError) as error:
        raise ValueError(f"usaco: {table} cannot be read: {error}") from None
    for name, problem in problems:
        tests = _pairs(folders[name]) if name in folders else []
        if tests:
            yield {**problem, "problem_id": name, "tests": tests}


def _pairs(folder: Path) -> list[tuple[str, str]]:
    """Tests in either naming: 1.in with 1.out, or I.1 with O.1."""
    given = {path.stem: path for path in folder.glob("*.in")} | {p.name[2:]: p for p in folder.glob("I.*")}
    wanted = {path.stem: path for path in folder.glob("*.out")} | {p.name[2:]: p for p in folder.glob("O.*")}
    both = sorted(given.keys() & wanted.keys(), key=lambda name: (len(name), name))
    return [(given[name].read_text(encoding="utf-8"), wanted[name].read_text(encoding="utf-8")) for name in both]
