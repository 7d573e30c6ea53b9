"""The papers' data sets offline: every entry of the registry, from files in the original schema."""

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

ROOT = Path(__file__).parents[2]
EXPECTED = tables("published")
GOLDS = EXPECTED["golds"]
pytestmark = pytest.mark.usefixtures("local")


def wrong_answer(item: Item) -> str:
    """Return an answer of the right form that is wrong."""
    if item.scorer == "choice":
        return "B" if item.gold == "A" else "A"
    if item.scorer in ("float", "math"):
        return "987654"
    if item.scorer == "code":
        return "def double(n):\n    return n"
    return "no such thing"


def correct_and_wrong_answer(item: Item) -> tuple[str, str]:
    """Return a correct and a wrong answer; for code, programs that pass and fail the tests."""
    programs = mirror.PROGRAMS.get(f"{item.family}/{item.id}")
    return programs or (item.answer, wrong_answer(item))


def is_correct(item: Item, answer: str | None) -> bool | None:
    return grade(item, answer).correct


def first_items(key: str) -> list[Item]:
    """Return the first four items of a benchmark."""
    first = data.items(key)[:4]
    assert first, "the mirror has no usable row"
    return first


class TestEveryBenchmark:
    """Each entry of the registry."""

    pytestmark = pytest.mark.parametrize("key", data.BENCHMARKS)

    def test_the_entry_is_well_formed(self, key: str) -> None:
        benchmark = data.BENCHMARKS[key]
        assert (
            benchmark.licence and benchmark.judge in KINDS
        ) or benchmark.scorer == "code"
        if benchmark.origin:
            assert benchmark.origin in data.BENCHMARKS
        if benchmark.hub:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+", benchmark.hub)
        if benchmark.revision is not None:
            assert re.fullmatch(r"[0-9a-f]{40}", benchmark.revision)

    def test_items_state_their_question_and_nothing_that_an_oracle_knows(
        self, key: str
    ) -> None:
        for item in first_items(key):
            assert item.family == key
            assert item.split == "test"
            assert item.level is None
            assert item.misconception is None
            assert item.temperature is None
            assert item.question.strip()
            assert item.stem.strip()
            assert normal(item.stem) in normal(item.question)

    def test_the_gold_is_correct_and_another_answer_is_wrong(self, key: str) -> None:
        for item in first_items(key):
            correct, wrong = correct_and_wrong_answer(item)
            if item.scorer == "judge":
                assert is_correct(item, correct) is None
                continue
            assert is_correct(item, correct) is True, grade(item, correct)
            assert is_correct(item, wrong) is False
            assert is_correct(item, None) is False

    def test_programs_may_stand_in_a_code_fence(self, key: str) -> None:
        for item in first_items(key):
            if item.scorer == "code":
                correct, _ = correct_and_wrong_answer(item)
                reply = f"Here it is:\n```python\n{correct}\n```\nDone."
                assert is_correct(item, reply) is True


@pytest.mark.parametrize("key", GOLDS)
def test_golds_are_read_out_of_their_columns(key: str) -> None:
    assert [item.gold for item in data.items(key)] == GOLDS[key]


VERDICT_CASES = []
for _key, _cases in EXPECTED["verdicts"].items():
    for _number, (_correct, _wrong) in _cases.items():
        VERDICT_CASES.append((_key, int(_number), _correct, _wrong))


@pytest.mark.parametrize(("key", "number", "correct", "wrong"), VERDICT_CASES)
def test_each_scorer_separates_correct_and_wrong_answers(
    key: str, number: int, correct: list[str], wrong: list[str]
) -> None:
    item = data.items(key)[number]
    for answer in correct:
        assert is_correct(item, answer) is True, answer
    for answer in wrong:
        assert is_correct(item, answer) is False, answer


QUESTIONS = [
    ("boolq", 0, "The zork is blue.\n\nis the zork blue\n\nAnswer yes or no."),
    (
        "mbpp",
        0,
        "Double!\nYour function has to pass this test:\nassert double(2) == 4",
    ),
    (
        "scibench",
        0,
        'How long is the wire?\nThe unit of the answer should be "cm".',
    ),
    ("scibench", 1, "How small is it?"),
    ("livebench_reasoning", 0, "Who lies, Ann or Bob?"),
    ("olympiadbench", 1, "How long? The unit of the answer is cm."),
]


@pytest.mark.parametrize(("key", "number", "question"), QUESTIONS)
def test_the_solver_reads_the_question_with_all_that_it_needs(
    key: str, number: int, question: str
) -> None:
    assert data.items(key)[number].question == question


def test_the_solver_reads_the_options_with_letters() -> None:
    question = data.items("hellaswag")[0].question
    beginning = (
        "Which ending continues the text best?\n"
        "He opens it and\n"
        "(A) flies\n"
        "(B) enters\n"
    )
    assert question.startswith(beginning)


class TestGPQA:
    """The order of GPQA's options, of which the first is correct in the data set."""

    def test_every_letter_is_the_gold_of_some_item(self) -> None:
        items = data.items("gpqa_main")
        assert len(items) == 60
        assert {item.gold for item in items} == set("ABCD")

    def test_the_gold_letter_is_that_of_the_correct_option(self) -> None:
        for item in data.items("gpqa_main"):
            option = re.search(rf"\({item.gold}\) (.*)", item.question)[1]
            assert option == f"{item.id.removeprefix('rec')} zorks"

    def test_spaces_around_options_do_not_give_the_answer_away(self) -> None:
        for item in data.items("gpqa_main"):
            assert "zorks \n" not in item.question

    def test_an_item_of_both_sets_has_the_same_order(self) -> None:
        main = {item.id: item.gold for item in data.items("gpqa_main")}
        diamond = {item.id: item.gold for item in data.items("gpqa_diamond")}
        assert diamond.items() <= main.items()

    def test_one_letter_is_correct_as_often_as_by_chance(self) -> None:
        hits = sum(bool(is_correct(item, "A")) for item in data.items("gpqa_main"))
        assert 5 <= hits <= 27  # 60 items at 1/4: outside with probability < 0.002


def test_subsets_of_bbh_have_letters_or_text_as_golds() -> None:
    by_subset = {item.meta["subset"]: item for item in data.items("bbh")}
    assert len(by_subset) == 27
    snarks = by_subset["snarks"]
    assert snarks.scorer == "choice"
    assert snarks.gold == "B"
    assert is_correct(snarks, "B")
    assert is_correct(by_subset["word_sorting"], "A b")


class TestPrograms:
    """Data sets whose answers are programs."""

    def test_hidden_tests_of_livecodebench_count(self) -> None:
        stdio, call = data.items("lcb_v1_5")
        inputs = [stdin for stdin, _ in stdio.gold["stdio"]]
        assert inputs == ["3\n", "-4\n"]
        assert call.gold["calls"] == [[3], [3]]
        assert call.gold["entry"] == "twice"

    def test_hidden_tests_are_not_unpickled(self, tmp_path: Path) -> None:
        command = f"touch {tmp_path / 'ran'}"
        bomb = f"cos\nsystem\n(S'{command}'\ntR.".encode()
        text = base64.b64encode(zlib.compress(bomb)).decode()
        with pytest.raises((IndexError, ValueError)):
            rows.read_hidden_tests(text)
        assert not (tmp_path / "ran").exists()

    @pytest.mark.parametrize("key", ["humaneval_plus", "mbpp_plus"])
    @pytest.mark.parametrize(("error", "expected"), [("1e-9", True), ("1e-3", False)])
    def test_tests_of_evalplus_run_without_numpy_and_tolerate_small_errors(
        self, key: str, error: str, expected: bool
    ) -> None:
        row = mirror.TESTS[key][0]
        long_test = "# as long as some are\n" * 1000 + row["test"]
        item = data.item(key, {**row, "test": long_test})
        program = (
            "def double(n):\n"
            "    if type(n) is list:\n"
            f"        return [x + {error} for x in 2 * n]\n"
            f"    return 2 * n + {error} * (n == 2.5)"
        )
        assert is_correct(item, program) is expected

    def test_usaco_has_only_gold_and_platinum_tasks(self) -> None:
        items = data.items("usaco")
        assert [item.id for item in items] == ["1_gold", "2_platinum"]
        inputs = [stdin for stdin, _ in items[1].gold["stdio"]]
        assert inputs == ["1\n", "2\n", "10\n"]


def test_the_test_part_of_deepmath_is_made_by_hash_and_disjoint() -> None:
    test = data.items("deepmath")
    train = data.items("deepmath", "train")
    assert len(test) + len(train) == 400
    assert 2 <= len(test) <= 20
    test_questions = {normal(item.question) for item in test}
    train_questions = {normal(item.question) for item in train}
    assert test_questions.isdisjoint(train_questions)


def test_rows_without_an_id_get_one_from_their_text() -> None:
    ids = [item.id for item in data.items("gsm8k")]
    assert len(set(ids)) == 5
    for text in ids:
        assert re.fullmatch("[0-9a-f]{16}", text)
    assert rows.digest("Two  Words\n") == rows.digest("two words")
    assert rows.digest("two words") != rows.digest("two-words")


def test_an_id_of_zero_is_an_id() -> None:
    assert data.items("aime25")[0].id == "0"


def test_an_unknown_benchmark_is_refused_with_a_suggestion() -> None:
    message = r"^benchmark 'gsm' is unknown; did you mean 'gsm8k'\? .* one of gsm8k, "
    with pytest.raises(ValueError, match=message):
        data.items("gsm")


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(
        ValueError, match="^part must be one of test, train, got 'dev'$"
    ):
        data.items("gsm8k", "dev")


class TestRegistry:
    """The registry, and the page that documents it."""

    def test_the_documented_list_is_the_registry(self) -> None:
        page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
        row = r"^\| `(\w+)` \| (.*?) \| (.*?) \| \d+ \| (.*?) \|"
        listed = re.findall(row, page, re.MULTILINE)
        registered = []
        for entry in data.BENCHMARKS.values():
            columns = (entry.key, entry.hub or "-", entry.scorer, entry.licence)
            registered.append(columns)
        assert listed == registered

    @pytest.mark.parametrize("name", data.PAPERS)
    def test_papers_use_only_registered_benchmarks(self, name: str) -> None:
        paper = data.PAPERS[name]
        used = {
            *paper.tests,
            *paper.seeds,
            *paper.where,
            *paper.repeats,
            *paper.temperatures,
            *paper.forced,
        }
        assert used <= set(data.BENCHMARKS)

    def test_papers_have_their_number_of_seeds(self) -> None:
        counts = {
            name: sum(paper.seeds.values()) for name, paper in data.PAPERS.items()
        }
        assert counts == {
            "mae": 1000,  # the sum of Table 5; the text says 967
            "sage": 500,
            "comas": 2000,
            "conl": 3500,
            "spice": 0,
        }

    def test_similar_benchmarks_are_told_apart(self) -> None:
        assert data.BENCHMARKS["minerva"].hub != data.BENCHMARKS["math"].hub
        mae_tests = data.PAPERS["mae"].tests
        assert "amc_aimo" in mae_tests
        assert "olympiadbench" in mae_tests
        assert "omni_math" not in mae_tests
        assert "amc23" in data.PAPERS["sage"].tests
