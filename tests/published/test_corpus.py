"""SPICE's documents: uniform draws, byte limits, unreadable text counted, one reading, only segments read."""

import json
import os
from collections import Counter
from pathlib import Path
from random import Random
from unittest.mock import Mock

import pytest
from data_files import tables

from coevolve.methods.spice import SPICE
from published import corpus
from published.corpus import Mixture, TextCorpus, find

EMPTY = tables("mistakes")["corpus"]
pytestmark = pytest.mark.filterwarnings("ignore:corpus .* are left out")


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    place = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(place))
    return place


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two texts, JSON lines in a folder below, a hidden file, and five things that hold no text."""
    rows = ['{"text": "one"}', '{"content": "two"}', "", "no json", '{"text": "  "}', '{"id": 3, "text": "three"}']
    written(tmp_path, "a.txt", "alpha")
    written(tmp_path, "b.md", "Bär")
    written(tmp_path / "below", "c.jsonl", "\n".join(rows))
    written(tmp_path, "notes.pdf", "not text")
    written(tmp_path, ".hidden.txt", "hidden")
    (tmp_path / "latin.txt").write_bytes("Bär".encode("latin-1"))
    return written(tmp_path, "binary.txt", "text\0text")


def written(folder: Path, name: str, text: str) -> Path:
    """Write a file and return its folder."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text, "utf-8", newline="")
    return folder


def draws(source: TextCorpus, count: int, seed: int = 0) -> Counter:
    rng = Random(seed)
    return Counter(source.sample(rng) for _ in range(count))


def test_a_folder_gives_its_texts_and_lines_equally_often_and_counts_the_rest(folder: Path) -> None:
    line = "5 files or lines are left out, which are not .txt, .text, .*, not UTF-8, or have no text in text, "
    with pytest.warns(UserWarning, match=line):
        files = find(folder, limit=1000)
    assert (len(files), files.unreadable) == (5, 5)  # a PDF, latin, binary, a line that is no JSON, a blank one
    drawn = draws(files, 5000)
    assert set(drawn) == {"alpha", "Bär", "one", "two", "three"}
    assert all(850 < count < 1150 for count in drawn.values()), drawn  # 1000 +- 5 standard deviations
    with pytest.warns(UserWarning, match=line):  # also when they come out of the cache
        again = find(folder)
    assert draws(files, 50, 1) == draws(again, 50, 1) != draws(files, 50, 2)


def test_a_path_will_do_and_suffixes_in_capitals_count(tmp_path: Path) -> None:
    written(tmp_path, "NOTE.TXT", "a note about salt")
    written(tmp_path, "rows.JSONL", '{"text": "a row about bread"}\n')
    assert set(draws(find(tmp_path, limit=100), 20)) == {"a note about salt", "a row about bread"}
    assert SPICE(corpus=tmp_path).corpus == str(tmp_path)


@pytest.mark.parametrize("name", ["long.txt", "long.jsonl"])
def test_a_long_document_is_cut_to_whole_words_at_a_random_place(tmp_path: Path, name: str) -> None:
    words = " ".join(f"wörd{i}" for i in range(500))
    written(tmp_path, name, json.dumps({"text": words}) if name.endswith("jsonl") else words)
    files, rng = find(tmp_path, limit=60), Random(0)
    known, firsts = words.split(), []
    for text in (files.sample(rng) for _ in range(300)):
        found = text.split()
        assert 0 < len(text.encode()) <= 60
        firsts.append(known.index(found[0]))
        assert known[firsts[-1] : firsts[-1] + len(found)] == found, "whole words, in their order"
    assert min(firsts) < 50 and max(firsts) > 430 and len(set(firsts)) > 100
    assert find(tmp_path, limit=len(words.encode())).sample(rng) == words, "what fits is left whole"


TEXTS = [
    "漢字" * 100,  # cut between characters
    "\n".join("漢字" * 19 for _ in range(200)),
    "a" + " " * 20_000 + "https://" + "x" * 300 + "\n" * 20_000,
    "\ufeff" + "word " * 300,
    "one\r\n\r\n" * 400,
]


@pytest.mark.parametrize("text", TEXTS)
def test_no_draw_is_empty_where_blanks_are_rare_or_nearly_all(tmp_path: Path, text: str) -> None:
    drawn = list(draws(find(written(tmp_path, "a.txt", text), limit=120), 500).elements())
    assert all(0 < len(one.encode()) <= 120 and one == one.strip() and "\ufeff" not in one for one in drawn)
    assert len(set(drawn)) > 1 or len(set(text.split())) < 3
    filled = sum(len(one.encode()) for one in drawn) / len(drawn)
    assert filled > 60 or "  " in text, f"on average {filled} of 120 bytes"


def test_texts_are_read_once_and_drawn_by_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "big.txt", "word " * 200_000)
    assert len(find(tmp_path, limit=100)) == 1
    monkeypatch.setattr(corpus, "_rows_of_files", lambda *_: pytest.fail("read again"))
    read, whole_words = [], corpus._whole_words
    monkeypatch.setattr(corpus, "_whole_words", lambda raw, *cut: read.append(len(raw)) or whole_words(raw, *cut))
    assert draws(find(tmp_path, limit=200), 50) and set(read) == {200}, "the limit is applied when drawing"


def test_a_folder_that_changes_is_read_again(folder: Path) -> None:
    assert len(find(folder)) == 5
    assert len(find(written(folder, "new.txt", "new"))) == 6
    assert "another text" in draws(find(written(folder, "a.txt", "another text")), 200)


def test_the_field_with_the_text_can_be_named(tmp_path: Path) -> None:
    rows = [{"id": 1, "question": "Why?", "text": "one"}, {"id": 2, "question": "How?"}, {"text": "two"}]
    written(tmp_path, "rows.jsonl", "\n".join(map(json.dumps, rows)))
    written(tmp_path, "a.txt", "alpha")
    by_default, named = find(str(tmp_path)), find(f"{tmp_path}#question")
    assert set(draws(by_default, 100)) == {"one", "two", "alpha"} and by_default.unreadable == 1
    assert set(draws(named, 100)) == {"Why?", "How?", "alpha"} and named.unreadable == 1, "not the other's texts"
    assert set(draws(find(f"{tmp_path}/rows.jsonl#question"), 100)) == {"Why?", "How?"}
    assert set(draws(find(str(written(tmp_path / "c#", "b.txt", "beta"))), 10)) == {"beta"}, "a folder's own #"


@pytest.mark.parametrize(("file", "holds", "line"), EMPTY.values(), ids=EMPTY)
def test_a_folder_without_text_is_one_line_that_says_where_texts_are(file, holds, line, tmp_path: Path, cache: Path):
    with pytest.raises(ValueError, match=f"^corpus '{tmp_path}' holds no text: .*SOURCE#FIELD$") as error:
        find(written(tmp_path, file, holds))
    assert line in str(error.value) and "\n" not in str(error.value)
    assert not list(cache.rglob("*.arrow")), "nothing is kept"


def test_linked_folders_are_read_once_and_odd_lines_counted(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    written(tmp_path / "texts", "odd.jsonl", '\ufeff{}\n{"text": "half \\ud800 pair"}\n[' + "[" * 10_000 + "\n")
    os.symlink(tmp_path / "texts", tmp_path / "mine" / "link")
    os.symlink(tmp_path / "mine", tmp_path / "texts" / "back")
    os.symlink(tmp_path / "gone.txt", tmp_path / "mine" / "gone.txt")
    files = find(tmp_path / "mine")
    assert (len(files), files.unreadable, files.sample(Random(0))) == (1, 2, "half ? pair")


def test_sources_by_name(folder: Path) -> None:
    assert find("none") is None and find(["none"]) is None
    math, general, both = find("math", 10), find("general", 10), find("both", 10)
    assert (math.kind, len(math), general.kind) == ("math", 10, "general")
    assert [(part.kind, part.size) for part in both.parts] == [("math", 5), ("general", 5)]
    mixed = find([str(folder), "general"], 10)
    assert isinstance(mixed, Mixture) and len(mixed) == 10
    tiny_part = sum(count for text, count in draws(mixed, 2000).items() if ": " in text)
    assert 880 < tiny_part < 1120, "in equal parts, whatever the sizes"
    for name in ("nowhere", "", "a/b/c", "both ", "owner/name:x:y"):
        with pytest.raises(ValueError, match=f"^corpus must be one of math, general, both, none, .*, got {name!r}$"):
            find(name)
    with pytest.raises(ValueError, match="at least one source"):
        find(())


class Rows(list):
    """What `datasets` streams, by hand."""

    def shuffle(self, seed: int, buffer_size: int) -> "Rows":
        return Rows(reversed(self))

    def take(self, count: int) -> list[dict]:
        return self[:count]


def test_a_data_set_is_streamed_once_on_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows([{"text": f"document {i}", "url": "x"} for i in range(50)] + [{"url": "no text"}])
    load = Mock(return_value=rows)
    monkeypatch.setattr("datasets.load_dataset", load)
    source = find("owner/name:part", 20)
    assert find(["owner/name", "math"]).parts and not load.called, "naming it costs nothing"
    assert (len(source), source.unreadable) == (19, 1)
    assert set(draws(source, 1000)) == {f"document {i}" for i in range(31, 50)}, "not only the first pages"
    assert len(find("owner/name:part", 20)) == 19
    load.assert_called_once_with("owner/name", "part", split="train", streaming=True)  # the copy is in the cache
    assert (len(find("owner/name", 60)), find("owner/name", 60).unreadable) == (50, 1)


def test_a_data_sets_column_can_be_named(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    rows = Rows([{"question": f"question {i}", "reference_answer": "x", "responses": []} for i in range(5)])
    monkeypatch.setattr("datasets.load_dataset", Mock(return_value=rows))
    for name, fields in (("", "raw_content"), ("#responses", "responses"), ("#body", "body")):  # a list is no text
        with pytest.raises(ValueError, match=rf"{fields} \(here are .'question', 'ref.*#FIELD") as error:
            len(find(f"facebook/natural_reasoning{name}"))
        assert "\n" not in str(error.value) and not list(cache.rglob("*.arrow")), "nothing is kept"
    source = find("facebook/natural_reasoning#question")
    assert set(draws(source, 100)) == {f"question {i}" for i in range(5)} and source.unreadable == 0


def test_a_data_set_that_cannot_be_had_is_one_line(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    gone = FileNotFoundError("no such data set\nwith a long story")
    monkeypatch.setattr("datasets.load_dataset", Mock(side_effect=gone))
    with pytest.raises(ValueError, match="^corpus 'owner/gone' .*: no such data set$"):
        SPICE(corpus="owner/gone").before_run()
    assert not list(cache.rglob("*.arrow"))
