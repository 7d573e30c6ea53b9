"""Where rows come from: the mirror in every form, the hub at the pinned revision, and what is said without either."""

import json
from pathlib import Path
from unittest.mock import Mock

import mirror
import pytest
from datasets.exceptions import DatasetNotFoundError
from huggingface_hub import errors

from published import data

GOOD = b'{"question": "1+1?", "answer": "Two.\\n#### 2"}\n'
ANSWER = type("Answer", (), {"status_code": 403, "headers": {}, "request": None})()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mirror's folder of GSM8K and of ARC."""
    for key in ("gsm8k", "arc_c"):
        (tmp_path / key).mkdir()
    monkeypatch.setenv("COEVOLVE_DATA", str(tmp_path))
    return tmp_path


def test_numbered_parts_and_parquet_are_read_alike(place: Path) -> None:
    import pyarrow.parquet

    first, second = mirror.TESTS["arc_c"]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([first]), place / "arc_c/test-00000-of-00002.parquet")
    (place / "arc_c/test-00001-of-00002.jsonl").write_text(json.dumps(second))
    (place / "arc_c/testing.jsonl").write_text("{}")
    assert data.items("arc_c") == [data.item("arc_c", row) for row in (first, second)]


def test_a_line_separator_inside_a_text_does_not_end_the_row(place: Path) -> None:
    (place / "gsm8k/test.jsonl").write_bytes(GOOD.replace(b"1+1?", "one\u2028two\x85three".encode()))
    assert data.items("gsm8k")[0].question == "one\u2028two\x85three"


READ = " does not read as gsm8k's rows do ("
FAULTS = {  # a file of GSM8K, what it holds, and what the line says behind the file's path
    "no column": ("test.jsonl", GOOD + b'{"question": "2+2?"}', " row 2 has no column 'answer'"),
    "no object": ("test.jsonl", GOOD + GOOD + b"7", f" row 3{READ}"),
    "no JSON": ("test.jsonl", b"<html>", f" row 1{READ}Expecting value"),
    "no JSON in a line": ("test.jsonl", GOOD + b"{'a': 1}\n", f" row 2{READ}Expecting property"),
    "no parquet": ("test.parquet", b"PAR", " cannot be read: "),
    "no text": ("test.jsonl", b"\xff\xfe", " cannot be read: 'utf-8' codec"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_mirror_names_set_file_and_row(name: str, place: Path) -> None:
    file, holds, line = FAULTS[name]
    (place / "gsm8k" / file).write_bytes(holds)
    with pytest.raises(ValueError) as error:
        data.items("gsm8k")
    assert str(error.value).startswith(f"gsm8k: {place / 'gsm8k' / file}{line}") and "\n" not in str(error.value)


def test_what_the_mirror_lacks_is_named(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror.lines(place / "arc_c/test.jsonl", [{**mirror.TESTS["arc_c"][0], "choices": 3}])
    for key, line in {
        "gsm8k": r"^gsm8k: no test\.jsonl or \.parquet in ",
        "usaco": "^usaco cannot be downloaded .*COEVOLVE_DATA/usaco",
        "arc_c": r"test\.jsonl row 1 does not read as arc_c's rows do \('int' object",
    }.items():
        with pytest.raises(ValueError, match=line):
            data.items(key)
    monkeypatch.setenv("COEVOLVE_DATA", str(place / "nowhere"))
    with pytest.raises(ValueError, match="^COEVOLVE_DATA must be a folder"):
        data.items("gsm8k")


def rows(name: str, config: str | None = None, **options: object) -> list[dict]:
    """What the hub has."""
    return [{"question": f"{config} zork?", "answer": "#### 7", "input": f"{config}?", "target": "Yes"}]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Stands in for the hub: `load` gives rows, `facts` says that a file is there."""
    made = Mock()
    made.load.side_effect = rows
    monkeypatch.delenv("COEVOLVE_DATA", raising=False)
    data._loaded.cache_clear()
    monkeypatch.setattr("datasets.load_dataset", made.load)
    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", made.facts)
    return made


def test_without_a_mirror_the_hub_is_asked_for_the_pinned_revision(hub: Mock) -> None:
    assert [item.gold for item in data.items("gsm8k")] == ["7"]
    commit = "740312add88f781978c0658806c59bc2815b9866"
    data.items("gsm8k")
    hub.load.assert_called_once_with("openai/gsm8k", "main", split="test", revision=commit)
    assert [item.meta["subset"] for item in data.items("bbh")] == [*data.BENCHMARKS["bbh"].configs]
    hub.load.assert_any_call("SaylorTwift/bbh", "boolean_expressions", split="test", revision=None)
    data.check("gsm8k")
    assert hub.facts.call_args.args[0].endswith(f"datasets/openai/gsm8k/resolve/{commit}/README.md")


REFUSALS = [kind("odd\nsecond line") for kind in (DatasetNotFoundError, ConnectionError, errors.HTTPError)]
REFUSALS.append(errors.GatedRepoError("odd second line", response=ANSWER))


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: type(error).__name__)
def test_what_the_hub_refuses_says_what_to_do(hub: Mock, error: Exception) -> None:
    hub.load.side_effect = hub.facts.side_effect = error
    copy = "; a copy can stand in COEVOLVE_DATA/gpqa_main"
    with pytest.raises(ValueError) as said:
        data.items("gpqa_main")
    assert str(said.value) == f"gpqa_main: Idavidrein/gpqa could not be had (odd second line){copy}"
    with pytest.raises(ValueError, match=f"^gpqa_main cannot be had from the hub: .* needs HF_TOKEN{copy}$"):
        data.check("gpqa_main")


def test_script_based_sets_are_downloaded_as_files(hub: Mock, copies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (str(copies / "lcb_v1_5" / name) for name in ("test.jsonl", "test2.jsonl"))
    download = Mock(side_effect=[first, *[second] * 4])
    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    assert len(data.items("lcb_v1_5")) == 5 and not hub.load.called
    asked = download.call_args
    assert asked.args == ("livecodebench/code_generation_lite", "test5.jsonl")
    assert asked.kwargs["repo_type"] == "dataset" and asked.kwargs["revision"].startswith("0fe84c3")


def test_what_datasets_writes_is_a_mirror(hub: Mock, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from datasets import Dataset

    monkeypatch.delenv("COEVOLVE_DATA")
    there = data.items("gsm8k")
    Dataset.from_list(rows("openai/gsm8k", "main")).to_json(str(place / "gsm8k" / "test.jsonl"))
    monkeypatch.setenv("COEVOLVE_DATA", str(place))
    assert data.items("gsm8k") == there
