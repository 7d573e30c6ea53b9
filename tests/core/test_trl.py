"""`trainer=trl` makes the same update as the run's own trainer, and records the same things."""

import shutil
from pathlib import Path

import pytest
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from safetensors.torch import load_file
from small_runs import train_small
from test_distributed import run_python

from coevolve.runs import record
from coevolve.training import config

pytestmark = pytest.mark.xdist_group("trl")

WEIGHTS = "policy/model.safetensors"
CONFIGURATIONS = Path(__file__).parents[2] / "docs" / "accelerate"
FIELDS = {
    "steps": 2,
    "eval_every": 0,
    "eval_items": 1,
    "batch_size": 3,
}
FIELDS_OF = {"conl": {"batch_size": 1}}
SAME_UPDATE = (
    "loss",
    "grad_norm",
    "entropy",
    "tokens",
    "ratio_mean",
    "clip_fraction",
)


def last_metrics(out: Path) -> dict:
    row = record.read(out).iloc[-1]
    return row[list(SAME_UPDATE)].to_dict()


def names_of_files(out: Path) -> set[str]:
    return {path.name for path in out.iterdir()}


def distance(one: Path, two: Path) -> float:
    weights = load_file(one / WEIGHTS)
    other = load_file(two / WEIGHTS)
    largest = 0.0
    for name, weight in weights.items():
        difference = (weight - other[name]).abs().max()
        largest = max(largest, float(difference))
    return largest


@pytest.mark.parametrize("method", ["mae", "sage", "spice", "conl"])
def test_it_makes_the_update_of_our_own_trainer(method, tmp_path):
    fields = FIELDS | FIELDS_OF.get(method, {})
    own = train_small(tmp_path / "own", method, **fields)
    trl = train_small(tmp_path / "trl", method, **fields, trainer="trl")
    metrics = last_metrics(own)
    assert metrics["tokens"] > 0
    assert last_metrics(trl) == pytest.approx(metrics, rel=1e-4, abs=1e-6)
    # AdamW's first steps are as large as the learning rate, whatever the gradient.
    assert distance(own, trl) < 1e-4
    assert names_of_files(own) == names_of_files(trl)


def test_an_interrupted_run_resumes_to_the_same_weights(tmp_path):
    fields = FIELDS | {"trainer": "trl", "steps": 3, "save_every": 1}
    whole = train_small(tmp_path / "whole", **fields)
    cut = shutil.copytree(whole, tmp_path / "cut")
    (cut / "summary.json").unlink()
    shutil.rmtree(cut / "checkpoints" / "checkpoint-3")
    train_small(cut, **fields)
    lines = (cut / "metrics.jsonl").read_text()
    assert lines == (whole / "metrics.jsonl").read_text()
    assert distance(whole, cut) == 0


def test_two_processes_make_the_update_of_one(tmp_path):
    fields = FIELDS | {
        "trainer": "trl",
        "max_tokens": 24,
        "solves": 2,
        "attempts": 2,
    }
    pairs = [f"{name}={value}" for name, value in fields.items()]
    two = tmp_path / "two"
    command = [
        "-m",
        "coevolve",
        "train",
        "mae",
        "--preset=quick",
        f"--out={two}",
    ]
    run_python(2, *command, *pairs)
    one = train_small(tmp_path / "one", **fields, save_every=20)
    expected = last_metrics(one)
    assert last_metrics(two) == pytest.approx(expected, rel=1e-4, abs=1e-6)


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
