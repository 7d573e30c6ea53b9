"""Two processes play the same samples as one and make the same update, within float tolerance."""

import json
import math
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
import ranks
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from safetensors.torch import load_file

import tinyworld
from coevolve.runs import record

DDP = Path(__file__).parents[2] / "docs" / "ddp.yaml"
GRADIENT_PROGRAM = str(Path(__file__).with_name("gradient_rank.py"))
FIELDS = (
    "max_tokens=24",
    "steps=3",
    "batch_size=5",
    "solves=2",
    "attempts=2",
    "eval_every=3",
    "eval_items=3",
    "save_every=2",
    "max_tokens_per_micro_batch=256",
)


def train_in_processes(processes: int, out: Path, *fields: str) -> Path:
    """Train by the command line."""
    ranks.run(processes, "coevolve", *words(out), *fields)
    return out


def words(out: Path) -> list[str]:
    return ["train", "mae", "--preset", "quick", "--out", str(out), *FIELDS]


@dataclass(frozen=True)
class TwoRuns:
    """The same run in one process and in two."""

    one_process: Path
    two_processes: Path


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> TwoRuns:
    folder = tmp_path_factory.mktemp("ranks")
    return TwoRuns(
        train_in_processes(1, folder / "one"), train_in_processes(2, folder / "two")
    )


def rows_of_first_step(out: Path) -> list[dict]:
    episodes = record.read(out, "episodes").to_dict("records")
    return [row for row in episodes if row["step"] == 1]


def metrics_of_first_step(out: Path) -> dict:
    return record.read(out).query("step == 1").iloc[0].to_dict()


def weights_of_policy(out: Path) -> dict:
    return load_file(out / "policy" / "model.safetensors")


def distance(weights: dict, other: dict) -> float:
    """Return the Euclidean distance of two models' weights."""
    squares = [(weights[name] - other[name]).square().sum() for name in weights]
    return math.sqrt(sum(map(float, squares)))


def test_two_processes_play_the_samples_of_one(runs):
    assert rows_of_first_step(runs.one_process) == rows_of_first_step(
        runs.two_processes
    )


def test_two_processes_record_the_metrics_of_one(runs):
    expected = metrics_of_first_step(runs.one_process)
    metrics = metrics_of_first_step(runs.two_processes)
    assert metrics == pytest.approx(expected, rel=1e-4, abs=1e-6, nan_ok=True)


def test_two_processes_end_with_the_weights_of_one(runs):
    weights = weights_of_policy(runs.one_process)
    initial = load_file(tinyworld.BACKBONES / "tiny" / "model.safetensors")
    way = distance(weights, initial)
    error = distance(weights, weights_of_policy(runs.two_processes))
    # A sum of two parts is never quite the same sum.
    assert 0 < error < way / 100


def test_only_the_first_rank_writes(runs):
    one = sorted(path.name for path in runs.one_process.iterdir())
    two = sorted(path.name for path in runs.two_processes.iterdir())
    assert one == two
    assert len(record.read(runs.two_processes)) == 4


@pytest.mark.thorough
@pytest.mark.parametrize("control", ["shuffled", "oracle"])
def test_two_processes_of_torchrun_pay_a_control_arm_as_one_does(control, tmp_path):
    fields = (f"control={control}", "steps=1", "eval_every=0", "eval_items=1")
    one = train_in_processes(1, tmp_path / "one", *fields)
    two = tmp_path / "two"
    ranks.launch(2, "-m", "coevolve", *words(two), *fields)
    assert rows_of_first_step(one) == rows_of_first_step(two)


def test_a_run_of_two_processes_resumes_on_one(runs, tmp_path):
    out = shutil.copytree(runs.two_processes, tmp_path / "run")
    train_in_processes(1, out, "steps=4")
    summary = json.loads((out / "summary.json").read_text())
    assert summary["resumed_at"] == 3


def test_a_run_that_was_killed_after_its_last_step_is_finished_on_two(runs, tmp_path):
    out = shutil.copytree(runs.two_processes, tmp_path / "run")
    summary = json.loads((out / "summary.json").read_text())
    (out / "summary.json").unlink()
    train_in_processes(2, out)
    finished = json.loads((out / "summary.json").read_text())
    assert finished["resumed_at"] == 3
    assert finished["held_out"] == summary["held_out"]


@dataclass(frozen=True)
class RankGradient:
    """The gradient that one process has after adding up, and how it was computed."""

    gradient: dict
    passes: list[int]
    packed: bool


def read_gradient(folder: Path, rank: int) -> RankGradient:
    facts = json.loads((folder / f"{rank}.json").read_text())
    gradient = load_file(folder / f"{rank}.safetensors")
    return RankGradient(gradient, **facts)


def test_two_processes_with_packed_batches_have_the_gradient_of_one_plain_pass(
    tmp_path,
):
    one = tmp_path / "one"
    two = tmp_path / "two"
    one.mkdir()
    two.mkdir()
    ranks.run(1, GRADIENT_PROGRAM, str(one), "plain")
    ranks.run(2, GRADIENT_PROGRAM, str(two))
    plain = read_gradient(one, 0)
    assert len(plain.passes) == 1
    assert not plain.packed
    for rank in (0, 1):
        packed = read_gradient(two, rank)
        assert len(packed.passes) > 1
        assert packed.packed
        for name, expected in plain.gradient.items():
            scale = float(expected.abs().max())
            error = float((packed.gradient[name] - expected).abs().max())
            assert scale > 0, name
            assert error < 1e-6 * scale, name


def test_the_configuration_asks_accelerate_for_eight_processes_on_one_machine():
    arguments = ["--config_file", str(DDP), "-m", "coevolve"]
    options = launch_command_parser().parse_args(arguments)
    options, *_ = _validate_launch_command(options)
    assert options.num_processes == 8
    assert options.num_machines == 1
    assert not options.use_fsdp
