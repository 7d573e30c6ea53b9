"""What SAGE needs of the tiny world: verified seed tasks, answers as programs, the oracle's word on verifiers."""

from collections import Counter
from random import Random

import pytest
from data_files import tables

from codesandbox.code import run_tests, valid_tests
from reproduce.analysis.tables import paper_numbers
from tinyworld import programs, symbols, tasks
from tinyworld.oracle import SOURCES, TinyWorld

WORLD, CASES = TinyWorld(), tables("world")
DOUBLE, SORTED = "f(1)=2 f(2)=4 f=", "g(413)=134 g(295)=259 g="


def test_seed_tasks_keep_the_proportions_of_table_5_and_are_sound() -> None:
    printed = paper_numbers("sage_table5").set_index("benchmark")["value"].astype(int).to_dict()
    assert {name: count for name, (count, _) in SOURCES["sage"].items()} | {"Total": 500} == printed
    rows = WORLD.task_rows()
    assert Counter(source for source, _ in rows) == {name: count for name, (count, _) in SOURCES["sage"].items()}
    for source, task in rows:
        assert task.family in SOURCES["sage"][source][1] and tasks.split(task.question) == "train"
    verified = WORLD.verifiable_tasks()
    assert len(set(verified)) == len(verified) > 400 and all(WORLD.sound(*task) for task in verified)
    assert {kind for _, kind, _ in verified} == {"math", "code"}
    held_out = {task.question for split in ("validation", "test") for task in tasks.items(split)}
    assert not held_out & {question for question, *_ in verified}


@pytest.mark.parametrize("family", programs.PROGRAMS)
def test_the_sandbox_agrees_with_the_oracle_about_programs(family: str) -> None:
    rng = Random(f"programs {family}")
    for level in tasks.LEVELS * 2:
        task = tasks.draw(rng, family, level)
        tests = programs.tests_of(task, task.answer)
        assert valid_tests(tests), "a program that returns nothing fails"
        for answer in (task.answer, task.misconception):
            holds = programs.tests_of(task, answer) == tests
            assert run_tests(WORLD.program(task.question, answer), tests).correct == holds


@pytest.mark.parametrize(("question", "tests", "verdicts"), CASES["programs"])
def test_an_answer_as_a_program(question: str, tests: str, verdicts: dict[str, str]) -> None:
    assert {answer: run_tests(WORLD.program(question, answer), tests).verdict for answer in verdicts} == verdicts


def test_every_list_operation_in_the_sandbox_is_the_worlds() -> None:
    for name, operation in symbols.OPERATIONS.items():
        tests = "\n".join(f'assert g("{text}")=="{operation(text)}"' for text in symbols.HIDDEN_STRINGS)
        assert run_tests(WORLD.program(SORTED, name), tests).verdict == "pass"


@pytest.mark.parametrize(("question", "kind", "sound", "unsound"), CASES["verifiers"])
def test_soundness_of_verifiers(question: str, kind: str, sound: list[str], unsound: list[str]) -> None:
    assert [WORLD.sound(question, kind, verifier) for verifier in sound] == [True] * len(sound)
    assert [WORLD.sound(question, kind, verifier) for verifier in unsound] == [False] * len(unsound)
    assert WORLD.sound(DOUBLE, "code", f"assert f({'9' * 5000})==1") is False
    assert WORLD.sound("how many", "math", "3") is None


def test_a_plan_fits_its_family_only() -> None:
    assert WORLD.fits("30+7", "add and carry") is True and WORLD.fits("30+7", "multiply") is False
    assert WORLD.fits("how many", "count") is None
