"""The tiny world for SAGE: verified seed tasks, answers as programs, verdicts on verifiers."""

from collections import Counter
from random import Random

import pytest
from data_files import tables

from codesandbox.code import run_tests, valid_tests
from reproduce.analysis.tables import paper_numbers
from tinyworld import programs, symbols, tasks
from tinyworld.oracle import SOURCES, TinyWorld

WORLD = TinyWorld()
CASES = tables("world")
SIZES = {name: source.rows for name, source in SOURCES["sage"].items()}
DOUBLE = "f(1)=2 f(2)=4 f="  # answer: x*2
SORTED = "g(413)=134 g(295)=259 g="  # answer: sort


# Seed tasks


def test_the_sizes_of_the_sources_are_those_of_table_5() -> None:
    printed = paper_numbers("sage_table5").set_index("benchmark")["value"]
    assert printed.astype(int).to_dict() == {**SIZES, "Total": 500}


def test_task_rows_keep_the_proportions_of_table_5_and_are_train_tasks() -> None:
    rows = WORLD.task_rows()
    assert Counter(name for name, _ in rows) == SIZES
    for name, task in rows:
        source = SOURCES["sage"][name]
        assert task.family in source.families
        assert task.split == "train"


def test_seed_tasks_are_distinct_and_their_verifiers_sound() -> None:
    verified = WORLD.verifiable_tasks()
    assert len(verified) > 400
    assert len(set(verified)) == len(verified)
    kinds = set()
    for question, kind, verifier in verified:
        kinds.add(kind)
        assert WORLD.sound(question, kind, verifier), question
    assert kinds == {"math", "code"}


def test_no_seed_task_is_an_evaluation_item() -> None:
    items = [*tasks.items("validation"), *tasks.items("test")]
    held_out = {task.question for task in items}
    for question, _, _ in WORLD.verifiable_tasks():
        assert question not in held_out


# Programs


@pytest.mark.parametrize("family", programs.PROGRAMS)
def test_the_sandbox_agrees_with_the_oracle_about_programs(family: str) -> None:
    rng = Random(f"programs {family}")
    for level in tasks.LEVELS * 2:
        task = tasks.draw(rng, family, level)
        tests = programs.tests_of(task, task.answer)
        assert valid_tests(tests), "a program that returns nothing fails"
        for answer in (task.answer, task.misconception):
            passes = programs.tests_of(task, answer) == tests
            program = WORLD.program(task.question, answer)
            assert run_tests(program, tests).correct == passes


@pytest.mark.parametrize(("question", "tests", "verdicts"), CASES["programs"])
def test_an_answer_as_a_program_has_the_verdict_of_the_table(
    question: str, tests: str, verdicts: dict[str, str]
) -> None:
    for answer, verdict in verdicts.items():
        program = WORLD.program(question, answer)
        assert run_tests(program, tests).verdict == verdict, answer


@pytest.mark.parametrize("name", symbols.OPERATIONS)
def test_a_list_operation_in_the_sandbox_is_the_world_s(name: str) -> None:
    operation = symbols.OPERATIONS[name]
    lines = []
    for text in symbols.HIDDEN_STRINGS:
        lines.append(f'assert g("{text}")=="{operation(text)}"')
    tests = "\n".join(lines)
    program = WORLD.program(SORTED, name)
    assert run_tests(program, tests).verdict == "pass"


# Verifiers


@pytest.mark.parametrize(("question", "kind", "sound", "unsound"), CASES["verifiers"])
def test_the_oracle_tells_sound_verifiers_from_others(
    question: str, kind: str, sound: list[str], unsound: list[str]
) -> None:
    for verifier in sound:
        assert WORLD.sound(question, kind, verifier) is True, verifier
    for verifier in unsound:
        assert WORLD.sound(question, kind, verifier) is False, verifier


def test_a_unit_test_with_a_huge_number_is_unsound() -> None:
    assert WORLD.sound(DOUBLE, "code", f"assert f({'9' * 5000})==1") is False


def test_no_verifier_of_an_ill_formed_question_has_a_verdict() -> None:
    assert WORLD.sound("how many", "math", "3") is None
