"""The measuring programs run: a real shape's phases, whole steps beside TRL's, and what grows.

Of the programs for a GPU, what a CPU allows.
"""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import gpu_memory, growth, real, step, unsloth_step
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


@pytest.fixture(scope="module")
def updates(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Two updates by PEFT, as if of two processes with other random numbers."""
    folder = tmp_path_factory.mktemp("model")
    real.make("tiny", folder)
    rows = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        rows.append(unsloth_step.update("peft", folder))
    return rows


class TestTheUpdateBesideUnsloths:
    def test_two_processes_compute_the_same(
        self, updates: list[dict[str, Any]]
    ) -> None:
        for name in unsloth_step.COMPARED:
            assert updates[0][name] == updates[1][name]

    def test_there_is_something_to_compare(self, updates: list[dict[str, Any]]) -> None:
        row = updates[0]
        assert row["grad_norm"] > 0.01
        assert abs(row["loss"]) > 0.01
        # The mean of |x| where x is normal.
        expected = unsloth_step.GAP * (2 / torch.pi) ** 0.5
        assert row["logprob_gap"] == pytest.approx(expected, rel=0.1)

    def test_the_library_that_failed_is_named(
        self, updates: list[dict[str, Any]]
    ) -> None:
        report = {"peft": updates[0], "unsloth": {"failed": -9}}
        assert unsloth_step.summary(report) == "unsloth failed with status -9"
        assert unsloth_step.summary({"peft": {"failed": 1}}).startswith("peft failed")
        assert "grad_norm 0." in unsloth_step.summary(report | {"unsloth": updates[1]})


class TestMemoryOfARealGPU:
    ROWS = json.loads(gpu_memory.FAKE.read_text())

    def test_its_cases_are_those_of_the_fake_one(self) -> None:
        for row in self.ROWS:
            assert gpu_memory.case_of(row).micro_batch_tokens == row["tokens"]

    def test_cases_larger_than_the_free_memory_are_left_out(self) -> None:
        row = {"peak_gib": 22.5}
        assert gpu_memory.fits(row, free_gib=23.5)
        assert not gpu_memory.fits(row, free_gib=23.4)

    def test_peaks_stand_beside_each_other(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fake = self.ROWS[0]
        measured = {"before_gib": 1.0, "peak_gib": 1.1 * fake["peak_gib"]}
        monkeypatch.setattr(
            gpu_memory.fake_step, "measure", lambda case, device: measured
        )
        result = gpu_memory.measure(fake)
        assert result["difference"] == pytest.approx(0.1)
        assert "(+10.0%)" in gpu_memory.line(result)
        assert "by +10.0% to +10.0%; 3 skipped" in gpu_memory.summary([result], 3)

    def test_an_error_is_a_row_as_well(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(case: object, device: object) -> None:
            raise torch.OutOfMemoryError("CUDA out of\nmemory")

        monkeypatch.setattr(gpu_memory.fake_step, "measure", fail)
        result = gpu_memory.measure(self.ROWS[0])
        assert result["error"] == "OutOfMemoryError: CUDA out of memory"
        assert "1 raised an error" in gpu_memory.summary([result], 0)

    def test_without_a_gpu_nothing_is_measured(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
    ) -> None:
        out = tmp_path / "gpu_memory.json"
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        monkeypatch.setattr("sys.argv", ["gpu_memory", "--out", str(out)])
        assert gpu_memory.main() == 0
        assert capsys.readouterr().out.startswith("not measured: ")
        assert not out.exists()
