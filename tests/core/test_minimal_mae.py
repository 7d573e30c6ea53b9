"""The first file to read: it earns the rewards and takes the step of MAE's own code."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from coevolve.engines.loading import load_policy
from coevolve.methods.mae import MAE
from coevolve.models.policy import Policy
from coevolve.training import config
from coevolve.training.trainer import Trainer

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "minimal_mae.py"
SETTINGS = {
    "model": "tiny",
    "attempts": 5,
    "batch_size": 16,
    "max_tokens": 64,
    "learning_rate": 1e-3,
    "steps": 1,
    "eval_items": 1,
}


@pytest.fixture(scope="module")
def example() -> SimpleNamespace:
    """The names of the example."""
    names = {"__name__": "minimal_mae", "__file__": str(EXAMPLE)}
    sys.modules.setdefault("minimal_mae", SimpleNamespace())  # for its dataclass
    exec(compile(EXAMPLE.read_text(), str(EXAMPLE), "exec"), names)
    return SimpleNamespace(**names)


@pytest.fixture
def trainer(tmp_path: Path) -> Trainer:
    """A trainer of MAE with the example's settings."""
    run = config.build("mae", "none", out=tmp_path, overrides=SETTINGS)
    return Trainer(run)


def test_it_earns_the_same_rewards_and_takes_the_same_step(
    example: SimpleNamespace, trainer: Trainer
) -> None:
    outcomes = trainer.play(example.STEP)
    expected = [sample for outcome in outcomes for sample in outcome.samples]
    metrics = trainer.learn(example.STEP, outcomes)

    policy = load_policy("tiny")
    samples, loss, grad_norm = example.train_step(policy, MAE().world)

    assert [sample.reply.text for sample in samples] == [
        sample.reply.text for sample in expected
    ]
    assert [sample.role for sample in samples] == [sample.role for sample in expected]
    rewards = [sample.reward for sample in samples]
    assert rewards == pytest.approx([sample.reward for sample in expected], abs=1e-12)
    assert len(set(rewards)) > 3, "the step has something to learn"
    assert loss == pytest.approx(metrics["loss"], abs=1e-6)
    assert grad_norm == pytest.approx(metrics["grad_norm"], rel=1e-4)
    check_same_step(policy, trainer.team.primary)


def check_same_step(policy: Policy, expected: Policy) -> None:
    """AdamW's first step has the size of the learning rate wherever there is a gradient.

    Its sign is chance where the gradient is rounding, so a few weights in a thousand may differ.
    """
    start = load_policy("tiny")
    pairs = zip(
        start.model.parameters(),
        policy.model.parameters(),
        expected.model.parameters(),
        strict=True,
    )
    different = 0
    moved = 0
    for before, ours, theirs in pairs:
        moved += int((theirs - before).abs().gt(5e-4).sum())
        different += int((ours - theirs).abs().gt(1e-5).sum())
    assert moved > 100_000
    assert different < moved / 1000


def test_it_runs_as_a_script_and_prints_every_reward() -> None:
    command = [sys.executable, str(EXAMPLE)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[-1].startswith("loss ")
    for role in ("proposer", "solver", "judge"):
        assert any(line.startswith(f"{role}\t") for line in lines)


def test_it_stays_short_and_does_without_the_framework() -> None:
    text = EXAMPLE.read_text()
    for name in ("training", "rollout", "methods", "advantages", "losses"):
        assert f"coevolve.{name}" not in text
