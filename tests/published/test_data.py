"""The papers' data sets offline: every row of the registry, from files in the original schema to a score."""

import re
from pathlib import Path

import mirror
import pytest

from coevolve import setups
from coevolve.driver import Batched
from coevolve.held_out import score, tally
from coevolve.types import Reply, Role
from published import data, rows
from published.grading import grade
from published.rows import Item, normal

KEYS = tuple(data.registry())
LISTED = Path(__file__).parents[2] / "docs" / "data.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mirror.write(tmp_path_factory.mktemp("mirror"))


@pytest.fixture(autouse=True)
def local(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COEVOLVE_DATA", str(folder))


def one(key: str, n: int = 0) -> Item:
    return data.items(key)[n]


def gold(item: Item) -> str:
    """What a perfect answer looks like."""
    return programs(item)[0] if item.benchmark in ("lcb_v1_5", "usaco") else item.answer


def programs(item: Item) -> tuple[str, str]:
    """A program that passes an item's tests and one that fails them."""
    return mirror.PROGRAMS.get(f"{item.benchmark}/{item.id}", (mirror.DOUBLE, "def double(n):\n    return n"))


def wrong(item: Item) -> str:
    if item.scorer == "code":
        return programs(item)[1]
    letter = "B" if item.gold == "A" else "A"
    return {"choice": letter, "float": "987654", "math": "987654"}.get(item.scorer, "no such thing")


@pytest.mark.parametrize("key", KEYS)
def test_an_echoed_gold_is_right_and_a_wrong_answer_is_wrong(key: str) -> None:
    found = data.items(key)[:4]
    assert found, "the mirror has no usable row"
    for item in found:
        assert item.benchmark == item.family == key and item.level is None
        assert isinstance(item.question, str) and item.question.strip()
        if item.scorer == "judge":
            assert item.judge in ("math", "truthfulness", "general")
            assert grade(item, gold(item)).correct is None
            continue
        assert grade(item, gold(item)).correct is True, grade(item, gold(item))
        assert grade(item, wrong(item)).correct is False
        assert grade(item, None).correct is False
        if item.scorer == "code":  # as models write programs
            assert grade(item, f"Here it is:\n```python\n{gold(item)}\n```\nDone.").correct is True


@pytest.mark.parametrize("key", KEYS)
def test_registry_rows_are_whole(key: str) -> None:
    its = data.benchmark(key)
    assert its.read in rows.READERS
    assert its.scorer in ("math", "choice", "exact", "float", "code", "judge")
    assert its.judge in ("", "math", "choice", "truthfulness", "general")
    assert its.size > 0 and its.licence
    assert its.hub is None or re.fullmatch(r"[\w.-]+/[\w.-]+", its.hub)
    assert its.revision is None or re.fullmatch(r"[0-9a-f]{40}", its.revision)
    assert its.hub or its.note
    assert not its.origin or its.origin in KEYS


def test_everything_a_paper_uses_is_registered() -> None:
    for paper in data.papers().values():
        assert {*paper.tests, *paper.seeds, *paper.where, *paper.repeats, *paper.temperatures, *paper.forced} <= {*KEYS}
    assert sum(data.papers()["mae"].seeds.values()) == 1000  # as Table 5 adds up; its text says 967
    assert sum(data.papers()["sage"].seeds.values()) == 500
    assert sum(data.papers()["comas"].seeds.values()) == 2000


def test_unknown_names_are_one_line() -> None:
    with pytest.raises(ValueError, match=r"^benchmark must be one of gsm8k, .*, got 'gsm'; did you mean 'gsm8k'\?$"):
        data.items("gsm")
    with pytest.raises(ValueError, match="^part must be one of test, train, got 'dev'$"):
        data.items("gsm8k", "dev")


# Traps, one test each.


def test_latex_golds_are_right_when_echoed_and_when_rewritten() -> None:
    assert grade(one("math500"), "\\left( 3, \\frac{\\pi}{2} \\right)").correct is True
    assert grade(one("math500"), "(3, \\pi/2)").correct is True
    assert grade(one("math500"), "(3, \\pi)").correct is False
    assert grade(one("math"), "1/6").correct is True


def test_the_last_box_of_a_solution_is_the_gold() -> None:
    assert [item.gold for item in data.items("math")] == ["\\frac{1}{6}", "\\frac{5}{6}", "\\frac{7}{6}"]


def test_gsm8k_gold_comes_after_the_marks_without_thousands() -> None:
    assert [item.gold for item in data.items("gsm8k")] == ["1000", "1001", "1002", "1003", "1004"]


def test_gpqa_options_are_shuffled_per_item_and_the_same_everywhere() -> None:
    found = data.items("gpqa_main")
    letters = [item.gold for item in found]
    assert len(found) == 60 and {*letters} == {*"ABCD"}
    for item in found:
        right = re.search(rf"\({item.gold}\) (.*)", item.question)[1]
        assert right == f"{item.id.removeprefix('rec')} zorks"
        assert "zorks \n" not in item.question  # blanks around options would give answers away
    assert {item.id: item.gold for item in data.items("gpqa_diamond")}.items() <= {i.id: i.gold for i in found}.items()


def test_always_a_is_right_about_as_often_as_chance() -> None:
    found = data.items("gpqa_main")
    hits = sum(bool(grade(item, "A").correct) for item in found)
    assert 5 <= hits <= 27  # 60 items at 1/4: outside with probability below 0.002


def test_options_labelled_with_numbers_become_letters() -> None:
    item = one("arc_c", 1)
    assert item.gold == "C" and "(C) rain" in item.question and "(1)" not in item.question
    assert grade(item, "(C)").correct is True
    assert grade(item, "3").correct is False


def test_winogrande_counts_its_options_from_one() -> None:
    assert one("winogrande").gold == "B" and "(B) shelf" in one("winogrande").question


def test_rows_without_a_label_or_an_answer_are_left_out() -> None:
    assert [len(data.items(key)) for key in ("csqa", "hellaswag", "squad", "frontierscience")] == [1, 1, 1, 1]


def test_two_amcs_and_the_minerva_of_the_papers() -> None:
    sizes = {key: data.benchmark(key).size for key in ("amc_aimo", "amc23", "minerva", "gpqa_diamond", "gpqa_main")}
    assert sizes == {"amc_aimo": 83, "amc23": 40, "minerva": 272, "gpqa_diamond": 198, "gpqa_main": 448}
    assert data.benchmark("minerva").hub != data.benchmark("math").hub
    assert "amc_aimo" in data.papers()["mae"].tests and "amc23" in data.papers()["sage"].tests


def test_mae_scores_olympiadbench_and_omni_math_is_named_for_what_it_is() -> None:
    assert "olympiadbench" in data.papers()["mae"].tests and "omni_math" not in data.papers()["mae"].tests
    assert "Olympiad" in data.benchmark("omni_math").note


def test_numeric_golds_that_arrive_as_floats() -> None:
    assert [item.gold for item in data.items("amc_aimo")] == ["142.5", "142"]
    assert grade(one("aime24"), "25").correct is True  # the gold is written 025


@pytest.mark.parametrize(
    ("n", "answer", "right"),
    [
        (0, "49.14", True),
        (0, "47", True),
        (0, "46", False),
        (0, "51.6", False),
        (0, "49.14 cm", False),
        (1, "0.0021", True),
        (1, "0.0022", False),
        (1, "0.04", False),
        (2, "0", True),
        (2, "0.0000001", True),
        (2, "0.01", False),
        (3, "320000", True),
        (3, "3.2e5", True),
        (3, "3.2 \\times 10^5", True),
        (3, "3.2", False),
    ],
)
def test_scibench_is_five_percent_relative_also_for_small_golds_and_zero(n: int, answer: str, right: bool) -> None:
    assert grade(one("scibench", n), answer).correct is right


def test_scibench_asks_for_the_unit() -> None:
    assert one("scibench").question.endswith('The unit of the answer should be "cm".')
    assert "unit" not in one("scibench", 1).question


def test_olympiadbench_margins_and_several_answers() -> None:
    assert grade(one("olympiadbench", 1), "12.59").correct is True
    assert grade(one("olympiadbench", 1), "12.61").correct is False
    assert "The unit of the answer is cm." in one("olympiadbench", 1).question
    assert grade(one("olympiadbench"), "1").correct is False


def test_every_alias_counts() -> None:
    assert all(grade(one("nq"), answer).correct for answer in ("Anna Blum", "a. blum"))
    assert grade(one("triviaqa"), "town of uhrlos").correct is True
    assert grade(one("squad"), "zork").correct is True
    assert grade(one("nq"), "Anna").correct is False


def test_bbh_subsets_are_letters_or_text() -> None:
    found = {item.meta["subset"]: item for item in data.items("bbh")}
    assert len(found) == 27
    assert (found["snarks"].scorer, found["snarks"].gold) == ("choice", "B")
    assert found["word_sorting"].scorer == "exact"
    assert grade(found["snarks"], "B").correct and grade(found["word_sorting"], "A b").correct


def test_yes_no_golds() -> None:
    assert [item.gold for item in data.items("boolq")] == ["yes", "no"]
    assert one("boolq").question.startswith("The zork is blue.\n\n")


def test_livecodebench_is_read_as_files_and_its_hidden_tests_count() -> None:
    item = one("lcb_v1_5")
    assert [test[0] for test in item.gold["stdio"]] == ["3\n", "-4\n"]
    assert grade(item, "print(6)").correct is False  # passes the test that is shown
    call = one("lcb_v1_5", 1)
    assert call.gold["calls"] == [[3], [3]] and call.gold["entry"] == "twice"
    assert grade(call, "def twice(n):\n    return 2 * n").correct is False  # the class is asked for


def test_hidden_tests_are_not_unpickled(tmp_path: Path) -> None:
    bomb = b"cos\nsystem\n(S'touch %b'\ntR." % str(tmp_path / "ran").encode()
    import base64
    import zlib

    with pytest.raises((IndexError, ValueError)):
        rows._private(base64.b64encode(zlib.compress(bomb)).decode())
    assert not (tmp_path / "ran").exists()


def test_evalplus_tests_become_data_and_an_oracle_of_its_own_stays_a_test() -> None:
    assert rows.published(mirror.HUMANEVAL_PLUS) == {
        "calls": [[1], [2.5], [-3]],
        "expected": [2, 5.0, -6],
        "tolerance": 1e-6,
    }
    assert rows.published(mirror.HUMANEVAL_PLUS.replace("candidate(*inp)", "set(candidate(*inp))")) == {}
    assert rows.published(mirror.HUMANEVAL_PLUS.replace("results = [2, 5.0, -6]", "results = [f(1), 2, 3]")) == {}
    assert rows.published(mirror.HUMANEVAL_PLUS.replace("[2, 5.0, -6]", "[2, 5.0]")) == {}
    assert rows.published(mirror.HUMANEVAL) == {} and rows.published("def (") == {}
    odd = mirror.HUMANEVAL_PLUS.replace("results = [2, 5.0, -6]", "results = [n + n for n in (1, 2.5, -3)]")
    row = {**mirror.TESTS["humaneval_plus"][0], "test": odd}
    item = rows.item(data.benchmark("humaneval_plus"), row)
    assert "calls" not in item.gold
    assert grade(item, mirror.DOUBLE).correct is True  # without numpy in the sandbox
    assert grade(item, "def double(n):\n    return n").correct is False


def test_humaneval_accepts_a_body_as_well_as_a_function() -> None:
    assert grade(one("humaneval"), "    return 2 * n").correct is True
    assert grade(one("humaneval"), "    return n").correct is False


def test_kodcode_runs_every_test_function() -> None:
    assert grade(one("kodcode"), "def double(n):\n    return 4").correct is False  # passes the first only


def test_usaco_comes_from_the_users_archive_gold_and_platinum_only() -> None:
    found = data.items("usaco")
    assert [item.id for item in found] == ["1_gold", "2_platinum"]
    assert [given for given, _ in found[1].gold["stdio"]] == ["1\n", "2\n", "10\n"]


def test_deepmaths_test_part_is_ours_and_disjoint() -> None:
    test, train = data.items("deepmath"), data.items("deepmath", "train")
    assert len(test) + len(train) == 400 and 2 <= len(test) <= 20
    assert not {normal(item.question) for item in test} & {normal(item.question) for item in train}
    assert test == data.items("deepmath")


def test_ids_of_rows_without_one_come_from_the_text() -> None:
    ids = [item.id for item in data.items("gsm8k")]
    assert len({*ids}) == 5 and all(re.fullmatch("[0-9a-f]{16}", text) for text in ids)
    assert one("aime25").id == "0"  # a number that is there counts, also when it is 0
    assert rows.digest("Two  Words\n") == rows.digest("two words") != rows.digest("two-words")


# Scoring.


def test_published_items_are_scored_like_those_of_the_tiny_world() -> None:
    found = [one("gsm8k"), one("arc_c"), one("truthfulqa"), one("mbpp"), one("boolq", 1)]
    answers = {item.question: gold(item) for item in found} | {found[4].question: "yes"}
    solver = Role("solver", "{question}")
    engine = Batched(
        lambda turns: [Reply(turn, f"<answer>{answers[turn.messages[0]['content']]}</answer>") for turn in turns]
    )
    scored = score(engine, solver, found)
    assert [row["correct"] for row in scored] == [1, 1, None, 1, 0]
    assert tally(scored) == {"k": 3, "n": 4}  # the judge's item is not scored, and not wrong
    assert [row["family"] for row in scored] == ["gsm8k", "arc_c", "truthfulqa", "mbpp", "boolq"]
    assert {row["misconception"] for row in scored} == {0} and {row["split"] for row in scored} == {"test"}
    voted = score(engine, solver, found[:2], setup="consistency", read=setups.read_answer)
    assert tally(voted) == {"k": 2, "n": 2}


def test_the_documented_list_is_the_registry() -> None:
    page, row = LISTED.read_text(encoding="utf-8"), r"^\| `(\w+)` \| (.*?) \| (.*?) \| (\d+) \| (.*?) \|"
    known = [(its.key, its.hub or "-", its.scorer, str(its.size), its.licence) for its in data.registry().values()]
    assert re.findall(row, page, re.MULTILINE) == known
