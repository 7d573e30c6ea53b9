"""Where the rows of a data set come from: a local mirror first, else the hub, at the pinned revision.

The mirror is the folder in COEVOLVE_DATA: KEY/SPLIT.jsonl (or .json, .parquet, numbered parts), with a folder per
configuration where a benchmark has several. A data set that needs consent or a download by hand says so in one line.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coevolve.worlds.data import Benchmark

Row = dict[str, Any]
VARIABLE = "COEVOLVE_DATA"
USACO = "usaco_subset307_dict.json"


def mirror() -> Path | None:
    """The folder of local copies, None when COEVOLVE_DATA is not set; ValueError when it is no folder."""
    named = os.environ.get(VARIABLE)
    if named and not Path(named).expanduser().is_dir():
        raise ValueError(f"{VARIABLE} must be a folder of data sets, got {named!r}")
    return Path(named).expanduser() if named else None


def rows(benchmark: "Benchmark", split: str) -> Iterator[Row]:
    """Yield a split's rows in their original schema, in their order; `subset` is added where there are several.

    Raises ValueError, in one line, when the data set is neither in the mirror nor to be had, and why.
    """
    place = (mirror() or Path("/nonexistent")) / benchmark.key
    if place.is_dir():
        yield from _local(benchmark, place, split)
    elif benchmark.hub is None:
        where = f"put it into {VARIABLE}/{benchmark.key}"
        raise ValueError(f"{benchmark.key} cannot be downloaded ({benchmark.note}); {where}")
    else:
        yield from _remote(benchmark, split)


def _local(benchmark: "Benchmark", place: Path, split: str) -> Iterator[Row]:
    if benchmark.key == "usaco":
        yield from _usaco(place)
        return
    for config in benchmark.configs or (None,):
        folder = place / config if config else place
        files = [folder / name for name in benchmark.files] or _parts(folder, split)
        files = [file for file in files if file.is_file()]
        if not files:
            raise ValueError(f"{benchmark.key}: no {split}.jsonl, .json or .parquet in {folder}")
        for file in files:
            yield from _tagged(_read(file), config)


def _parts(folder: Path, split: str) -> list[Path]:
    """SPLIT.jsonl and the parts that the hub calls SPLIT-00000-of-00002.parquet."""
    name = re.compile(rf"{re.escape(split)}(-\d+-of-\d+)?\.(jsonl|json|parquet)")
    return sorted(path for path in folder.glob("*") if name.fullmatch(path.name))


def _read(file: Path) -> Iterable[Row]:
    if file.suffix == ".parquet":
        import pyarrow.parquet

        return pyarrow.parquet.read_table(file).to_pylist()
    text = file.read_text(encoding="utf-8")
    return json.loads(text) if file.suffix == ".json" else [json.loads(line) for line in text.split("\n") if line]


def _tagged(found: Iterable[Row], config: str | None) -> Iterator[Row]:
    for row in found:
        yield {**row, "subset": config} if config else dict(row)


def _remote(benchmark: "Benchmark", split: str) -> Iterator[Row]:
    from datasets import load_dataset
    from datasets.exceptions import DatasetNotFoundError
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError

    pinned = {"revision": benchmark.revision} if benchmark.revision else {}
    try:
        for name in benchmark.files:
            yield from _read(Path(hf_hub_download(benchmark.hub, name, repo_type="dataset", **pinned)))
        for config in () if benchmark.files else benchmark.configs or (benchmark.config,):
            found = load_dataset(benchmark.hub, config, split=split, **pinned)
            yield from _tagged(found, config if benchmark.configs else None)
    except (GatedRepoError, DatasetNotFoundError, HfHubHTTPError, OSError) as error:
        raise ValueError(_advice(benchmark, error)) from error


def _advice(benchmark: "Benchmark", error: Exception) -> str:
    page = f"https://huggingface.co/datasets/{benchmark.hub}"
    why = (str(error).splitlines() or [type(error).__name__])[0]
    if benchmark.gated:
        return f"{benchmark.key} is gated: accept its conditions on {page}, then `hf auth login` ({why})"
    return f"{benchmark.key} could not be had from {page}; a copy can stand in {VARIABLE}/{benchmark.key} ({why})"


def _usaco(place: Path) -> Iterator[Row]:
    """The problems of princeton-nlp/USACO's archive with their tests, wherever in the folder it was unpacked."""
    table = next(iter(sorted(place.rglob(USACO))), None)
    if table is None:
        raise ValueError(f"usaco: no {USACO} in {place}; unpack data.zip of princeton-nlp/USACO there")
    folders = {path.name: path for path in sorted(place.rglob("*")) if path.is_dir()}
    for name, problem in json.loads(table.read_text(encoding="utf-8")).items():
        tests = _pairs(folders[name]) if name in folders else []
        if tests:
            yield {**problem, "problem_id": name, "tests": tests}


def _pairs(folder: Path) -> list[tuple[str, str]]:
    """Tests in either naming: 1.in with 1.out, or I.1 with O.1."""
    given = {path.stem: path for path in folder.glob("*.in")} | {p.name[2:]: p for p in folder.glob("I.*")}
    wanted = {path.stem: path for path in folder.glob("*.out")} | {p.name[2:]: p for p in folder.glob("O.*")}
    both = sorted(given.keys() & wanted.keys(), key=lambda name: (len(name), name))
    return [(given[name].read_text(encoding="utf-8"), wanted[name].read_text(encoding="utf-8")) for name in both]
