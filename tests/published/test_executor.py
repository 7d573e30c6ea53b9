"""Absolute Zero on real models: Python tasks that are proposed, run in the sandbox, solved in three ways, and paid."""

from unittest.mock import Mock

import pytest
from core.conftest import Sums, by_hand, earned, text
from data_files import tables

from coevolve.methods.baselines.absolute_zero import AZR

TASKS, PROGRAMS = (tables("executor")[name] for name in ("tasks", "programs"))
pytestmark = pytest.mark.usefixtures("landlock")


@pytest.mark.parametrize("mode", TASKS)
def test_a_task_is_run_and_its_solutions_are_paid_by_execution(mode: str) -> None:
    case = TASKS[mode]
    rewards = [1.0] * len(case["right"]) + [-0.5] * len(case["wrong"])
    replies = [f"<answer>{answer}</answer>" for answer in (*case["right"], *case["wrong"])]
    method = AZR(world=Sums(), prompt="full", attempts=len(replies), solves=len(replies))
    method.pools[mode].reset([])  # so that the task proposed is the one to be solved
    steps = by_hand(method, [f"<question>\n{case['task']}\n</question>"], seed=case["seed"])
    for _ in range(2):  # what measures the difficulty, and what is trained
        assert case["shown"] in text(steps.pending_turns[0]) and case["hidden"] not in text(steps.pending_turns[0])
        steps.answer(replies)
    assert earned(steps.outcome, "proposer", "solver") == pytest.approx([case["earned"], *rewards])
    assert steps.outcome.adds == {mode: [case["task"].strip()]}


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_runs_twice_unlike_or_not_at_all_is_no_task(program: str) -> None:
    task = f"abduction\n```python\n{PROGRAMS[program]}\n```\n```input\n3\n```"
    assert not AZR(world=Sums()).fits(task, "abduction")


def test_a_server_that_was_killed_says_nothing_about_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = [Mock(correct=None), Mock(answers=("6",)), Mock(answers=("6",))]
    monkeypatch.setattr("published.executor.run_calls", Mock(side_effect=ran))
    assert AZR(world=Sums()).fits("abduction\n```python\ndef f(x): return 2 * x\n```\n```input\n3\n```", "abduction")
