"""Absolute Zero on real models: Python tasks are proposed, run in the sandbox, solved, rewarded."""

from unittest.mock import Mock

import pytest
from core.conftest import Sums, by_hand, earned, text
from data_files import tables

from coevolve.methods.baselines.absolute_zero import AZR
from published import executor

TABLES = tables("executor")
TASKS = TABLES["tasks"]
PROGRAMS_OF_NO_TASK = TABLES["programs"]
pytestmark = pytest.mark.usefixtures("landlock")


def abduction(program: str) -> str:
    """Return an abduction task with the input 3."""
    return f"abduction\n```python\n{program}\n```\n```input\n3\n```"


@pytest.mark.parametrize("mode", TASKS)
def test_a_task_is_run_and_its_solutions_are_rewarded_by_execution(mode: str) -> None:
    case = TASKS[mode]
    answers = [*case["correct"], *case["wrong"]]
    replies = [f"<answer>{answer}</answer>" for answer in answers]
    method = AZR(
        world=Sums(), prompt="full", attempts=len(replies), solves=len(replies)
    )
    method.pools[mode].reset([])  # so that the proposed task is the one to be solved
    proposal = f"<question>\n{case['task']}\n</question>"
    steps = by_hand(method, [proposal], seed=case["seed"])
    # First the attempts that measure the difficulty, then the solutions that are trained on.
    for _ in range(2):
        prompt = text(steps.pending_turns[0])
        assert case["shown"] in prompt
        assert case["hidden"] not in prompt
        steps.answer(replies)
    solver_rewards = [1.0] * len(case["correct"]) + [-0.5] * len(case["wrong"])
    rewards = [case["earned"], *solver_rewards]
    assert earned(steps.outcome, "proposer", "solver") == pytest.approx(rewards)
    assert steps.outcome.adds == {mode: [case["task"].strip()]}


@pytest.mark.parametrize("name", PROGRAMS_OF_NO_TASK)
def test_a_program_that_fails_or_gives_other_values_in_a_second_run_is_no_task(
    name: str,
) -> None:
    task = abduction(PROGRAMS_OF_NO_TASK[name])
    assert not AZR(world=Sums()).fits(task, "abduction")


def test_a_program_is_run_again_after_its_server_was_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killed = Mock(correct=None)
    answered = Mock(answers=("6",))
    run_calls = Mock(side_effect=[killed, answered, answered])
    monkeypatch.setattr("published.executor.run_calls", run_calls)
    task = abduction("def f(x): return 2 * x")
    assert AZR(world=Sums()).fits(task, "abduction")


PROGRAM_WITH_A_FENCE = '''def f(x):
    """Double.

    ```
    f(3)
    ```
    """
    return 2 * x'''
FORMS_OF_A_TASK = [
    "abduction\n~~~Python\n{}\n~~~\n~~~ input\n3\n~~~",
    "abduction\r\n``` python3\r\n{}\r\n```\r\n```input\r\n3\r\n```",
    "\ufeffabduction\n\n````{{.python}}\n{}\n````\n```input\n3\n```",
    "abduction ```python\n{}\n```\n```input\n3```",
]


@pytest.mark.parametrize("form", FORMS_OF_A_TASK)
def test_a_task_may_have_any_fences_of_markdown(form: str) -> None:
    task = executor.read(form.format(PROGRAM_WITH_A_FENCE))
    assert task is not None
    assert task.program == PROGRAM_WITH_A_FENCE
    assert (task.inputs, task.values) == (["3"], (6,))
