"""The papers' data sets offline: every row of the registry, from files in the original schema to a score."""

import base64
import re
import zlib
from pathlib import Path

import mirror
import pytest
from data_files import tables

from published import data, rows
from published.grading import grade
from published.judge import KINDS
from published.rows import Item, normal

LISTED = Path(__file__).parents[2] / "docs" / "data.md"
pytestmark = pytest.mark.usefixtures("local")


def answers(item: Item) -> tuple[str, str]:
    """A perfect answer and a wrong one; for code a program that passes the item's tests and one that fails them."""
    known = {"choice": "B" if item.gold == "A" else "A", "float": "987654", "math": "987654"}
    wrong = (known | {"code": "def double(n):\n    return n"}).get(item.scorer, "no such thing")
    return mirror.PROGRAMS.get(f"{item.family}/{item.id}", (item.answer, wrong))


@pytest.mark.parametrize("key", data.BENCHMARKS)
def test_an_echoed_gold_is_right_and_a_wrong_answer_is_wrong(key: str) -> None:
    known, found = data.BENCHMARKS[key], data.items(key)[:4]
    assert known.licence and known.judge in KINDS or known.scorer == "code"
    assert not known.origin or known.origin in data.BENCHMARKS
    assert not known.hub or re.fullmatch(r"[\w.-]+/[\w.-]+", known.hub)
    assert known.revision is None or re.fullmatch(r"[0-9a-f]{40}", known.revision)
    assert found, "the mirror has no usable row"
    for item in found:
        assert (item.family, item.split) == (key, "test")
        assert item.level is item.misconception is item.temperature is None
        assert item.question.strip() and item.stem.strip() and normal(item.stem) in normal(item.question)
        right, wrong = answers(item)
        if item.scorer == "judge":
            assert grade(item, right).correct is None
            continue
        verdicts = [grade(item, answer).correct for answer in (right, wrong, None)]
        assert verdicts == [True, False, False], grade(item, right)
        if item.scorer == "code":  # as models write programs
            assert grade(item, f"Here it is:\n```python\n{right}\n```\nDone.").correct is True


EXPECTED = tables("published")
GOLDS = EXPECTED["golds"]


@pytest.mark.parametrize("key", GOLDS)
def test_golds(key: str) -> None:
    assert [item.gold for item in data.items(key)] == GOLDS[key]


VERDICTS = {(key, int(n)): row for key, rows in EXPECTED["verdicts"].items() for n, row in rows.items()}


@pytest.mark.parametrize(("key", "number"), VERDICTS)
def test_verdicts(key: str, number: int) -> None:
    right, not_right = VERDICTS[key, number]
    item = data.items(key)[number]
    assert [grade(item, answer).correct for answer in right] == [True] * len(right)
    assert [grade(item, answer).correct for answer in not_right] == [False] * len(not_right)


def test_questions_as_the_solver_reads_them() -> None:
    first = {key: data.items(key)[0].question for key in data.BENCHMARKS}
    assert first["boolq"] == "The zork is blue.\n\nis the zork blue\n\nAnswer yes or no."
    options = "(A) flies\n(B) enters\n"
    assert first["hellaswag"].startswith(f"Which ending continues the text best?\nHe opens it and\n{options}")
    assert first["mbpp"] == "Double!\nYour function has to pass this test:\nassert double(2) == 4"
    assert first["scibench"] == 'How long is the wire?\nThe unit of the answer should be "cm".'
    assert first["livebench_reasoning"] == "Who lies, Ann or Bob?"
    assert data.items("olympiadbench")[1].question == "How long? The unit of the answer is cm."
    assert data.items("scibench")[1].question == "How small is it?"


def test_gpqa_options_are_shuffled_per_item_and_the_same_everywhere() -> None:
    found = data.items("gpqa_main")
    assert len(found) == 60 and {item.gold for item in found} == {*"ABCD"}
    for item in found:
        assert re.search(rf"\({item.gold}\) (.*)", item.question)[1] == f"{item.id.removeprefix('rec')} zorks"
        assert "zorks \n" not in item.question  # blanks around options would give answers away
    assert {item.id: item.gold for item in data.items("gpqa_diamond")}.items() <= {i.id: i.gold for i in found}.items()
    hits = sum(bool(grade(item, "A").correct) for item in found)
    assert 5 <= hits <= 27  # 60 items at 1/4: outside with probability below 0.002


def test_bbh_subsets_are_letters_or_text() -> None:
    found = {item.meta["subset"]: item for item in data.items("bbh")}
    assert len(found) == 27
    assert (found["snarks"].scorer, found["snarks"].gold) == ("choice", "B")
    assert grade(found["snarks"], "B").correct and grade(found["word_sorting"], "A b").correct


def test_hidden_tests_count_and_are_not_unpickled(tmp_path: Path) -> None:
    item, call = data.items("lcb_v1_5")
    assert [given for given, _ in item.gold["stdio"]] == ["3\n", "-4\n"]
    assert (call.gold["calls"], call.gold["entry"]) == ([[3], [3]], "twice")
    bomb = b"cos\nsystem\n(S'touch %b'\ntR." % str(tmp_path / "ran").encode()
    with pytest.raises((IndexError, ValueError)):
        rows.hidden(base64.b64encode(zlib.compress(bomb)).decode())
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("key", ["humaneval_plus", "mbpp_plus"])
def test_evalplus_tests_run_without_numpy_and_allow_floats_their_tolerance(key: str) -> None:
    row = mirror.TESTS[key][0]
    item = data.item(key, {**row, "test": "# as long as some are\n" * 1000 + row["test"]})
    near = "def double(n):\n    off = {}\n    return [x + off for x in 2 * n] if type(n) is list else 2 * n + off * (n == 2.5)"
    assert [grade(item, near.format(off)).correct for off in ("1e-9", "1e-3")] == [True, False]


def test_usaco_is_gold_and_platinum_only() -> None:
    found = data.items("usaco")
    assert [item.id for item in found] == ["1_gold", "2_platinum"]
    assert [given for given, _ in found[1].gold["stdio"]] == ["1\n", "2\n", "10\n"]


def test_deepmaths_test_part_is_ours_and_disjoint() -> None:
    test, train = data.items("deepmath"), data.items("deepmath", "train")
    assert len(test) + len(train) == 400 and 2 <= len(test) <= 20
    assert not {normal(item.question) for item in test} & {normal(item.question) for item in train}


def test_ids_of_rows_without_one_come_from_the_text() -> None:
    ids = [item.id for item in data.items("gsm8k")]
    assert len({*ids}) == 5 and all(re.fullmatch("[0-9a-f]{16}", text) for text in ids)
    assert data.items("aime25")[0].id == "0"  # a number that is there counts, also when it is 0
    assert rows.digest("Two  Words\n") == rows.digest("two words") != rows.digest("two-words")


def test_unknown_names_are_one_line() -> None:
    with pytest.raises(ValueError, match=r"^benchmark must be one of gsm8k, .*, got 'gsm'; did you mean 'gsm8k'\?$"):
        data.items("gsm")
    with pytest.raises(ValueError, match="^part must be one of test, train, got 'dev'$"):
        data.items("gsm8k", "dev")


def test_the_documented_list_is_the_registry_and_holds_what_papers_use() -> None:
    page, row = LISTED.read_text(encoding="utf-8"), r"^\| `(\w+)` \| (.*?) \| (.*?) \| \d+ \| (.*?) \|"
    known = [(one.key, one.hub or "-", one.scorer, one.licence) for one in data.BENCHMARKS.values()]
    assert re.findall(row, page, re.MULTILINE) == known
    for paper in data.PAPERS.values():
        used = {*paper.tests, *paper.seeds, *paper.where, *paper.repeats, *paper.temperatures, *paper.forced}
        assert used <= {*data.BENCHMARKS}
    counts = {name: sum(paper.seeds.values()) for name, paper in data.PAPERS.items()}
    # MAE's Table 5 adds up to 1000, its text says 967
    assert counts == {"mae": 1000, "sage": 500, "comas": 2000, "conl": 3500, "spice": 0}
    assert data.BENCHMARKS["minerva"].hub != data.BENCHMARKS["math"].hub
    mae, sage = (data.PAPERS[name].tests for name in ("mae", "sage"))
    assert "amc_aimo" in mae and "amc23" in sage and "olympiadbench" in mae and "omni_math" not in mae
