"""The tiny world: what is a question, splits, held-out items, seed questions."""

import subprocess
import sys
from collections import Counter

import pytest
from data_files import tables

import tinyworld
from tinyworld import tasks
from tinyworld.oracle import SOURCES, TinyWorld
from tinyworld.tasks import NAMES, SPLITS

WORLD = TinyWorld()
CASES = tables("world")
INSIDE = set(tasks.FAMILIES) - set(tasks.OUTSIDE)
each_split = pytest.mark.parametrize("split", SPLITS)


@pytest.mark.parametrize("text", [*CASES["no_questions"], "\ud800"])
def test_text_that_is_no_question_is_refused(text: str) -> None:
    assert tasks.read(text) is None
    assert not tasks.is_correct(text, "2")
    assert tasks.split(text) in SPLITS
    assert WORLD.valid(text) is False
    assert WORLD.is_correct(text, "2") is None
    assert WORLD.level(text) is None


# Splits and items


@pytest.mark.parametrize(("question", "split"), CASES["splits"].items())
def test_a_question_keeps_its_split_for_ever(question: str, split: str) -> None:
    assert tasks.split(question) == split


def test_a_fifth_of_the_questions_is_test_and_a_tenth_validation() -> None:
    sizes: Counter[str] = Counter()
    for a in range(100):
        for b in range(100):
            split = tasks.split(f"{a}+{b}")
            sizes[split] += 1
    assert sizes["test"] == pytest.approx(2000, abs=150)
    assert sizes["validation"] == pytest.approx(1000, abs=120)


def test_validation_and_test_are_held_out() -> None:
    assert WORLD.held_out("x+2=9 x?")
    assert WORLD.held_out("sort 312")
    assert not WORLD.held_out("30+7")


@each_split
def test_items_are_distinct_closed_and_of_their_split(split: str) -> None:
    items = tasks.items(split)
    questions = {task.question for task in items}
    assert len(items) >= 600
    assert len(questions) == len(items)
    for task in items:
        assert task.split == split
        assert tasks.split(task.question) == split
        assert tasks.closed(task)


@each_split
def test_items_cover_every_family_in_order(split: str) -> None:
    sizes = Counter(task.family for task in tasks.items(split))
    assert list(sizes) == list(NAMES)
    assert max(sizes.values()) == 40
    assert min(sizes.values()) >= 5


THOROUGH = [
    pytest.param(family, marks=pytest.mark.thorough)
    for family in tasks.NAMES
    if family not in ("rate", "fact", "mod")
]


@pytest.mark.parametrize("split", ["validation", "test"])
@pytest.mark.parametrize("family", ["rate", "fact", "mod", *THOROUGH])
def test_the_numbers_of_questions_are_as_counted(family: str, split: str) -> None:
    counted = [tasks.count_questions(split, family, level) for level in tasks.LEVELS]
    assert tasks.POPULATIONS[split][family] == counted


def test_no_item_is_in_two_splits() -> None:
    questions = set()
    count = 0
    for split in SPLITS:
        items = tasks.items(split)
        questions |= {task.question for task in items}
        count += len(items)
    assert len(questions) == count


@pytest.mark.parametrize("items", [tasks.items, WORLD.items], ids=["tasks", "world"])
def test_items_are_of_the_families_asked_for(items) -> None:
    drawn = items("test", 2, ("add", "mc"))
    families = {task.family for task in drawn}
    assert families == {"add", "mc"}


def test_an_unknown_split_is_refused() -> None:
    message = "split must be one of train, validation, test, got 'dev'"
    with pytest.raises(ValueError, match=message):
        tasks.items("dev")


def test_no_item_sets_a_temperature() -> None:
    items = WORLD.items("validation", 2)
    assert {task.temperature for task in items} == {None}


# Verdicts


def test_the_world_grades_answers_and_misconceptions() -> None:
    items = WORLD.items("validation", 2)
    answers = [(task, task.answer) for task in items]
    assert all(WORLD.grade(answers))

    misconceptions = [(task, task.misconception) for task in items]
    verdicts = WORLD.grade(misconceptions)
    for (task, misconception), verdict in zip(misconceptions, verdicts, strict=True):
        assert verdict == tasks.is_correct(task.question, misconception)
    # A misconception is sometimes right: 1+2 has no carry to forget.
    assert verdicts.count(True) <= len(items) / 6

    missing = [(task, None) for task in items]
    assert WORLD.grade(missing) == [False] * len(items)


def test_a_plan_fits_its_family_only() -> None:
    assert WORLD.fits("30+7", "add and carry") is True
    assert WORLD.fits("30+7", "multiply") is False
    assert WORLD.fits("how many", "count") is None


# Seed questions


def test_seed_rows_keep_the_proportions_of_table_5() -> None:
    rows = WORLD.seed_rows()
    sizes = {name: source.rows for name, source in SOURCES["mae"].items()}
    assert Counter(name for name, _ in rows) == sizes
    assert len(rows) == 1000, "the sum of Table 5; the text says 967"
    for name, task in rows:
        source = SOURCES["mae"][name]
        assert task.family in source.families


def test_seed_rows_cover_all_families_but_those_outside() -> None:
    seeded = set()
    for paper in ("mae", "sage"):
        for source in SOURCES[paper].values():
            seeded |= set(source.families)
    drawn = {task.family for _, task in WORLD.seed_rows()}
    assert seeded == INSIDE
    assert drawn == INSIDE


def test_seed_questions_are_the_distinct_questions_of_the_rows() -> None:
    questions = [task.question for _, task in WORLD.seed_rows()]
    distinct_questions = list(dict.fromkeys(questions))
    assert WORLD.seed_questions() == distinct_questions


def test_the_sixteen_questions_of_zero_are_easy_and_cover_the_same_families() -> None:
    questions = WORLD.zero_questions()
    assert len(questions) == 16
    assert len(set(questions)) == 16
    read = [tasks.read(question) for question in questions]
    assert {task.level for task in read} == {1}
    assert {task.family for task in read} == INSIDE


def test_no_seed_question_is_held_out() -> None:
    questions = WORLD.seed_questions() + WORLD.zero_questions()
    for question in questions:
        assert not WORLD.held_out(question), question


# The package


def test_the_package_loads_no_model_library() -> None:
    program = (
        "import sys, tinyworld\n"
        "tinyworld.TinyWorld().zero_questions()\n"
        "print('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", program]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    assert process.stdout == "False\n"


def test_every_backbone_has_a_name_and_a_folder() -> None:
    paths = tinyworld.BACKBONES.iterdir()
    folders = {path.name for path in paths if path.is_dir()}
    assert folders == set(tinyworld.NAMES)
    assert tinyworld.backbone("tiny") == tinyworld.BACKBONES / "tiny"
    assert tinyworld.backbone("../tiny") is None
