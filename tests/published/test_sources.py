"""Where rows come from: the mirror in every form, the hub at the pinned revision, and refusals."""

import json
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import Mock

import mirror
import pytest
from datasets.exceptions import DatasetNotFoundError
from huggingface_hub import errors

from published import data

GOOD_ROW = b'{"question": "1+1?", "answer": "Two.\\n#### 2"}\n'
GSM8K_COMMIT = "740312add88f781978c0658806c59bc2815b9866"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mirror with empty folders for GSM8K and ARC."""
    for key in ("gsm8k", "arc_c"):
        (tmp_path / key).mkdir()
    monkeypatch.setenv("COEVOLVE_DATA", str(tmp_path))
    return tmp_path


class TestMirror:
    """Rows of files."""

    def test_numbered_parts_and_parquet_are_read_alike(self, root: Path) -> None:
        import pyarrow.parquet

        folder = root / "arc_c"
        first, second = mirror.TESTS["arc_c"]
        first_part = folder / "test-00000-of-00002.parquet"
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([first]), first_part)
        (folder / "test-00001-of-00002.jsonl").write_text(json.dumps(second))
        (folder / "testing.jsonl").write_text("{}")
        expected = [data.item("arc_c", first), data.item("arc_c", second)]
        assert data.items("arc_c") == expected

    def test_a_line_separator_inside_a_text_does_not_end_the_row(
        self, root: Path
    ) -> None:
        question = "one\u2028two\x85three"
        row = GOOD_ROW.replace(b"1+1?", question.encode())
        (root / "gsm8k/test.jsonl").write_bytes(row)
        assert data.items("gsm8k")[0].question == question

    def test_an_empty_folder_is_named(self, root: Path) -> None:
        message = r"^gsm8k: no test\.jsonl or \.parquet in "
        with pytest.raises(ValueError, match=message):
            data.items("gsm8k")

    def test_a_data_set_without_a_download_is_named(self, root: Path) -> None:
        message = "^usaco cannot be downloaded .*COEVOLVE_DATA/usaco"
        with pytest.raises(ValueError, match=message):
            data.items("usaco")

    def test_a_column_of_another_type_is_named(self, root: Path) -> None:
        row = {**mirror.TESTS["arc_c"][0], "choices": 3}
        mirror.write_rows(root / "arc_c/test.jsonl", [row])
        message = r"test\.jsonl row 1 is not a row of arc_c \('int' object"
        with pytest.raises(ValueError, match=message):
            data.items("arc_c")

    def test_the_mirror_must_be_a_folder(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COEVOLVE_DATA", str(root / "nowhere"))
        with pytest.raises(ValueError, match="^COEVOLVE_DATA must be a folder"):
            data.items("gsm8k")


@dataclass(frozen=True)
class Fault:
    """A file of GSM8K that cannot be read."""

    file: str
    content: bytes
    message: str  # after the file's path


NOT_A_ROW = " is not a row of gsm8k ("
FAULTS = {
    "no column": Fault(
        "test.jsonl",
        GOOD_ROW + b'{"question": "2+2?"}',
        " row 2 has no column 'answer'",
    ),
    "no object": Fault(
        "test.jsonl",
        GOOD_ROW + GOOD_ROW + b"7",
        f" row 3{NOT_A_ROW}",
    ),
    "no JSON": Fault(
        "test.jsonl",
        b"<html>",
        f" row 1{NOT_A_ROW}Expecting value",
    ),
    "no JSON in a line": Fault(
        "test.jsonl",
        GOOD_ROW + b"{'a': 1}\n",
        f" row 2{NOT_A_ROW}Expecting property",
    ),
    "no parquet": Fault("test.parquet", b"PAR", " cannot be read: "),
    "no text": Fault("test.jsonl", b"\xff\xfe", " cannot be read: 'utf-8' codec"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_the_error_for_a_bad_file_names_data_set_file_and_row(
    fault: Fault, root: Path
) -> None:
    file = root / "gsm8k" / fault.file
    file.write_bytes(fault.content)
    with pytest.raises(ValueError) as error:
        data.items("gsm8k")
    assert str(error.value).startswith(f"gsm8k: {file}{fault.message}")
    assert "\n" not in str(error.value)


def hub_rows(name: str, config: str | None = None, **options: object) -> list[dict]:
    """Return the rows that the hub has of every data set."""
    row = {
        "question": f"{config} zork?",
        "answer": "#### 7",
        "input": f"{config}?",
        "target": "Yes",
    }
    return [row]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Stand in for the hub: `load` returns rows, `metadata` says that a file exists."""
    hub = Mock()
    hub.load.side_effect = hub_rows
    monkeypatch.delenv("COEVOLVE_DATA", raising=False)
    data._load_split.cache_clear()
    monkeypatch.setattr("datasets.load_dataset", hub.load)
    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", hub.metadata)
    return hub


class TestHub:
    """Rows of the hub, which is used without a mirror."""

    def test_a_data_set_is_loaded_once_at_the_pinned_revision(self, hub: Mock) -> None:
        golds = [item.gold for item in data.items("gsm8k")]
        assert golds == ["7"]
        data.items("gsm8k")
        hub.load.assert_called_once_with(
            "openai/gsm8k", "main", split="test", revision=GSM8K_COMMIT
        )

    def test_every_configuration_is_loaded(self, hub: Mock) -> None:
        subsets = [item.meta["subset"] for item in data.items("bbh")]
        assert subsets == list(data.BENCHMARKS["bbh"].configs)
        hub.load.assert_any_call(
            "SaylorTwift/bbh", "boolean_expressions", split="test", revision=None
        )

    def test_the_check_requests_a_file_at_the_pinned_revision(self, hub: Mock) -> None:
        data.check("gsm8k")
        url = hub.metadata.call_args.args[0]
        assert url.endswith(f"datasets/openai/gsm8k/resolve/{GSM8K_COMMIT}/README.md")

    def test_a_script_based_data_set_is_downloaded_as_files(
        self, hub: Mock, copies: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = str(copies / "lcb_v1_5" / "test.jsonl")
        second = str(copies / "lcb_v1_5" / "test2.jsonl")
        download = Mock(side_effect=[first, second, second, second, second])
        monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
        assert len(data.items("lcb_v1_5")) == 5
        assert not hub.load.called
        last_call = download.call_args
        assert last_call.args == ("livecodebench/code_generation_lite", "test5.jsonl")
        assert last_call.kwargs["repo_type"] == "dataset"
        assert last_call.kwargs["revision"].startswith("0fe84c3")

    def test_files_that_datasets_writes_are_a_mirror(
        self, hub: Mock, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from datasets import Dataset

        monkeypatch.delenv("COEVOLVE_DATA")
        items_of_hub = data.items("gsm8k")
        dataset = Dataset.from_list(hub_rows("openai/gsm8k", "main"))
        dataset.to_json(str(root / "gsm8k" / "test.jsonl"))
        monkeypatch.setenv("COEVOLVE_DATA", str(root))
        assert data.items("gsm8k") == items_of_hub


FORBIDDEN_RESPONSE = Mock(status_code=403, headers={}, request=None)
REFUSALS = [
    DatasetNotFoundError("odd\nsecond line"),
    ConnectionError("odd\nsecond line"),
    errors.HTTPError("odd\nsecond line"),
    errors.GatedRepoError("odd second line", response=FORBIDDEN_RESPONSE),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda error: type(error).__name__)
class TestRefusal:
    """Messages about what the hub refuses, which say what to do."""

    ADVICE = "; or put a copy into COEVOLVE_DATA/gpqa_main"

    def test_loading_quotes_the_refusal(self, hub: Mock, refusal: Exception) -> None:
        hub.load.side_effect = refusal
        with pytest.raises(ValueError) as error:
            data.items("gpqa_main")
        assert str(error.value) == (
            "gpqa_main: Idavidrein/gpqa could not be loaded (odd second line)"
            f"{self.ADVICE}"
        )

    def test_the_check_mentions_the_token(self, hub: Mock, refusal: Exception) -> None:
        hub.metadata.side_effect = refusal
        message = (
            f"^gpqa_main cannot be had from the hub: .* needs HF_TOKEN{self.ADVICE}$"
        )
        with pytest.raises(ValueError, match=message):
            data.check("gpqa_main")
