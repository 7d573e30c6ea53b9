"""Two processes play the same samples and make, within float tolerance, the same update as one (gloo, on CPUs)."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from coevolve.ranks import Ranks

CONFIGURATION = Path(__file__).parents[1] / "docs" / "ddp.yaml"  # as shipped, but on CPUs
FIELDS = ["steps=3", "batch_size=5", "solves=2", "attempts=2", "eval_every=3", "eval_items=3", "save_every=2",
          "micro_tokens=256", "max_tokens=24"]  # fmt: skip


def launch(out: Path, count: int, *fields: str, method: str = "mae") -> Path:
    """Run the command line in `count` processes, as `accelerate launch` starts them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "coevolve", "train", method, "--preset", "quick", "--out", str(out)]
    if count > 1:
        command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(CONFIGURATION), "--cpu",
                   "--num_processes", str(count), "--main_process_port", str(port), "-m", *command[2:]]  # fmt: skip
    done = subprocess.run([*command, *FIELDS, *fields], capture_output=True, text=True, timeout=280,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return out


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("ranks")
    return launch(folder / "one", 1), launch(folder / "two", 2)


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
    start = load_file(Path(__file__).parents[1] / "src/coevolve/policies/backbones/tiny/model.safetensors")
    moved = max(float((one[name] - start[name]).abs().max()) for name in one)
    apart = max(float((one[name] - two[name]).abs().max()) for name in one)
    assert moved > 5e-4 and apart < moved / 20


def test_only_the_first_rank_writes_and_the_run_resumes_on_one_process(runs, tmp_path):
    assert sorted(path.name for path in runs[0].iterdir()) == sorted(path.name for path in runs[1].iterdir())
    assert len(lines(runs[1], "metrics")) == 4
    launch(runs[1], 1, "steps=4")
    assert json.loads((runs[1] / "summary.json").read_text())["resumed_at"] == 3


def test_one_process_takes_everything():
    ranks = Ranks()
    assert (ranks.count, ranks.first, list(ranks.share(range(3)))) == (1, True, [0, 1, 2])
