"""A paper's published tests and seeds as a world: disjoint parts, counted overlaps, methods."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest
from core.conftest import Scripted

from coevolve.evaluation.scoring import count_correct, score
from coevolve.methods.mae.method import MAE
from coevolve.methods.sage.method import SAGE
from coevolve.types import Reply
from published import data
from published.rows import Item, normal
from published.world import DataWorld, named

ALL = 10_000  # more than any benchmark of the mirror has
pytestmark = pytest.mark.usefixtures("local")


def texts(items: Iterable[Item]) -> set[str]:
    """Return the normalised questions of items."""
    return {normal(item.question) for item in items}


def identity_keys(items: Iterable[Item]) -> set[str]:
    """Return the keys by which items are recognised as the same question."""
    keys: set[str] = set()
    for item in items:
        keys.update(item.identity_keys)
    return keys


def seed_items(world: DataWorld) -> list[Item]:
    return [item for _, item in world.seed_rows()]


@pytest.mark.parametrize("paper", data.PAPERS)
class TestParts:
    """Seeds, validation and test items of each paper."""

    @pytest.fixture
    def world(self, paper: str) -> DataWorld:
        return DataWorld(paper)

    def test_no_two_parts_share_a_question(self, world: DataWorld) -> None:
        test = world.items("test", ALL)
        validation = world.items("validation", ALL)
        seeds = seed_items(world)
        assert test
        for one, other in ((test, validation), (test, seeds), (validation, seeds)):
            assert identity_keys(one).isdisjoint(identity_keys(other))
            assert texts(one).isdisjoint(texts(other))

    def test_no_seed_occurs_twice(self, world: DataWorld) -> None:
        seeds = seed_items(world)
        assert len(texts(seeds)) == len(seeds)

    def test_items_carry_their_split(self, world: DataWorld) -> None:
        for split in ("test", "validation"):
            for item in world.items(split, ALL):
                assert item.split == split

    def test_test_and_validation_are_held_out_and_seeds_are_not(
        self, world: DataWorld
    ) -> None:
        for split in ("test", "validation"):
            for item in world.items(split, ALL):
                assert world.held_out(item.question)
        for item in seed_items(world):
            if item.family not in world.lists.forced:
                assert not world.held_out(item.question)

    def test_the_draw_is_repeatable(self, world: DataWorld, paper: str) -> None:
        other = DataWorld(paper)
        assert other.seed_questions() == world.seed_questions()
        assert other.items("test", 3) == world.items("test", 3)


class TestOverlap:
    """MAE's seeds from benchmarks that are evaluated too."""

    @pytest.fixture
    def table(self) -> dict[object, dict]:
        """The rows of `composition` by benchmark."""
        rows = DataWorld("mae").composition()
        return {row["benchmark"]: row for row in rows}

    def test_a_forced_benchmark_leaves_the_test(self, table: dict) -> None:
        assert table["gpqa_main"] == {
            "benchmark": "gpqa_main",
            "licence": "CC-BY-4.0",
            "seeds wanted": 69,
            "seeds": 60,
            "test": 0,
            "overlap": 60,
        }

    def test_a_rephrased_question_is_recognised_by_its_number(
        self, table: dict
    ) -> None:
        # HumanEval's two questions are seeds, and HumanEval+ rephrases them.
        assert table["humaneval"]["seeds"] == 2
        assert table["humaneval_plus"]["test"] == 0
        assert table["humaneval_plus"]["overlap"] == 2

    def test_a_train_split_has_no_overlap(self, table: dict) -> None:
        row = table["gsm8k"]
        assert row["seeds wanted"] == 77
        assert row["seeds"] == 77
        assert row["overlap"] == 0

    def test_a_number_that_is_tested_elsewhere_is_no_seed(self) -> None:
        # MBPP+ tests number 11 of MBPP.
        training_ids = {item.id for item in data.items("mbpp", "train")}
        seeds = seed_items(DataWorld("mae"))
        seed_ids = {item.id for item in seeds if item.family == "mbpp"}
        assert "11" in training_ids
        assert "11" not in seed_ids


class TestSeeds:
    """The composition of each paper's seed set."""

    def meta(self, world: DataWorld, benchmark: str, column: str) -> set[object]:
        """Return the values of a column of the seeds from a benchmark."""
        values = set()
        for item in seed_items(world):
            if item.family == benchmark:
                values.add(item.meta[column])
        return values

    def test_sage_draws_a_number_of_each_benchmark(self) -> None:
        counts = Counter(item.family for item in seed_items(DataWorld("sage")))
        # HumanEval: all that the mirror has.
        assert counts == {"math": 156, "gsm8k": 148, "humaneval": 2, "mbpp": 109}

    def test_comas_names_its_domains(self) -> None:
        world = DataWorld("comas")
        domains = {domain for domain, _ in world.training_questions()}
        assert domains == {"MATH", "KodCode", "WebInstruct"}

    def test_comas_restricts_levels_and_subjects(self) -> None:
        world = DataWorld("comas")
        levels = self.meta(world, "math", "level")
        difficulties = self.meta(world, "kodcode", "gpt_difficulty")
        categories = self.meta(world, "webinstruct_verified", "category")
        assert levels == {"Level 4", "Level 5"}
        assert difficulties == {"medium", "hard"}
        assert categories == {"Physics"}

    def test_conl_restricts_difficulty(self) -> None:
        items = seed_items(DataWorld("conl"))
        difficulties = [item.meta["difficulty"] for item in items]
        assert min(difficulties) == 6
        assert max(difficulties) == 9


class TestItems:
    """The number and the temperature of evaluation items."""

    def test_the_caller_caps_every_benchmark(self) -> None:
        world = DataWorld("mae", ("gsm8k", "math"))
        families = [item.family for item in world.items("test", 2)]
        assert families == ["gsm8k", "gsm8k", "math", "math"]

    def test_the_paper_caps_every_benchmark(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        paper = data.PAPERS["mae"]
        capped = data.Paper({**paper.tests, "gsm8k": 3}, paper.seeds)
        monkeypatch.setitem(data.PAPERS, "mae", capped)
        assert len(DataWorld("mae", ("gsm8k",)).items("test", 100)) == 3

    def test_the_train_split_is_not_evaluated(self) -> None:
        message = "^split must be one of validation, test, got 'train'$"
        with pytest.raises(ValueError, match=message):
            DataWorld("mae", ("gsm8k", "math")).items("train")

    def test_spice_answers_aime_32_times_at_its_temperature(self) -> None:
        world = DataWorld("spice", ("aime24", "gsm8k"))
        items = world.items("test", 5)
        families = [item.family for item in items]
        assert families == ["gsm8k"] * 5 + ["aime24"] * 32
        engine = Scripted(lambda turn: "<answer>25</answer>")
        rows = score(engine, MAE(world=world), items)
        assert count_correct(rows[5:]) == {"k": 32, "n": 32}
        temperatures = [turn.temperature for turn in engine.asked]
        assert temperatures == [0.0] * 5 + [0.6] * 32

    def test_an_explicit_temperature_overrides_the_papers(self) -> None:
        world = DataWorld("spice", ("aime24", "gsm8k"))
        engine = Scripted(lambda turn: "<answer>25</answer>")
        last_item = world.items("test", 5)[-1]
        score(engine, MAE(world=world), [last_item], temperature=1.0)
        assert [turn.temperature for turn in engine.asked] == [1.0]

    def test_comas_answers_all_tests_at_its_temperature(self) -> None:
        items = DataWorld("comas", ("gsm8k",)).items("test")
        assert {item.temperature for item in items} == {0.7}


class TestVerdicts:
    """What the world knows about published and about invented questions."""

    @pytest.fixture
    def world(self) -> DataWorld:
        return DataWorld("mae", ("gsm8k", "mbpp", "arc_c", "truthfulqa"))

    @pytest.mark.parametrize(
        ("answer", "expected"), [("1000", True), ("1001", False), (None, False)]
    )
    def test_answers_to_published_questions_are_graded(
        self, world: DataWorld, answer: str | None, expected: bool
    ) -> None:
        question = data.items("gsm8k")[0].question
        assert world.is_correct(question, answer) is expected

    def test_grades_keep_the_order_and_are_none_for_a_judge(
        self, world: DataWorld
    ) -> None:
        item = data.items("gsm8k")[0]
        judged_item = data.items("truthfulqa")[0]
        pairs = [
            (item, "1001"),
            (judged_item, "No."),
            (item, "1000"),
            (judged_item, None),
        ]
        assert world.grade(pairs) == [False, None, True, False]

    def test_nothing_is_known_about_invented_questions(self, world: DataWorld) -> None:
        assert world.is_correct("What is 2+2?", "4") is None
        assert world.sound("q", "math", "1") is None
        assert world.fits("q", "plan") is None

    def test_published_questions_have_no_oracle(self, world: DataWorld) -> None:
        question = data.items("gsm8k")[0].question
        assert world.valid(question) is None
        assert world.level(question) is None

    def test_case_and_options_do_not_hide_a_held_out_question(
        self, world: DataWorld
    ) -> None:
        question = data.items("gsm8k")[0].question
        assert world.held_out(question.upper() + " ")
        assert world.held_out("why is it DARK?"), "a stem without options"
        assert not world.held_out("What is 2+2?")
        assert not world.held_out(world.seed_questions()[0])

    def test_seeds_are_graded_and_come_without_answers(self, world: DataWorld) -> None:
        questions = world.seed_questions()
        assert all("####" not in question for question in questions)
        assert world.is_correct(questions[0], "no") is False

    def test_there_are_sixteen_zero_questions(self, world: DataWorld) -> None:
        questions = world.zero_questions()
        assert len(set(questions)) == 16
        assert not any(question.startswith("%%") for question in questions)


class TestSAGE:
    """SAGE on a program that uses what its question defines."""

    FORMS = [
        "```python\n{}```",
        "<answer>{}</answer>",
        "<answer>\n```python\n{}```\n</answer>",
    ]

    def test_tasks_are_mathematics_and_code(self) -> None:
        tasks = DataWorld("sage").verifiable_tasks()
        assert {kind for _, kind, _ in tasks} == {"math", "code"}

    @pytest.mark.parametrize("form", FORMS)
    def test_training_and_test_accept_the_program_in_every_form(
        self, form: str
    ) -> None:
        world = DataWorld("sage", ("humaneval",))
        method = SAGE(world=world, prompt="full")
        task = world.verifiable_tasks()[0]
        question, _, _ = task
        assert "TWO = 2" in question
        reply = form.format("def double(n):\n    return TWO * n\n")
        assert method.verify(task, Reply(None, reply)) == 1.0
        (item,) = [item for item in seed_items(world) if item.question == question]
        (row,) = score(Scripted([reply]), method, [item])
        assert row["correct"] == 1


def test_conl_may_train_on_the_test_itself() -> None:
    world = DataWorld("conl", ("deepmath", "aime24"))
    train = world.questions("train", ())
    test = world.questions("test", ("add",))
    assert set(train).isdisjoint(test)
    test_texts = {normal(question) for question in test}
    assert test_texts == texts(world.items("test", ALL))


class TestNames:
    """Worlds by name, none of which loads anything."""

    @pytest.fixture(autouse=True)
    def no_data(self, local: None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COEVOLVE_DATA", "/nowhere")

    def test_data_is_all_that_a_paper_uses(self) -> None:
        world = named("data", "comas")
        assert world == DataWorld("comas")
        assert world.name == "data"

    def test_data_can_name_benchmarks(self) -> None:
        expected = DataWorld("mae", ("gsm8k", "math"))
        assert named("data:gsm8k, math", "mae") == expected
        assert named("data:gsm8k,math", "mae").name == "data:gsm8k,math"

    def test_a_method_without_seeds_accepts_benchmarks_without_a_train_split(
        self,
    ) -> None:
        world = named("data:aime24", "spice", seeds=False)
        assert world.lists.tests == {"aime24": 0}

    def test_an_empty_name_is_refused(self) -> None:
        message = "^KEY of world=data:KEY,KEY must be one of .*, got ''$"
        with pytest.raises(ValueError, match=message):
            named("data:gsm8k,,math", "mae")

    def test_the_first_use_reports_missing_data(self) -> None:
        with pytest.raises(ValueError, match="^COEVOLVE_DATA"):
            DataWorld("mae").seed_questions()
        with pytest.raises(ValueError, match="^COEVOLVE_DATA"):
            DataWorld("mae").check()


class TestUnusedBenchmarks:
    """Benchmarks that a paper does not use, or uses only for seeds or only for tests."""

    def test_an_unused_benchmark_gives_seeds_if_it_has_a_train_split(self) -> None:
        assert DataWorld("comas", ("csqa", "bbeh")).lists.seeds == {"csqa": 0}

    def test_an_unused_benchmark_is_tested_after_the_papers(self) -> None:
        lists = DataWorld("spice", ("csqa", "aime24", "gsm8k")).lists
        assert list(lists.tests) == ["gsm8k", "aime24", "csqa"]

    def test_a_benchmark_for_tests_gives_seeds_if_there_are_no_others(self) -> None:
        world = DataWorld("comas", ("gsm8k",))
        assert world.lists.tests == {"gsm8k": 500}
        assert world.lists.seeds == {"gsm8k": 0}
        validation = {item.question for item in world.items("validation", 1000)}
        all_questions = {item.question for item in data.items("gsm8k", "train")}
        training = {question for _, question in world.training_questions()}
        assert validation
        assert training == all_questions - validation

    def test_a_benchmark_for_seeds_is_tested_if_there_is_no_other(self) -> None:
        lists = DataWorld("sage", ("mbpp",)).lists
        assert lists.tests == {"mbpp": 0}
        assert lists.seeds == {"mbpp": 109}


def test_a_world_without_test_items_is_refused() -> None:
    # Both questions of the mirror are seeds.
    message = "^world: no test item of humaneval is left once the seeds are drawn$"
    with pytest.raises(ValueError, match=message):
        DataWorld("mae", ("humaneval",)).items("test")


def test_a_world_without_seeds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    comas = replace(data.PAPERS["comas"], where={"math": {"level": "Level 9"}})
    monkeypatch.setitem(data.PAPERS, "comas", comas)
    with pytest.raises(
        ValueError, match="^world: no row of math is left to start from"
    ):
        DataWorld("comas", ("math", "gsm8k")).items("test")
