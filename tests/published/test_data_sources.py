"""Where rows come from: the mirror in every form, the hub at the pinned revision, and what is said without either."""

import json
from pathlib import Path

import mirror
import pytest

from published import data
from published.rows import Item


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mirror.write(tmp_path_factory.mktemp("mirror"))


@pytest.fixture(autouse=True)
def local(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COEVOLVE_DATA", str(folder))


def one(key: str, n: int = 0) -> Item:
    return data.items(key)[n]


def test_numbered_parts_and_parquet_and_json_are_read_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow
    import pyarrow.parquet

    place = tmp_path / "arc_c"
    place.mkdir()
    table = pyarrow.Table.from_pylist(mirror.TESTS["arc_c"][:1])
    pyarrow.parquet.write_table(table, place / "test-00000-of-00002.parquet")
    (place / "test-00001-of-00002.json").write_text(json.dumps(mirror.TESTS["arc_c"][1:]))
    (place / "testing.jsonl").write_text("{}")
    there = data.items("arc_c")
    monkeypatch.setenv("COEVOLVE_DATA", str(tmp_path))
    assert data.items("arc_c") == there


def test_a_line_separator_inside_a_text_does_not_end_the_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "aime25").mkdir()
    row = {"id": 3, "problem": "one\u2028two\x85three", "answer": "7"}
    (tmp_path / "aime25" / "train.jsonl").write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")
    monkeypatch.setenv("COEVOLVE_DATA", str(tmp_path))
    assert one("aime25").question == "one\u2028two\x85three"


def test_what_the_mirror_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gsm8k").mkdir()
    monkeypatch.setenv("COEVOLVE_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=r"^gsm8k: no test\.jsonl, \.json or \.parquet in "):
        data.items("gsm8k")
    with pytest.raises(ValueError, match=r"^usaco cannot be downloaded .*COEVOLVE_DATA/usaco$"):
        data.items("usaco")
    monkeypatch.setenv("COEVOLVE_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match="^COEVOLVE_DATA must be a folder"):
        data.items("gsm8k")


class Hub:
    """Stands in for the hub: what is asked of it, and what it says."""

    def __init__(self, error: Exception | None = None):
        self.asked, self.error = [], error

    def load(self, hub: str, config: str | None = None, **options: object) -> list[dict]:
        self.asked.append((hub, config, options))
        if self.error:
            raise self.error
        return [{"question": f"{config} zork?", "answer": "#### 7", "input": f"{config}?", "target": "Yes"}]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    made = Hub()
    monkeypatch.delenv("COEVOLVE_DATA")
    data._loaded.cache_clear()
    monkeypatch.setattr("datasets.load_dataset", made.load)
    return made


def test_without_a_mirror_the_hub_is_asked_for_the_pinned_revision(hub: Hub) -> None:
    assert [item.gold for item in data.items("gsm8k")] == ["7"]
    pinned = {"split": "test", "revision": "740312add88f781978c0658806c59bc2815b9866"}
    assert hub.asked == [("openai/gsm8k", "main", pinned)]
    data.items("gsm8k")
    assert len(hub.asked) == 1  # read once
    assert len(data.items("bbh")) == 27
    assert hub.asked[1] == ("SaylorTwift/bbh", "boolean_expressions", {"split": "test"})


def test_gated_sets_say_what_to_do(hub: Hub) -> None:
    from datasets.exceptions import DatasetNotFoundError

    hub.error = DatasetNotFoundError("gated\nsecond line")
    with pytest.raises(ValueError, match=r"^gpqa_main is gated: accept its conditions on https://\S+/gpqa, "):
        data.items("gpqa_main")
    with pytest.raises(ValueError, match=r"^nq could not be had from \S+; a copy can stand in COEVOLVE_DATA/nq"):
        data.items("nq")


def test_a_network_that_fails_is_not_called_a_gate(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants, errors

    lost = [
        ConnectionError("Couldn't reach it"),
        errors.LocalEntryNotFoundError("not here"),
        errors.HTTPError("no way"),
    ]
    for hub.error in lost:
        for key in ("gpqa_main", "nq"):
            with pytest.raises(ValueError) as error:
                data.items(key)
            assert str(error.value).startswith(f"{key} is not in the cache, and the hub cannot be reached (")
            assert "gated" not in str(error.value) and "COEVOLVE_DATA" in str(error.value)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match="^gpqa_main is not in the cache, and HF_HUB_OFFLINE forbids asking the hub;"):
        data.items("gpqa_main")


GOOD = {"question": "1+1?", "answer": "Two.\n#### 2"}
BROKEN = {  # a file of GSM8K, its text, and what the line says behind the file's path
    "no column": ("test.jsonl", [GOOD, {"question": "2+2?"}], " row 2 has no column 'answer'"),
    "column of another kind": (
        "test.json",
        [[GOOD, {"question": [], "answer": "#### 7"}]],
        " row 2 does not read as gsm8k's rows do (",
    ),
    "no object": ("test.jsonl", [GOOD, GOOD, 7], " row 3 must be an object with the set's columns, got 7"),
    "no list": ("test.json", [GOOD], " cannot be read: expected a list of rows, got dict"),
    "no JSON": ("test.json", "<html>", " cannot be read: Expecting value"),
    "no JSON in a line": ("test.jsonl", json.dumps(GOOD) + "\n{'a': 1}\n", " row 2 cannot be read: Expecting property"),
    "no parquet": ("test.parquet", "PAR", " cannot be read: "),
    "no text": ("test.jsonl", b"\xff\xfe", " cannot be read: 'utf-8' codec"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_fault_of_the_mirror_names_set_file_and_row(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, holds, line = BROKEN[name]
    place = tmp_path / "gsm8k" / file
    place.parent.mkdir()
    text = "\n".join(map(json.dumps, holds)) if isinstance(holds, list) else holds
    place.write_bytes(text if isinstance(text, bytes) else text.encode())
    monkeypatch.setenv("COEVOLVE_DATA", str(tmp_path))
    with pytest.raises(ValueError) as error:
        data.items("gsm8k")
    said = str(error.value)
    assert said.startswith(f"gsm8k: {place}{line}") and "\n" not in said


def test_script_based_sets_are_downloaded_as_files(hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def download(hub_id: str, name: str, **options: object) -> str:
        asked.append((hub_id, name, options["repo_type"], options["revision"][:7]))
        return str(folder / "lcb_v1_5" / ("test.jsonl" if name == "test.jsonl" else "test2.jsonl"))

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    assert len(data.items("lcb_v1_5")) == 5
    assert asked[4] == ("livecodebench/code_generation_lite", "test5.jsonl", "dataset", "0fe84c3")
    assert not hub.asked


def test_what_datasets_writes_is_a_mirror(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from datasets import Dataset

    there = data.items("gsm8k")
    Dataset.from_list(hub.load("openai/gsm8k", "main")).to_json(str(tmp_path / "gsm8k" / "test.jsonl"))
    monkeypatch.setenv("COEVOLVE_DATA", str(tmp_path))
    assert data.items("gsm8k") == there
