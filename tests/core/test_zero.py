"""DeepSpeed's ZeRO in two processes: the update of one process, from states that neither holds whole (gloo, on CPUs)."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file
from test_ranks import FIELDS, lines
from test_team import made, teach
from torch.optim import AdamW

from coevolve import config
from coevolve.loop import Trainer, train
from coevolve.policies import zero

ROOT = Path(__file__).parents[2]
RANK = str(ROOT / "tests" / "zero_rank.py")
QUIET = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONWARNINGS": "ignore"}


def alone(*arguments: str) -> None:
    """Run zero_rank.py in a process of its own."""
    done = subprocess.run(
        [sys.executable, RANK, *arguments], capture_output=True, text=True, timeout=280, env={**os.environ, **QUIET}
    )
    assert done.returncode == 0, done.stderr[-3000:]


def two(facts: Path, stage: int, *arguments: str, device: str = "none") -> bool:
    """Run it in two processes of `accelerate launch`, by docs/deepspeed.yaml but for the stage and the device.

    Look at what they held: half of each state, and in stage 2 no gradient between micro-batches (if there were
    several, which is returned).
    """
    pytest.importorskip("deepspeed")
    text = (ROOT / "docs" / "deepspeed.yaml").read_text()
    assert "zero_stage: 2" in text and "_optimizer_device: none" in text
    text = text.replace("zero_stage: 2", f"zero_stage: {stage}")
    facts.mkdir(parents=True, exist_ok=True)
    (facts / "launch.yaml").write_text(text.replace("_optimizer_device: none", f"_optimizer_device: {device}"))
    command = [
        sys.executable,
        "-m",
        "accelerate.commands.launch",
        "--config_file",
        str(facts / "launch.yaml"),
        "--num_processes",
        "2",
        "--main_process_port",
        "0",
        RANK,
        str(facts),
        *arguments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env={**os.environ, **QUIET})
    assert done.returncode == 0, done.stderr[-9000:]
    first, other = (json.loads((facts / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first["process"] != other["process"] and first["ranks"] == other["ranks"] == 2
    assert first["steps"] == other["steps"] > 0
    for mine, its, whole in zip(first["held"], other["held"], first["whole"], strict=True):
        assert mine == its == math.ceil(whole / 4) * 2  # both parts begin at an even place
    kept = {*first["between"], *other["between"]}
    assert kept <= ({0} if stage == 2 else {*first["whole"]})
    return bool(kept)


def fields(out: Path, *more: str) -> list[str]:
    return ["train", "mae", "--preset", "quick", "--out", str(out), *FIELDS, *more]


def apart(one: Path, two: Path) -> float:
    mine, its = load_file(one), load_file(two)
    assert mine.keys() == its.keys() and all(mine[name].dtype == its[name].dtype for name in mine)
    return max(float((mine[name] - its[name]).abs().max()) for name in mine)


@pytest.fixture(scope="module")
def one(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("zero")
    alone(str(folder), *fields(folder / "run"))
    return folder / "run"


@pytest.fixture(scope="module")
def single(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("zero") / "single"
    alone(str(folder))
    return folder


@pytest.mark.parametrize("stage", [1, 2])
def test_a_run_plays_the_same_first_step_and_ends_with_the_weights_of_one_process(stage, one, tmp_path):
    out = tmp_path / "run"
    assert two(tmp_path / "facts", stage, *fields(out))
    first, its = ([row for row in lines(path, "episodes") if row["step"] == 1] for path in (one, out))
    assert first == its
    first, its = (next(row for row in lines(path, "metrics") if row["step"] == 1) for path in (one, out))
    assert its == {
        name: None if value is None else pytest.approx(value, rel=1e-4, abs=1e-6) for name, value in first.items()
    }
    start = ROOT / "src/tinyworld/backbones/tiny/model.safetensors"
    file = Path("policy") / "model.safetensors"
    assert 0 < apart(one / file, out / file) < 5e-5 < 5e-4 < apart(one / file, start)
    state = Path("checkpoints") / "step-00000003" / "optimizers" / "shared.safetensors"
    assert apart(one / state, out / state) < 1e-5
    assert sorted(path.name for path in one.iterdir()) == sorted(path.name for path in out.iterdir())


def test_a_run_goes_on_under_deepspeed_and_without(one, tmp_path):
    out = tmp_path / "run"
    alone(str(tmp_path), *fields(out, "steps=1", "save_every=1"))
    two(tmp_path / "facts", 2, *fields(out, "steps=2", "save_every=1"))
    assert json.loads((out / "summary.json").read_text())["resumed_at"] == 1
    alone(str(tmp_path), *fields(out))
    assert json.loads((out / "summary.json").read_text())["resumed_at"] == 2
    file = Path("policy") / "model.safetensors"
    assert apart(one / file, out / file) < 5e-5
    state = Path("checkpoints") / "step-00000003" / "optimizers" / "shared.safetensors"
    assert apart(one / state, out / state) < 1e-5


@pytest.mark.parametrize(("stage", "device"), [(1, "none"), (2, "none"), (2, "cpu")])
def test_policies_and_adapters_learn_as_in_one_process_and_a_broken_gradient_is_skipped(
    stage, device, single, tmp_path
):
    assert two(tmp_path, stage, device=device)
    for kind in ("whole", "lora"):
        mine, its = single / kind, tmp_path / kind
        steps = json.loads((mine / "0.json").read_text())
        assert [skipped for _, skipped in steps] == [0, 0, 1, 0, 0] and steps[3][0] > 0.1, "it is clipped"
        for rank in "01":
            for (norm, skipped), (other, also) in zip(
                steps, json.loads((its / f"{rank}.json").read_text()), strict=True
            ):
                assert skipped == also and math.isfinite(other) == math.isfinite(norm) == (not skipped)
                assert skipped or other == pytest.approx(norm, rel=1e-4)
            tensors = load_file(its / f"{rank}.safetensors")
            assert not tensors["moved.2"].any() and tensors["moved.3"].any()
            assert apart(mine / "0.safetensors", its / f"{rank}.safetensors") < 5e-5
        assert apart(its / "0.safetensors", its / "1.safetensors") == 0, "weights are the same on every rank"
        for name in "pq":
            assert apart(*(path / "optimizers" / f"{name}.safetensors" for path in (mine, its))) < 1e-6


@pytest.mark.parametrize(
    ("method", "variables", "said"),
    [
        ("mae", {"ZERO_STAGE": "3"}, "zero_stage may be 1 or 2, got '3'.*fsdp.yaml"),
        ("mae", {"ZERO_STAGE": "0"}, "zero_stage may be 1 or 2, got '0'"),
        ("mae", {"OFFLOAD_PARAM_DEVICE": "cpu"}, "offload_param_device may be none, got 'cpu'"),
        ("mae", {"OFFLOAD_OPTIMIZER_DEVICE": "nvme"}, "offload_optimizer_device may be cpu or none, got 'nvme'"),
        ("mae", {"CONFIG_FILE": "ds.json"}, "config_file may be none, got 'ds.json'"),
        ("sft", {}, "a trainer of its own"),
        ("mae", {}, "pip install deepspeed"),
    ],
)
def test_what_cannot_be_is_refused_before_a_model_loads(method, variables, said, monkeypatch, tmp_path):
    for name, value in {
        "ACCELERATE_USE_DEEPSPEED": "true",
        "WORLD_SIZE": "2",
        **{f"ACCELERATE_DEEPSPEED_{name}": value for name, value in variables.items()},
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(zero, "find_spec", lambda name: None)
    monkeypatch.setattr(Trainer, "__init__", lambda self, run: pytest.fail("a model was about to load"))
    with pytest.raises(ValueError, match=said) as refused:
        train(config.build(method, "quick", out=tmp_path))
    assert len(str(refused.value).splitlines()) == 1


def test_one_process_has_an_ordinary_optimiser_and_needs_no_deepspeed(monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    monkeypatch.setitem(sys.modules, "deepspeed", None)  # whoever imports it fails
    team = made()
    assert [type(optimizer) for optimizer in team.optimizers.values()] == [AdamW, AdamW]
    assert teach(team, "p")["grad_norm"] > 0
