"""`trainer=trl` makes the same update as the run's own trainer, and records the same things."""

import math
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from core.trl_runs import (
    ADAPTER,
    TOLERANCE,
    WEIGHTS,
    assert_same_update,
    distance,
    fields_of,
    last_metrics,
    train_in_two_processes,
    words_of,
)
from safetensors.torch import load_file
from small_runs import train_small

from coevolve.runs import checkpoint
from coevolve.training import config

CONFIGURATIONS = Path(__file__).parents[2] / "docs" / "accelerate"


def names_of_files(out: Path) -> set[str]:
    return {path.name for path in out.iterdir()}


THOROUGH = [
    pytest.param(name, marks=pytest.mark.thorough) for name in ("sage", "spice", "conl")
]


@pytest.mark.parametrize("method", ["mae", *THOROUGH])
def test_it_makes_the_update_of_our_own_trainer(method, tmp_path):
    fields = fields_of(method)
    own = train_small(tmp_path / "own", method, **fields)
    trl = train_small(tmp_path / "trl", method, **fields, trainer="trl")
    assert last_metrics(own)["tokens"] > 0
    assert_same_update(own, trl)
    assert names_of_files(own) == names_of_files(trl)


@pytest.mark.thorough
def test_it_trains_an_adapter_as_our_own_trainer(tmp_path):
    fields = fields_of("mae") | {
        "lora": [4, 8, 0.0],
        "schedule": "linear",
        "warmup_steps": 1,
        "kl_loss_coef": 0.1,
    }
    own = train_small(tmp_path / "own", **fields)
    trl = train_small(tmp_path / "trl", **fields, trainer="trl")
    metrics = last_metrics(own)
    assert last_metrics(trl) == pytest.approx(metrics, rel=1e-4, abs=1e-6)
    adapter = load_file(own / ADAPTER)
    # The second factor starts at zero, so its norm is the way it came.
    learnt = {name: adapter[name] for name in adapter if "lora_B" in name}
    way = math.sqrt(sum(float(weight.square().sum()) for weight in learnt.values()))
    assert way > 0
    assert distance(learnt, load_file(trl / ADAPTER)) < TOLERANCE * way


@pytest.mark.thorough
def test_a_killed_run_resumes_to_the_same_weights(tmp_path):
    fields = fields_of("mae") | {"trainer": "trl", "steps": 3, "save_every": 1}
    whole = train_small(tmp_path / "whole", **fields)
    killed = tmp_path / "killed"
    sealed = killed / "checkpoints" / "checkpoint-1" / checkpoint.MANIFEST
    command = [sys.executable, "-m", "coevolve", "train", "mae", "--preset=quick"]
    command += [f"--out={killed}", *words_of(fields | {"steps": 1000})]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while process.poll() is None and not sealed.exists():
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    # However far the process came: the run goes on from the first step.
    for folder in (killed / "checkpoints").glob("checkpoint-*"):
        if folder != sealed.parent:
            shutil.rmtree(folder)
    train_small(killed, **fields)
    lines = (killed / "metrics.jsonl").read_text()
    assert lines == (whole / "metrics.jsonl").read_text()
    assert distance(load_file(whole / WEIGHTS), load_file(killed / WEIGHTS)) == 0


@pytest.fixture(scope="module")
def one_process(tmp_path_factory) -> Path:
    fields = fields_of("mae") | {"trainer": "trl"}
    out = tmp_path_factory.mktemp("one_process") / "run"
    return train_small(out, **fields, save_every=20)


FSDP2 = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
    "FSDP_STATE_DICT_TYPE": "SHARDED_STATE_DICT",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "false",
}


def train_sharded(out: Path, steps: int) -> None:
    fields = fields_of("mae") | {"trainer": "trl", "steps": steps}
    train_in_two_processes(out, fields, FSDP2)
    saved = out / "checkpoints" / f"checkpoint-{steps}"
    shards = sorted(path.name for path in saved.glob("pytorch_model_fsdp_0/*.distcp"))
    assert shards == ["__0_0.distcp", "__1_0.distcp"]


def test_fsdp2_shards_the_model_and_makes_the_update_of_one_process(
    one_process, tmp_path
):
    train_sharded(tmp_path / "sharded", steps=2)
    assert_same_update(one_process, tmp_path / "sharded")


@pytest.mark.thorough
def test_a_sharded_run_goes_on_from_its_checkpoint(one_process, tmp_path):
    train_sharded(tmp_path / "sharded", steps=1)
    train_sharded(tmp_path / "sharded", steps=2)
    assert_same_update(one_process, tmp_path / "sharded")


@pytest.mark.thorough
def test_two_processes_make_the_update_of_one(one_process, tmp_path):
    fields = fields_of("mae") | {"trainer": "trl"}
    train_in_two_processes(tmp_path / "two", fields, {})
    assert_same_update(one_process, tmp_path / "two")


@pytest.mark.parametrize(
    ("name", "flag"), [("fsdp2", "use_fsdp"), ("zero3", "use_deepspeed")]
)
def test_accelerate_reads_the_configurations(name, flag):
    file = CONFIGURATIONS / f"{name}.yaml"
    arguments = ["--config_file", str(file), "-m", "coevolve"]
    options = launch_command_parser().parse_args(arguments)
    options, *_ = _validate_launch_command(options)
    assert getattr(options, flag)
    assert options.num_processes == 8


REFUSED = {
    "several policies": ("comas", {}),
    "a trainer of its own": ("sft", {}),
    "minibatches must be 1": ("mae", {"minibatches": 2}),
    "option in trl": ("mae", {"trl": {"optin": 1}}),
    "in trl must be at least 1": (
        "mae",
        {"trl": {"gradient_accumulation_steps": 0}},
    ),
    "engine must be": ("mae", {"engine": "unsloth"}),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_it_cannot_do_is_one_line(message, tmp_path):
    method, fields = REFUSED[message]
    fields = fields | {"trainer": "trl"}
    with pytest.raises(ValueError, match=message):
        config.build(method, "quick", out=tmp_path, overrides=fields)


def test_options_of_trl_need_its_trainer(tmp_path):
    options = {"trl": {"optim": "sgd"}}
    with pytest.raises(ValueError, match="unless trainer is 'trl'"):
        config.build("mae", "quick", out=tmp_path, overrides=options)
