"""SPICE's documents: uniform draws, byte limits, unreadable text counted, one index, no scan, no held-out question."""

import json
import os
import re
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pytest

from coevolve.papers.spice.method import SPICE
from published import corpus, textfiles
from published.corpus import HubCorpus, Mixture, TinyCorpus, find
from published.textfiles import FileCorpus
from tinyworld import tasks as tiny


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch) -> Path:
    """A cache of the test's own."""
    place = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    return place / "coevolve" / "corpora"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two texts, JSON lines in a folder below, things that are no documents, and four that are unreadable."""
    (tmp_path / "a.txt").write_text("alpha", "utf-8")
    (tmp_path / "b.md").write_text("Bär", "utf-8")
    below = tmp_path / "below"
    below.mkdir()
    rows = ['{"text": "one"}', '{"content": "two"}', "", "no json", '{"text": "  "}', '{"id": 3, "text": "three"}']
    (below / "c.jsonl").write_text("\n".join(rows), "utf-8")
    (tmp_path / "notes.pdf").write_text("not text", "utf-8")
    (tmp_path / ".hidden.txt").write_text("hidden", "utf-8")
    (tmp_path / "latin.txt").write_bytes("Bär".encode("latin-1"))
    (tmp_path / "binary.txt").write_bytes(b"text\0text")
    return tmp_path


def draws(source: corpus.Corpus, count: int, seed: int = 0) -> Counter:
    rng = Random(seed)
    return Counter(source.sample(rng) for _ in range(count))


def test_a_folder_gives_its_texts_and_lines_equally_often_and_counts_the_rest(folder: Path) -> None:
    files = FileCorpus(folder, 1000)
    assert (len(files), files.unreadable) == (5, 4)  # latin, binary, one line that is no JSON, one that is blank
    drawn = draws(files, 5000)
    assert set(drawn) == {"alpha", "Bär", "one", "two", "three"}
    assert all(850 < count < 1150 for count in drawn.values()), drawn  # 1000 +- 5 standard deviations


def test_a_path_will_do_and_suffixes_in_capitals_count(tmp_path: Path) -> None:
    (tmp_path / "NOTE.TXT").write_text("a note about salt", encoding="utf-8")
    (tmp_path / "rows.JSONL").write_text('{"text": "a row about bread"}\n', encoding="utf-8")
    found = corpus.find(tmp_path, limit=100)
    assert {found.sample(Random(seed)) for seed in range(20)} == {"a note about salt", "a row about bread"}
    assert SPICE(corpus=tmp_path).corpus == str(tmp_path)


def test_draws_hang_on_the_rng_alone(folder: Path) -> None:
    first, again, other = (list(draws(FileCorpus(folder, 3), 50, seed).elements()) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("name", ["long.txt", "long.jsonl"])
def test_a_long_document_is_cut_to_whole_words_at_a_random_place(tmp_path: Path, name: str) -> None:
    words = " ".join(f"wörd{i}" for i in range(500))
    (tmp_path / name).write_text(json.dumps({"text": words}) if name.endswith("jsonl") else words, "utf-8")
    files, rng = FileCorpus(tmp_path, 60), Random(0)
    drawn = [files.sample(rng) for _ in range(300)]
    known = words.split()
    for text in drawn:
        found = text.split()
        assert 0 < len(text.encode()) <= 60
        at = known.index(found[0])
        assert known[at : at + len(found)] == found, "whole words, in their order"
    firsts = [known.index(text.split()[0]) for text in drawn]
    assert min(firsts) < 50 and max(firsts) > 430 and len(set(firsts)) > 100
    assert FileCorpus(tmp_path, len(words.encode())).sample(rng) == words, "what fits is left whole"


def test_text_without_blanks_is_cut_between_characters(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("漢字" * 100, "utf-8")
    files, rng = FileCorpus(tmp_path, 31), Random(0)
    for _ in range(50):
        text = files.sample(rng)
        assert set(text) == {"漢", "字"} and 9 <= len(text) <= 10


def test_a_draw_reads_only_the_segment(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "big.txt").write_text("word " * 200_000, "utf-8")
    (tmp_path / "lines.jsonl").write_text("\n".join(json.dumps({"text": f"line {i}"}) for i in range(5000)), "utf-8")
    files = FileCorpus(tmp_path, 100)
    read = []
    kept = textfiles._read
    monkeypatch.setattr(textfiles, "_read", lambda path, start, size: read.append(size) or kept(path, start, size))
    monkeypatch.setattr(textfiles, "_spans", lambda *_: pytest.fail("a draw scans"))
    rng = Random(0)
    for _ in range(200):
        files.sample(rng)
    assert len(read) == 200 and max(read) <= 100


def test_the_index_is_made_once_mapped_and_made_again_when_a_file_changes(folder: Path, cache: Path) -> None:
    first = FileCorpus(folder, 10)
    (kept,) = cache.glob("index-*.npy")
    stamp = kept.stat().st_mtime_ns
    again = FileCorpus(folder, 20)  # the limit is applied when drawing
    assert isinstance(again.rows, np.memmap) or isinstance(again.rows.base, np.memmap)
    assert (len(again), again.unreadable) == (len(first), 4)
    assert kept.stat().st_mtime_ns == stamp and len(list(cache.glob("index-*.npy"))) == 1
    (folder / "new.txt").write_text("new", "utf-8")
    assert len(FileCorpus(folder, 10)) == 6
    (folder / "a.txt").write_text("another text", "utf-8")
    assert "another text" in draws(FileCorpus(folder, 100), 200)


def test_without_a_cache_the_index_stays_in_memory(folder: Path, monkeypatch, tmp_path: Path) -> None:
    blocked = tmp_path / "file.pdf"
    blocked.write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    files = FileCorpus(folder, 100)
    assert (len(files), files.unreadable) == (5, 4) and len(draws(files, 300)) == 5


def test_the_field_with_the_text_can_be_named(tmp_path: Path, cache: Path) -> None:
    rows = [{"id": 1, "question": "Why?", "text": "one"}, {"id": 2, "question": "How?"}, {"text": "two"}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    (tmp_path / "a.txt").write_text("alpha", "utf-8")
    by_default, named = find(str(tmp_path)), find(f"{tmp_path}#question")
    assert set(draws(by_default, 100)) == {"one", "two", "alpha"} and by_default.unreadable == 1
    assert set(draws(named, 100)) == {"Why?", "How?", "alpha"} and named.unreadable == 1, "not the other's index"
    assert set(draws(find(f"{tmp_path}/rows.jsonl#question"), 100)) == {"Why?", "How?"}
    odd = tmp_path / "c#"
    odd.mkdir()
    (odd / "b.txt").write_text("beta", "utf-8")
    assert set(draws(find(str(odd)), 10)) == {"beta"}, "a folder's own # is none of ours"


@pytest.mark.parametrize("field", ["", "#body"])
def test_lines_without_a_known_field_name_those_they_have(tmp_path: Path, cache: Path, field: str) -> None:
    (tmp_path / "rows.jsonl").write_text('{"question": "Why?"}\n{"answer": "So"}\n', "utf-8")
    with pytest.raises(ValueError, match=r"rows.jsonl.*fields are \['answer', 'question'\].*#FIELD") as error:
        find(f"{tmp_path}{field}")
    assert "\n" not in str(error.value) and (field[1:] or "raw_content") in str(error.value)
    assert not cache.exists()
    (tmp_path / "a.txt").write_text("alpha", "utf-8")  # beside readable texts they are left out, and it is said
    with pytest.warns(UserWarning, match=r"2 files or lines are left out, which are not UTF-8 or have no text in "):
        assert set(draws(find(f"{tmp_path}{field}"), 20)) == {"alpha"}


@pytest.mark.parametrize(
    "text",
    [
        "\n".join("漢字" * 19 for _ in range(200)),
        "a" + " " * 20_000 + "https://" + "x" * 300 + "\n" * 20_000,
        "\ufeff" + "word " * 300,
        "one\r\n\r\n" * 400,
    ],
)
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_no_draw_is_empty_where_blanks_are_rare_or_nearly_all(tmp_path: Path, text: str, name: str) -> None:
    (tmp_path / name).write_text(json.dumps({"text": text}) if name.endswith("jsonl") else text, "utf-8")
    files, rng = FileCorpus(tmp_path, 120), Random(0)
    drawn = [files.sample(rng) for _ in range(500)]
    assert all(0 < len(its.encode()) <= 120 and its == its.strip() and "\ufeff" not in its for its in drawn)
    assert len(set(drawn)) > 1 or len(set(text.split())) < 3
    filled = sum(len(its.encode()) for its in drawn) / len(drawn)
    assert filled > 60 or "  " in text, f"on average {filled} of 120 bytes"


def test_a_file_with_only_a_byte_order_mark_is_no_document(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\ufeff", "utf-8")
    with pytest.raises(ValueError, match=r"holds no readable document \(.* in UTF-8; 1 unreadable\)"):
        find(str(tmp_path))
    (tmp_path / "utf16.txt").write_text("alpha", "utf-16")
    (tmp_path / "marked.txt").write_text("\ufeffalpha", "utf-8")
    assert set(draws(find(str(tmp_path)), 10)) == {"alpha"}


def test_linked_folders_are_read_once(tmp_path: Path) -> None:
    (tmp_path / "texts" / "deep").mkdir(parents=True)
    (tmp_path / "texts" / "deep" / "a.txt").write_text("alpha", "utf-8")
    (tmp_path / "mine").mkdir()
    os.symlink(tmp_path / "texts", tmp_path / "mine" / "link")
    os.symlink(tmp_path / "mine", tmp_path / "texts" / "back")
    assert len(FileCorpus(tmp_path / "mine", 100)) == 1


def test_links_to_nowhere_are_unreadable_and_odd_texts_are_documents(tmp_path: Path) -> None:
    os.symlink(tmp_path / "gone.txt", tmp_path / "link.txt")
    (tmp_path / "odd.jsonl").write_text('{"text": "half \\ud800 pair"}\n[' + "[" * 10_000 + "\n", "utf-8")
    files = FileCorpus(tmp_path, 100)
    assert (len(files), files.unreadable) == (1, 2)
    assert files.sample(Random(0)) == "half ? pair"


@pytest.mark.parametrize(
    "make",
    [lambda at: None, lambda at: (at / "x.txt").write_text(" \n"), lambda at: (at / "x.jsonl").write_text("{}\n")],
)
def test_a_folder_without_documents_is_one_clear_line(tmp_path: Path, make) -> None:
    make(tmp_path)
    with pytest.raises(ValueError, match="corpus .* holds no readable document") as error:
        find(str(tmp_path))
    assert "\n" not in str(error.value) and ".jsonl" in str(error.value)


@pytest.mark.parametrize("name", ["nowhere", "", "a/b/c", "both ", "owner/name:x:y"])
def test_an_unknown_source_names_what_is_allowed(name: str) -> None:
    with pytest.raises(ValueError, match="corpus must be one of math, general, both, none") as error:
        find(name)
    assert repr(name) in str(error.value)
    with pytest.raises(ValueError, match="at least one source"):
        find(())


def test_sources_by_name(folder: Path) -> None:
    assert find("none") is None and find(["none"]) is None
    math, general, both = find("math", 10), find("general", 10), find("both", 10)
    assert (math.kind, len(math), general.kind) == ("math", 10, "general")
    assert [(part.kind, part.size) for part in both.parts] == [("math", 5), ("general", 5)]
    assert isinstance(find(str(folder / "a.txt")), FileCorpus)
    mixed = find([str(folder), "general"], 10)
    assert isinstance(mixed, Mixture) and (len(mixed), mixed.unreadable) == (10, 4)
    tiny_part = sum(count for text, count in draws(mixed, 2000).items() if ": " in text)
    assert 880 < tiny_part < 1120, "in equal parts, whatever the sizes"


@pytest.mark.parametrize("kind", ["math", "general"])
def test_tiny_documents_state_facts_of_their_kind_and_no_held_out_question(kind: str) -> None:
    source = TinyCorpus(kind, 400)
    texts = [source.document(i) for i in range(400)]
    assert texts == [TinyCorpus(kind, 9999).document(i) for i in range(400)], "a document is a function of its number"
    assert len(set(texts)) > 300
    families = Counter()
    for text in texts:
        facts = re.split("; ", text)
        assert len(facts) == 2
        for fact in facts:
            question, _, answer = fact.rpartition(": ")
            task = tiny.read(question)
            assert tiny.right(question, answer) and tiny.split(question) == "train"
            families[task.family] += 1
    assert set(families) == set(corpus.FAMILIES[kind])
    assert set(draws(source, 50)) <= set(texts)


class Rows:
    """What `datasets` streams, by hand."""

    def __init__(self, rows: list[dict]):
        self.rows, self.asked = rows, []

    def shuffle(self, seed: int, buffer_size: int) -> "Rows":
        self.asked.append(("shuffle", seed))
        return self

    def take(self, count: int):
        return iter(self.rows[:count])


def test_a_data_set_is_streamed_once_on_first_use(monkeypatch, cache: Path) -> None:
    rows = Rows([{"text": f"document {i}", "url": "x"} for i in range(50)] + [{"url": "no text"}])
    calls = []

    def load(*args, **options):
        calls.append((args, options))
        return rows

    monkeypatch.setattr("datasets.load_dataset", load)
    source = find("owner/name:part", 20)
    assert isinstance(source, HubCorpus) and calls == [], "naming it costs nothing"
    assert (len(source), source.unreadable) == (20, 0)
    assert set(draws(source, 1000)) == {f"document {i}" for i in range(20)}
    assert calls == [(("owner/name", "part"), {"split": "train", "streaming": True})]
    assert rows.asked == [("shuffle", 0)], "not only the first pages of the data set"
    assert len(find("owner/name:part", 20)) == 20 and len(calls) == 1, "the copy is in the cache"
    assert (len(find("owner/name", 60)), find("owner/name", 60).unreadable) == (50, 1)


def test_a_data_sets_column_can_be_named(monkeypatch, cache: Path) -> None:
    rows = Rows([{"question": f"question {i}", "reference_answer": "x", "responses": []} for i in range(5)])
    monkeypatch.setattr("datasets.load_dataset", lambda *args, **options: rows)
    for name, fields in (("", "raw_content"), ("#responses", "responses"), ("#body", "body")):  # a list is no text
        with pytest.raises(ValueError, match=f"{fields}; its fields are .'question', 'ref.*#FIELD") as error:
            len(find(f"facebook/natural_reasoning{name}"))
        assert "\n" not in str(error.value) and not cache.exists(), "nothing is kept"
    source = find("facebook/natural_reasoning#question")
    assert set(draws(source, 100)) == {f"question {i}" for i in range(5)} and source.unreadable == 0
    assert [row for path in cache.glob("facebook*") for row in map(json.loads, path.open())] == [
        {"question": f"question {i}"} for i in range(5)
    ]


def test_a_data_set_that_cannot_be_had_is_one_line(monkeypatch, cache: Path) -> None:
    def load(*args, **options):
        raise FileNotFoundError("no such data set\nwith a long story")

    monkeypatch.setattr("datasets.load_dataset", load)
    with pytest.raises(ValueError, match="^corpus 'owner/gone' .*: no such data set$"):
        len(find("owner/gone"))
    assert not list(cache.glob("*")) if cache.exists() else True
