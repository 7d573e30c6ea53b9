"""The measuring programs run: a real shape's phases, whole steps beside TRL's, and what grows."""

import runpy
from pathlib import Path
from typing import Any

import pytest

from benchmarks import growth, step
from coevolve.engines.loading import load_policy

Phases = dict[str, dict[str, Any]]
REAL = Path(__file__).parents[2] / "benchmarks" / "real.py"


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """The report of benchmarks/real.py on the embedded shape."""
    program = runpy.run_path(str(REAL))
    fields = {"lora": [4, 8, 0.0]}
    return program["measure"]("tiny", fields)


@pytest.fixture
def phases(report: dict[str, Any]) -> Phases:
    """The rows of that report by phase."""
    return {row["phase"]: row for row in report["phases"]}


def test_the_report_describes_the_model(report: dict[str, Any]) -> None:
    embedded = load_policy("tiny").model
    assert report["parameters"] == embedded.num_parameters()
    assert report["lora"] == (4, 8, 0.0)


def test_every_phase_takes_time_and_memory(phases: Phases) -> None:
    assert list(phases) == ["load", "play", "learn", "evaluate", "save"]
    for row in phases.values():
        assert row["seconds"] > 0
        assert row["peak_mib"] > 0


def test_only_generated_tokens_are_learnt(phases: Phases) -> None:
    learnt = phases["learn"]["tokens"]
    generated = phases["play"]["tokens"]
    assert 0 < learnt <= generated
    assert phases["evaluate"]["tokens"] > 0
    assert not phases["save"]["tokens"]


def test_a_whole_step_generates_as_many_tokens_as_trls() -> None:
    times = step.against_trl(2, full=True, steps=1)
    assert times["our_tokens"] == step.LONGEST
    assert times["trl_tokens"] == step.LONGEST


def test_phases_of_matrix_products_are_compared_with_a_floor() -> None:
    rows = step.phases(8, 1)["phases"]
    with_floor = [row["phase"] for row in rows if row["floor"]]
    assert with_floor == ["prefill", "decode", "forward and loss", "backward"]


def test_growth_is_measured_at_every_number_of_episodes_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(growth, "IN_FLIGHT", (1, 10))
    monkeypatch.setattr(growth, "EPISODES_TIMED", 100)
    for points in growth.driver().values():
        sizes = [size for size, _ in points]
        assert sizes == [1, 10]
