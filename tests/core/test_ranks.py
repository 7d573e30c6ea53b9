"""Two processes play the same samples and make, within float tolerance, the same update as one (gloo, on CPUs)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_multi_gpu_env
from safetensors.torch import load_file

from coevolve.ranks import Ranks

DOCS = Path(__file__).parents[2] / "docs"
GRADIENT = str(Path(__file__).with_name("gradient_rank.py"))
FIELDS = [
    "steps=3",
    "batch_size=5",
    "solves=2",
    "attempts=2",
    "eval_every=3",
    "eval_items=3",
    "save_every=2",
    "micro_tokens=256",
    "max_tokens=24",
]


def launch(out: Path, count: int, *fields: str, method: str = "mae", **variables: str) -> Path:
    """Train by the command line in `count` processes."""
    what = ("train", method, "--preset", "quick", "--out", str(out))
    start(count, "-m", "coevolve", *what, *FIELDS, *fields, **variables)
    return out


def start(count: int, *arguments: str, **variables: str) -> None:
    """Run Python in `count` processes that find each other as those of `accelerate launch` do."""
    command = [sys.executable, *arguments]
    if count > 1:  # accelerate starts several processes on GPUs only; on CPUs it leaves that to others
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--local_addr",
            "127.0.0.1",
            "--nproc_per_node",
            str(count),
            *command[1:],
        ]
    quiet = {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=280, env={**os.environ, **quiet, **variables}
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def one(tmp_path_factory) -> Path:
    return launch(tmp_path_factory.mktemp("ranks") / "one", 1)


@pytest.fixture(scope="module", params=["whole", "sharded"])
def runs(request, one, tmp_path_factory) -> tuple[Path, Path]:
    variables = {"ACCELERATE_USE_FSDP": "true"} if request.param == "sharded" else {}
    return one, launch(tmp_path_factory.mktemp("ranks") / request.param, 2, **variables)


def lines(out: Path, name: str) -> list[dict]:
    return [json.loads(line) for line in (out / f"{name}.jsonl").read_text().splitlines()]


def test_the_first_step_plays_the_same_samples(runs):
    one, two = (lines(out, "episodes") for out in runs)
    assert [row for row in one if row["step"] == 1] == [row for row in two if row["step"] == 1]
    first, other = (next(row for row in lines(out, "metrics") if row["step"] == 1) for out in runs)
    assert first.keys() == other.keys()
    for name, value in first.items():
        assert other[name] == (None if value is None else pytest.approx(value, rel=1e-4, abs=1e-6)), name


def test_the_weights_end_within_float_tolerance(runs):
    one, two = (load_file(out / "policy" / "model.safetensors") for out in runs)
    start = load_file(Path(__file__).parents[2] / "src/tinyworld/backbones/tiny/model.safetensors")
    moved = max(float((one[name] - start[name]).abs().max()) for name in one)
    apart = max(float((one[name] - two[name]).abs().max()) for name in one)
    assert moved > 5e-4 and 0 < apart < moved / 20  # sums of two parts are never quite the same sums


@pytest.fixture(scope="module")
def gradient(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("gradient")
    start(1, GRADIENT, str(folder), "plain")
    return folder


@pytest.mark.parametrize("variables", [{}, {"ACCELERATE_USE_FSDP": "true"}], ids=["whole", "sharded"])
def test_the_gradient_of_a_packed_batch_in_many_passes_and_two_processes_is_that_of_one_pass(
    gradient, variables, tmp_path
):
    start(2, GRADIENT, str(tmp_path), **variables)
    facts = [
        json.loads((folder / f"{rank}.json").read_text())
        for folder, rank in ((gradient, 0), (tmp_path, 0), (tmp_path, 1))
    ]
    assert len(facts[0]["passes"]) == 1 and all(len(its["passes"]) > 1 for its in facts[1:])
    assert [its["packed"] for its in facts] == [False, True, True]
    one, first, other = (
        load_file(path) for path in (gradient / "0.safetensors", tmp_path / "0.safetensors", tmp_path / "1.safetensors")
    )
    assert one.keys() == first.keys() == other.keys()
    for name, expected in one.items():
        scale = float(expected.abs().max())
        assert scale > 0, name
        for found in (first[name], other[name]):
            assert float((found - expected).abs().max()) < 1e-6 * scale, name


def test_only_the_first_rank_writes_and_the_run_resumes_on_one_process(runs, tmp_path):
    assert sorted(path.name for path in runs[0].iterdir()) == sorted(path.name for path in runs[1].iterdir())
    assert len(lines(runs[1], "metrics")) == 4
    launch(runs[1], 1, "steps=4")
    assert json.loads((runs[1] / "summary.json").read_text())["resumed_at"] == 3


def test_a_sharded_run_resumes_with_two_processes(one, tmp_path):
    out = launch(tmp_path / "two", 2, "steps=2", ACCELERATE_USE_FSDP="true")
    launch(out, 2, ACCELERATE_USE_FSDP="true")
    assert json.loads((out / "summary.json").read_text())["resumed_at"] == 2
    mine, its = (load_file(path / "policy" / "model.safetensors") for path in (one, out))
    assert max(float((mine[name] - its[name]).abs().max()) for name in mine) < 5e-5


@pytest.mark.parametrize(("name", "sharded"), [("ddp", None), ("fsdp", "true")])
def test_the_configurations_ask_accelerate_for_what_they_say(name, sharded):
    given = launch_command_parser().parse_args(["--config_file", str(DOCS / f"{name}.yaml"), "-m", "coevolve"])
    args, *_ = _validate_launch_command(given)
    assert args.num_processes == 4 and args.num_machines == 1
    assert prepare_multi_gpu_env(args).get("ACCELERATE_USE_FSDP") == sharded


def test_one_process_takes_everything():
    ranks = Ranks()
    assert (ranks.count, ranks.first, list(ranks.share(range(3)))) == (1, True, [0, 1, 2])
