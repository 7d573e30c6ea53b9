"""Programs of the tiny world without a sandbox: what the world reads by its own arithmetic."""

from random import Random

import pytest

from codesandbox.code import run_tests
from tinyworld import programs, tasks
from tinyworld.oracle import TinyWorld

WORLD = TinyWorld()


@pytest.mark.parametrize("family", programs.PROGRAMS)
def test_the_interpreter_agrees_with_the_sandbox(family: str) -> None:
    rng = Random(f"interpreter {family}")
    for level in tasks.LEVELS:
        task = tasks.draw(rng, family, level)
        for_answer = programs.tests_of(task, task.answer)
        for_misconception = programs.tests_of(task, task.misconception)
        tests = f"{for_answer}\n{for_misconception}"
        answers = [task.answer, task.misconception, "(3", "", "None"]
        for answer in answers:
            program = WORLD.program(task.question, answer)
            result = run_tests(program, tests)
            pass_rate = result.passed / result.total
            assert WORLD.interpret(answer, tests) == pass_rate


@pytest.mark.parametrize("tests", ["", "assert f(2) > 3", "assert h(1)==2", "f(1)==2"])
def test_the_interpreter_says_what_it_cannot_read(tests: str) -> None:
    assert WORLD.interpret("x*2", tests) is None
