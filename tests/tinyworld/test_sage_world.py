"""What SAGE needs of the tiny world: verified seed tasks, answers as programs, the oracle's word on verifiers."""

from collections import Counter
from random import Random

import pytest

from codesandbox.code import run_tests, valid_tests
from reproduce.analysis import tables
from tinyworld import programs, symbols, tasks
from tinyworld.oracle import SOURCES, TinyWorld

WORLD = TinyWorld()


def test_seed_tasks_keep_the_proportions_of_table_5_and_are_sound() -> None:
    printed = tables.paper_numbers("sage_table5").set_index("benchmark")["value"].astype(int).to_dict()
    assert {name: count for name, (count, _) in SOURCES["sage"].items()} | {"Total": 500} == printed
    rows = WORLD.task_rows()
    assert Counter(source for source, _ in rows) == {name: count for name, (count, _) in SOURCES["sage"].items()}
    for source, task in rows:
        assert task.family in SOURCES["sage"][source][1] and tasks.split(task.question) == "train"
    verified = WORLD.tasks()
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


DOUBLE, SORTED = "f(1)=2 f(2)=4 f=", "g(413)=134 g(295)=259 g="
ANSWERS = {  # question and tests: the verdict on each answer
    (DOUBLE, "assert f(3)==6"): {"x*2": "pass", "x+1": "wrong", "x*": "error", "y": "error"},
    (SORTED, 'assert g("381")=="138"'): {"sort": "pass", "rev": "wrong", "shuffle": "error", "sort'''\\": "error"},
    (SORTED, 'assert g("381")=="831"'): {"sort rev": "pass"},
    (SORTED, 'assert g("")==""'): {"sort": "pass"},
    ("how many", "assert f(3)==6"): {"x*2": "pass"},
}


@pytest.mark.parametrize(("question", "tests"), ANSWERS)
def test_an_answer_as_a_program(question: str, tests: str) -> None:
    found = {answer: run_tests(WORLD.program(question, answer), tests).verdict for answer in ANSWERS[question, tests]}
    assert found == ANSWERS[question, tests]


def test_every_list_operation_in_the_sandbox_is_the_worlds() -> None:
    for name, operation in symbols.OPERATIONS.items():
        tests = "\n".join(f'assert g("{text}")=="{operation(text)}"' for text in symbols.HIDDEN_STRINGS)
        assert run_tests(WORLD.program(SORTED, name), tests).verdict == "pass"


VERIFIERS = {  # question and kind: whether each verifier is sound
    ("30+7", "math"): {"37": True, "38": False},
    ("30+7", "code"): {"assert f(3)==6": False},
    (DOUBLE, "math"): {"x*2": True, "x+1": False},
    (DOUBLE, "code"): {
        "assert f(3)==6\nassert f(9)==18": True,
        "assert f(3)==6\nassert f(9)==19": False,
        **{"assert f(3)==6": True, "assert f(3)==7": False, 'assert g("381")=="138"': False, "": False},
        f"assert f({'9' * 5000})==1": False,
    },
    (SORTED, "code"): {'assert g("381")=="138"': True, 'assert g("381")=="831"': False, "assert True": False},
    ("how many", "math"): {"3": None},
}


@pytest.mark.parametrize(("question", "kind"), VERIFIERS)
def test_soundness_of_verifiers(question: str, kind: str) -> None:
    found = {verifier: WORLD.sound(question, kind, verifier) for verifier in VERIFIERS[question, kind]}
    assert found == VERIFIERS[question, kind]


def test_a_plan_fits_its_family_only() -> None:
    assert WORLD.fits("30+7", "add and carry") is True and WORLD.fits("30+7", "multiply") is False
    assert WORLD.fits("how many", "count") is None
