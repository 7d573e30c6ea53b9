"""SPICE's documents: uniform draws, byte limits, counts of unreadable text, and one reading."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from unittest.mock import Mock

import pytest
from data_files import tables

from coevolve.methods.spice import SPICE
from published import corpus
from published.corpus import Mixture, TextCorpus, find

FILES_WITHOUT_TEXT = tables("mistakes")["corpus"]
pytestmark = pytest.mark.filterwarnings("ignore:corpus .* are left out")


@pytest.fixture(autouse=True)
def cache(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A cache for this test only."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(folder))
    return folder


def write_file(folder: Path, name: str, text: str) -> Path:
    """Write a file and return its folder."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text, "utf-8", newline="")
    return folder


def write_json_lines(folder: Path, name: str, rows: Iterable[dict]) -> Path:
    """Write rows as JSON lines and return their folder."""
    lines = [json.dumps(row) for row in rows]
    return write_file(folder, name, "\n".join(lines))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two texts, JSON lines in a subfolder, a hidden file, and five things that hold no text."""
    lines = [
        '{"text": "one"}',
        '{"content": "two"}',
        "",
        "no json",
        '{"text": "  "}',
        '{"id": 3, "text": "three"}',
    ]
    write_file(tmp_path, "a.txt", "alpha")
    write_file(tmp_path, "b.md", "Bär")
    write_file(tmp_path / "below", "c.jsonl", "\n".join(lines))
    write_file(tmp_path, "notes.pdf", "not text")
    write_file(tmp_path, ".hidden.txt", "hidden")
    (tmp_path / "latin.txt").write_bytes("Bär".encode("latin-1"))
    write_file(tmp_path, "binary.txt", "text\0text")
    return tmp_path


def samples(source: TextCorpus, count: int, seed: int = 0) -> Iterator[str]:
    """Yield documents that are drawn from a corpus."""
    rng = Random(seed)
    for _ in range(count):
        yield source.sample(rng)


def draws(source: TextCorpus, count: int, seed: int = 0) -> Counter:
    """Count the documents that are drawn from a corpus."""
    return Counter(samples(source, count, seed))


class TestFolders:
    """Corpora of a folder or file."""

    WARNING = (
        "5 files or lines are left out because they are not .txt, .text, .*, "
        "are not UTF-8, or have no text in text, "
    )

    def test_every_text_and_line_is_drawn_equally_often(self, folder: Path) -> None:
        drawn = draws(find(folder, limit=1000), 5000)
        assert set(drawn) == {"alpha", "Bär", "one", "two", "three"}
        for count in drawn.values():
            assert 850 < count < 1150, drawn  # 1000 +- 5 standard deviations

    def test_unreadable_files_and_lines_are_counted(self, folder: Path) -> None:
        with pytest.warns(UserWarning, match=self.WARNING):
            files = find(folder, limit=1000)
        assert len(files) == 5
        # A PDF, Latin-1, a binary file, a line that is not JSON, a blank text.
        assert files.unreadable == 5

    def test_a_cached_folder_warns_and_draws_the_same(self, folder: Path) -> None:
        files = find(folder, limit=1000)
        with pytest.warns(UserWarning, match=self.WARNING):
            cached_files = find(folder)
        assert draws(files, 50, seed=1) == draws(cached_files, 50, seed=1)
        assert draws(files, 50, seed=1) != draws(files, 50, seed=2)

    def test_a_path_is_accepted_and_suffixes_may_be_upper_case(
        self, tmp_path: Path
    ) -> None:
        write_file(tmp_path, "NOTE.TXT", "a note about salt")
        write_file(tmp_path, "rows.JSONL", '{"text": "a row about bread"}\n')
        drawn = draws(find(tmp_path, limit=100), 20)
        assert set(drawn) == {"a note about salt", "a row about bread"}
        assert SPICE(corpus=tmp_path).corpus == str(tmp_path)

    def test_a_folder_that_changes_is_read_again(self, folder: Path) -> None:
        assert len(find(folder)) == 5
        write_file(folder, "new.txt", "new")
        assert len(find(folder)) == 6
        write_file(folder, "a.txt", "another text")
        assert "another text" in draws(find(folder), 200)

    def test_linked_folders_are_read_once_and_odd_lines_are_counted(
        self, tmp_path: Path
    ) -> None:
        texts = tmp_path / "texts"
        root = tmp_path / "root"
        root.mkdir()
        lines = [
            "\ufeff{}",
            '{"text": "half \\ud800 pair"}',
            "[" * 10_001,
            "",
        ]
        write_file(texts, "odd.jsonl", "\n".join(lines))
        os.symlink(texts, root / "link")
        os.symlink(root, texts / "back")
        os.symlink(tmp_path / "gone.txt", root / "gone.txt")
        files = find(root)
        assert len(files) == 1
        assert files.unreadable == 2
        assert files.sample(Random(0)) == "half ? pair"

    @pytest.mark.parametrize(
        ("file", "content", "reason"),
        FILES_WITHOUT_TEXT.values(),
        ids=FILES_WITHOUT_TEXT,
    )
    def test_the_error_for_a_folder_without_text_says_where_texts_belong(
        self, file: str, content: str, reason: str, tmp_path: Path, cache: Path
    ) -> None:
        write_file(tmp_path, file, content)
        message = f"^corpus '{tmp_path}' holds no text: .*SOURCE#FIELD$"
        with pytest.raises(ValueError, match=message) as error:
            find(tmp_path)
        assert reason in str(error.value)
        assert "\n" not in str(error.value)
        assert not list(cache.rglob("*.arrow")), "nothing is kept"


class TestFields:
    """The field that holds the text, which a # names."""

    @pytest.fixture(autouse=True)
    def rows(self, tmp_path: Path) -> None:
        rows = [
            {"id": 1, "question": "Why?", "text": "one"},
            {"id": 2, "question": "How?"},
            {"text": "two"},
        ]
        write_json_lines(tmp_path, "rows.jsonl", rows)
        write_file(tmp_path, "a.txt", "alpha")

    def test_the_default_is_the_first_known_field(self, tmp_path: Path) -> None:
        source = find(str(tmp_path))
        assert set(draws(source, 100)) == {"one", "two", "alpha"}
        assert source.unreadable == 1

    def test_a_folder_can_name_the_field(self, tmp_path: Path) -> None:
        source = find(f"{tmp_path}#question")
        assert set(draws(source, 100)) == {"Why?", "How?", "alpha"}
        assert source.unreadable == 1, "not the default field's texts"

    def test_a_file_can_name_the_field(self, tmp_path: Path) -> None:
        source = find(f"{tmp_path}/rows.jsonl#question")
        assert set(draws(source, 100)) == {"Why?", "How?"}

    def test_a_folders_name_may_contain_the_mark(self, tmp_path: Path) -> None:
        folder = write_file(tmp_path / "c#", "b.txt", "beta")
        assert set(draws(find(str(folder)), 10)) == {"beta"}


class TestSegments:
    """Documents that are longer than the limit."""

    @pytest.mark.parametrize("name", ["long.txt", "long.jsonl"])
    def test_a_long_document_is_cut_to_whole_words_at_a_random_place(
        self, tmp_path: Path, name: str
    ) -> None:
        words = [f"wörd{i}" for i in range(500)]
        text = " ".join(words)
        if name == "long.jsonl":
            write_json_lines(tmp_path, name, [{"text": text}])
        else:
            write_file(tmp_path, name, text)
        starts = []
        for segment in samples(find(tmp_path, limit=60), 300):
            assert 0 < len(segment.encode()) <= 60
            segment_words = segment.split()
            start = words.index(segment_words[0])
            end = start + len(segment_words)
            assert words[start:end] == segment_words, "whole words, in their order"
            starts.append(start)
        assert min(starts) < 50
        assert max(starts) > 430
        assert len(set(starts)) > 100

    def test_a_document_that_fits_the_limit_is_not_cut(self, tmp_path: Path) -> None:
        text = " ".join(f"wörd{i}" for i in range(500))
        write_file(tmp_path, "long.txt", text)
        source = find(tmp_path, limit=len(text.encode()))
        assert source.sample(Random(0)) == text

    SPARSE_TEXTS = [
        "漢字" * 100,  # cut between characters
        "\n".join(["漢字" * 19] * 200),
        "a" + " " * 20_000 + "https://" + "x" * 300 + "\n" * 20_000,
        "\ufeff" + "word " * 300,
        "one\r\n\r\n" * 400,
    ]

    @pytest.mark.parametrize("text", SPARSE_TEXTS)
    def test_no_draw_is_empty_where_spaces_are_rare_or_nearly_all(
        self, tmp_path: Path, text: str
    ) -> None:
        write_file(tmp_path, "a.txt", text)
        segments = list(samples(find(tmp_path, limit=120), 500))
        sizes = [len(segment.encode()) for segment in segments]
        for segment, size in zip(segments, sizes, strict=True):
            assert 0 < size <= 120
            assert segment == segment.strip()
            assert "\ufeff" not in segment
        has_one_word = len(set(text.split())) < 3
        assert len(set(segments)) > 1 or has_one_word
        mean_size = sum(sizes) / len(sizes)
        assert mean_size > 60 or "  " in text

    def test_texts_are_read_once_and_drawn_by_segments(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_file(tmp_path, "big.txt", "word " * 200_000)
        assert len(find(tmp_path, limit=100)) == 1

        def read_again(*_: object) -> None:
            pytest.fail("read again")

        sizes = set()
        whole_words = corpus._whole_words

        def measure(segment: bytes, *cut: bool) -> str:
            sizes.add(len(segment))
            return whole_words(segment, *cut)

        monkeypatch.setattr(corpus, "_rows_of_files", read_again)
        monkeypatch.setattr(corpus, "_whole_words", measure)
        assert draws(find(tmp_path, limit=200), 50)
        assert sizes == {200}, "the limit is applied when drawing"


class TestNames:
    """Sources that are named: of the tiny world, several at once, none, unknown ones."""

    def test_none_is_no_corpus(self) -> None:
        assert find("none") is None
        assert find(["none"]) is None

    def test_the_tiny_world_has_two_kinds_of_documents(self) -> None:
        math = find("math", 10)
        assert math.kind == "math"
        assert len(math) == 10
        assert find("general", 10).kind == "general"

    def test_both_halves_the_size(self) -> None:
        both = find("both", 10)
        kinds = [(part.kind, part.size) for part in both.parts]
        assert kinds == [("math", 5), ("general", 5)]

    def test_several_names_are_mixed_in_equal_parts(self, folder: Path) -> None:
        mixed = find([str(folder), "general"], 10)
        assert isinstance(mixed, Mixture)
        assert len(mixed) == 10
        tiny_count = sum(": " in text for text in samples(mixed, 2000))
        assert 880 < tiny_count < 1120, "equal parts, whatever the sizes"

    @pytest.mark.parametrize(
        "name", ["nowhere", "", "a/b/c", "both ", "owner/name:x:y"]
    )
    def test_the_error_for_an_unknown_name_lists_what_is_allowed(
        self, name: str
    ) -> None:
        message = f"^corpus must be one of math, general, both, none, .*, got {name!r}$"
        with pytest.raises(ValueError, match=message):
            find(name)

    def test_no_name_is_refused(self) -> None:
        with pytest.raises(ValueError, match="at least one source"):
            find(())


class StreamedRows(list):
    """A stand-in for the rows that `datasets` streams; shuffling reverses them."""

    def shuffle(self, seed: int, buffer_size: int) -> "StreamedRows":
        return StreamedRows(reversed(self))

    def take(self, count: int) -> list[dict]:
        return self[:count]


class TestHub:
    """Data sets of the hub."""

    @pytest.fixture
    def load(self, monkeypatch: pytest.MonkeyPatch) -> Mock:
        """Stand in for the hub, which has fifty documents and a row without text."""
        rows = [{"text": f"document {i}", "url": "x"} for i in range(50)]
        rows.append({"url": "no text"})
        mock = Mock(return_value=StreamedRows(rows))
        monkeypatch.setattr("datasets.load_dataset", mock)
        return mock

    def test_naming_a_data_set_loads_nothing(self, load: Mock) -> None:
        find("owner/name:part", 20)
        assert find(["owner/name", "math"]).parts
        assert not load.called

    def test_a_data_set_is_streamed_once_on_first_use(self, load: Mock) -> None:
        source = find("owner/name:part", 20)
        assert len(source) == 19
        assert source.unreadable == 1
        last_documents = {f"document {i}" for i in range(31, 50)}
        assert set(draws(source, 1000)) == last_documents, "not only the first pages"
        assert len(find("owner/name:part", 20)) == 19  # from the cache
        load.assert_called_once_with(
            "owner/name", "part", split="train", streaming=True
        )

    def test_a_data_set_may_be_smaller_than_the_size(self, load: Mock) -> None:
        source = find("owner/name", 60)
        assert len(source) == 50
        assert find("owner/name", 60).unreadable == 1

    @pytest.fixture
    def load_questions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Stand in for a data set that has its texts in an unusual column."""
        rows = StreamedRows()
        for i in range(5):
            row = {
                "question": f"question {i}",
                "reference_answer": "x",
                "responses": [],
            }
            rows.append(row)
        monkeypatch.setattr("datasets.load_dataset", Mock(return_value=rows))

    @pytest.mark.usefixtures("load_questions")
    def test_the_column_of_a_data_set_can_be_named(self) -> None:
        source = find("facebook/natural_reasoning#question")
        assert set(draws(source, 100)) == {f"question {i}" for i in range(5)}
        assert source.unreadable == 0

    @pytest.mark.usefixtures("load_questions")
    @pytest.mark.parametrize(
        ("name", "last_field"),
        [
            ("facebook/natural_reasoning", "raw_content"),
            ("facebook/natural_reasoning#responses", "responses"),  # a list is not text
            ("facebook/natural_reasoning#body", "body"),
        ],
    )
    def test_the_error_for_a_column_without_text_lists_the_columns(
        self, name: str, last_field: str, cache: Path
    ) -> None:
        message = rf"{last_field} \(got .'question', 'ref.*#FIELD"
        with pytest.raises(ValueError, match=message) as error:
            len(find(name))
        assert "\n" not in str(error.value)
        assert not list(cache.rglob("*.arrow")), "nothing is kept"

    def test_the_error_for_a_missing_data_set_is_one_line(
        self, monkeypatch: pytest.MonkeyPatch, cache: Path
    ) -> None:
        refusal = FileNotFoundError("no such data set\nwith a long story")
        monkeypatch.setattr("datasets.load_dataset", Mock(side_effect=refusal))
        with pytest.raises(
            ValueError, match="^corpus 'owner/gone' .*: no such data set$"
        ):
            SPICE(corpus="owner/gone").before_run()
        assert not list(cache.rglob("*.arrow"))
