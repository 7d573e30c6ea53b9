"""What SAGE needs of the tiny world: verified seed tasks, answers as programs, the oracle's word on verifiers."""

from collections import Counter
from random import Random

import pytest

from codesandbox.code import run_tests, valid_tests
from reproduce.analysis import tables
from tinyworld import programs, symbols, tasks
from tinyworld.oracle import VERIFIED_SHARES, TinyWorld

WORLD = TinyWorld()


def test_seed_tasks_keep_the_proportions_of_table_5_and_are_sound() -> None:
    printed = tables.paper_numbers("sage_table5").set_index("benchmark")["value"].astype(int).to_dict()
    assert {name: count for name, (count, _) in VERIFIED_SHARES.items()} | {"Total": 500} == printed
    rows = WORLD.task_rows()
    assert Counter(source for source, _ in rows) == {name: count for name, (count, _) in VERIFIED_SHARES.items()}
    for source, task in rows:
        assert task.family in VERIFIED_SHARES[source][1] and tasks.split(task.question) == "train"
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


@pytest.mark.parametrize(
    ("question", "answer", "tests", "verdict"),
    [
        ("f(1)=2 f(2)=4 f=", "x*2", "assert f(3)==6", "pass"),
        ("f(1)=2 f(2)=4 f=", "x+1", "assert f(3)==6", "wrong"),
        ("f(1)=2 f(2)=4 f=", "x*", "assert f(3)==6", "error"),
        ("f(1)=2 f(2)=4 f=", "y", "assert f(3)==6", "error"),
        ("g(413)=134 g(295)=259 g=", "sort", 'assert g("381")=="138"', "pass"),
        ("g(413)=134 g(295)=259 g=", "sort rev", 'assert g("381")=="831"', "pass"),
        ("g(413)=134 g(295)=259 g=", "sort", 'assert g("")==""', "pass"),
        ("g(413)=134 g(295)=259 g=", "rev", 'assert g("381")=="138"', "wrong"),
        ("g(413)=134 g(295)=259 g=", "shuffle", 'assert g("381")=="138"', "error"),
        ("g(413)=134 g(295)=259 g=", "sort'''\\", 'assert g("381")=="138"', "error"),
        ("how many", "x*2", "assert f(3)==6", "pass"),
    ],
)
def test_an_answer_as_a_program(question: str, answer: str, tests: str, verdict: str) -> None:
    assert run_tests(WORLD.program(question, answer), tests).verdict == verdict


def test_every_list_operation_in_the_sandbox_is_the_worlds() -> None:
    for name, operation in symbols.OPERATIONS.items():
        tests = "\n".join(f'assert g("{text}")=="{operation(text)}"' for text in symbols.HIDDEN_STRINGS)
        assert run_tests(WORLD.program("g(413)=134 g(295)=259 g=", name), tests).verdict == "pass"


@pytest.mark.parametrize(
    ("question", "kind", "verifier", "sound"),
    [
        ("30+7", "math", "37", True),
        ("30+7", "math", "38", False),
        ("30+7", "code", "assert f(3)==6", False),
        ("f(1)=2 f(2)=4 f=", "code", "assert f(3)==6", True),
        ("f(1)=2 f(2)=4 f=", "code", "assert f(3)==7", False),
        ("f(1)=2 f(2)=4 f=", "code", "assert f(3)==6\nassert f(9)==18", True),
        ("f(1)=2 f(2)=4 f=", "code", "assert f(3)==6\nassert f(9)==19", False),
        ("f(1)=2 f(2)=4 f=", "code", 'assert g("381")=="138"', False),
        ("f(1)=2 f(2)=4 f=", "code", "", False),
        ("f(1)=2 f(2)=4 f=", "math", "x*2", True),
        ("f(1)=2 f(2)=4 f=", "math", "x+1", False),
        ("g(413)=134 g(295)=259 g=", "code", 'assert g("381")=="138"', True),
        ("g(413)=134 g(295)=259 g=", "code", 'assert g("381")=="831"', False),
        ("g(413)=134 g(295)=259 g=", "code", "assert True", False),
        ("how many", "math", "3", None),
    ],
)
def test_soundness_of_verifiers(question: str, kind: str, verifier: str, sound: bool | None) -> None:
    assert WORLD.sound(question, kind, verifier) is sound


def test_a_plan_fits_its_family_only() -> None:
    assert WORLD.fits("30+7", "add and carry") is True and WORLD.fits("30+7", "multiply") is False
    assert WORLD.fits("how many", "count") is None
