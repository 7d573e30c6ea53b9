"""Two processes play the same samples and make, within float tolerance, the same update as one (gloo, on CPUs)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from safetensors.torch import load_file

import tinyworld
from coevolve.runs import record

DDP = Path(__file__).parents[2] / "docs" / "ddp.yaml"
GRADIENT = str(Path(__file__).with_name("gradient_rank.py"))
FIELDS = "steps=3 batch_size=5 solves=2 attempts=2 eval_every=3 eval_items=3 save_every=2 micro_tokens=256".split()


def start(count: int, *arguments: str, timeout: int = 280) -> None:
    """Run Python in `count` processes that find each other as those of `accelerate launch` do."""
    # accelerate starts several processes on GPUs only; on CPUs it leaves that to others
    run = "-m torch.distributed.run --standalone --local_addr 127.0.0.1 --nproc_per_node".split()
    command = [sys.executable, *([*run, str(count)] if count > 1 else []), *arguments]
    quiet = {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env={**os.environ, **quiet})
    assert done.returncode == 0, done.stderr[-3000:]


def launch(out: Path, count: int, *fields: str) -> Path:
    """Train by the command line in `count` processes."""
    command = ["-m", "coevolve", "train", "mae", "--preset", "quick", "--out", str(out), "max_tokens=24"]
    start(count, *command, *FIELDS, *fields)
    return out


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("ranks")
    return launch(folder / "one", 1), launch(folder / "two", 2)


def test_two_processes_play_the_samples_of_one_and_end_with_the_weights_of_one(runs):
    one, two = (record.read(out, "episodes").to_dict("records") for out in runs)
    assert [row for row in one if row["step"] == 1] == [row for row in two if row["step"] == 1]
    first, other = (record.read(out).query("step == 1").iloc[0].to_dict() for out in runs)
    assert other == pytest.approx(first, rel=1e-4, abs=1e-6, nan_ok=True)
    one, two = (load_file(out / "policy" / "model.safetensors") for out in runs)
    begun = load_file(tinyworld.BACKBONES / "tiny" / "model.safetensors")
    moved = max(float((one[name] - begun[name]).abs().max()) for name in one)
    apart = max(float((one[name] - two[name]).abs().max()) for name in one)
    assert moved > 5e-4 and 0 < apart < moved / 20  # sums of two parts are never quite the same sums


def test_only_the_first_rank_writes_and_the_run_resumes_on_one_process(runs):
    assert sorted(path.name for path in runs[0].iterdir()) == sorted(path.name for path in runs[1].iterdir())
    assert len(record.read(runs[1])) == 4
    launch(runs[1], 1, "steps=4")
    assert json.loads((runs[1] / "summary.json").read_text())["resumed_at"] == 3


def test_the_gradient_of_a_packed_batch_in_many_passes_and_two_processes_is_that_of_one_pass(tmp_path):
    for name, count, how in (("one", 1, ["plain"]), ("two", 2, [])):
        (tmp_path / name).mkdir()
        start(count, GRADIENT, str(tmp_path / name), *how)
    places = [tmp_path / "one" / "0", tmp_path / "two" / "0", tmp_path / "two" / "1"]
    facts = [json.loads(place.with_suffix(".json").read_text()) for place in places]
    assert len(facts[0]["passes"]) == 1 and all(len(each["passes"]) > 1 for each in facts[1:])
    assert [each["packed"] for each in facts] == [False, True, True]
    one, *two = (load_file(place.with_suffix(".safetensors")) for place in places)
    for name, expected in one.items():
        scale = float(expected.abs().max())
        assert scale > 0, name
        for found in two:
            assert float((found[name] - expected).abs().max()) < 1e-6 * scale, name


def test_the_configuration_asks_accelerate_for_what_it_says():
    asked = launch_command_parser().parse_args(["--config_file", str(DDP), "-m", "coevolve"])
    args, *_ = _validate_launch_command(asked)
    assert args.num_processes == 4 and args.num_machines == 1 and not args.use_fsdp
