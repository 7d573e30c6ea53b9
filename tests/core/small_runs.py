"""Small runs that the tests train, and what they leave behind."""

import json
from pathlib import Path
from typing import Any

from coevolve.cli import main
from coevolve.methods.registry import get_method
from coevolve.training import config
from coevolve.training.loop import train

SMALL = {
    "steps": 4,
    "batch_size": 4,
    "eval_every": 2,
    "eval_items": 4,
    "save_every": 1,
}
# Fields by method that replace those of SMALL or are added to them.
FIELDS = {
    "mae": {"solves": 2, "attempts": 2},
    "conl": {
        "steps": 2,
        "batch_size": 2,
        "eval_items": 1,
        "eval_every": 1,
        "examined": 1,
    },
    "comas": {
        "steps": 2,
        "batch_size": 1,
        "reuse": 2,
        "rounds_per_agent": 1,
        "agents": 2,
        "model": "tiny-small",
        "strategies": ["vanilla"],
        "eval_items": 1,
        "eval_every": 0,
        "kl_coef": 0.1,
        "learning_rate": 3e-3,
    },
    "srt": {"examined": 1},
    "ground_truth": {"examined": 1},
    "base": {"steps": 0},
    "sft": {"epochs": 1, "lora": [4, 4, 0.0]},
}


def train_small(out: Path, method: str = "mae", seed: int = 0, **fields: Any) -> Path:
    """Train a small run of a method; return its folder. `fields` override those above."""
    cls = get_method(method)
    allowed = {*config.field_defaults(cls), *config.field_defaults(config.Run)}
    allowed -= {*cls.unread}
    overrides = {name: value for name, value in SMALL.items() if name in allowed}
    overrides |= FIELDS.get(method, {})
    overrides |= fields
    run = config.build(method, "quick", seed=seed, out=out, overrides=overrides)
    return train(run)


def train_small_by_command(out: Path, *arguments: str, **fields: Any) -> int:
    """Train the same run of MAE by the command line; return the exit code."""
    overrides = SMALL | FIELDS["mae"] | fields
    pairs = [f"{name}={json.dumps(value)}" for name, value in overrides.items()]
    return main(["train", "mae", "--out", str(out), *pairs, *arguments])


def summary_of(out: Path) -> dict[str, Any]:
    """Return the summary of a finished run."""
    text = (out / "summary.json").read_text("utf-8")
    return json.loads(text)


def assert_same_bytes(one: Path, other: Path) -> None:
    """Check that two runs recorded the same bytes and trained the same weights."""
    files = [one / "metrics.jsonl", one / "episodes.jsonl", one / "scores.csv"]
    files += one.glob("conversations.jsonl")
    files += one.glob("policy/**/*.safetensors")
    for file in files:
        name = file.relative_to(one)
        assert file.read_bytes() == (other / name).read_bytes(), name
