"""The engine sleeps while a policy learns and gets the new weights; a wrong engine stops the run.

A noting engine stands between a run and its own engine, and writes down what it is asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pretend_vllm
import pytest
import torch
from small_runs import train_small
from tensors import ask, weights_of
from torch import Tensor

from coevolve.engines.loading import load_policy
from coevolve.engines.router import EngineRouter, make_engine
from coevolve.methods.baselines import trl_trainers
from coevolve.methods.baselines.trl_trainers import SFT, SRLM
from coevolve.models import sampler
from coevolve.models.policy import Policy, cache_bytes
from coevolve.models.policy_set import PolicySet
from coevolve.models.sampler import Completion, Request
from coevolve.rollout.engine import Ticket
from coevolve.training import config
from coevolve.training.loop import _load_trainer
from coevolve.training.progress import StepEnd, Timer
from coevolve.training.trainer import Trainer
from coevolve.types import Outcome, Reply, Turn

FIELDS = {
    "model": "tiny-small",
    "steps": 1,
    "batch_size": 2,
    "solves": 1,
    "attempts": 1,
    "max_tokens": 16,
    "eval_items": 1,
    "learning_rate": 1e-3,
}
LEARNS = ["play", "sleep", "update", "load", "end"]
# TRL's copy of the weights is made before the first step.
ORDER = {"own": LEARNS, "trl": ["sleep", "copy", "load", *LEARNS]}


@dataclass
class Notes:
    """What a run did, in order, and the weights that its engine has."""

    events: list[str] = field(default_factory=list)
    loaded: Tensor = field(default_factory=lambda: torch.empty(0))
    error: float = 0.0
    """Nats by which the engine's log-probabilities are wrong; set by a test."""

    def add(self, event: str) -> None:
        """Note an event; the same one several times in a row counts once."""
        if self.events[-1:] != [event]:
            self.events.append(event)

    def before(self, event: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, which notes the event before it does its work."""

        def noting(*arguments: Any, **settings: Any) -> Any:
            self.add(event)
            return function(*arguments, **settings)

        return noting


class NotingEngine(EngineRouter):
    """The engine of a run, which notes what it is asked for."""

    def __init__(self, team: PolicySet, engine: EngineRouter, notes: Notes):
        super().__init__(engine.engines)
        self.policy = team.primary
        self.notes = notes

    def submit(self, turn: Turn) -> Ticket:
        self.notes.add("play")
        return super().submit(turn)

    def poll(self) -> list[tuple[Ticket, Reply]]:
        finished = []
        for ticket, reply in super().poll():
            logprobs = [logprob - self.notes.error for logprob in reply.logprobs]
            finished.append((ticket, replace(reply, logprobs=tuple(logprobs))))
        return finished

    def sleep(self) -> None:
        self.notes.add("sleep")

    def load_weights(self) -> None:
        self.notes.add("load")
        self.notes.loaded = weights_of(self.policy)

    def close(self) -> None:
        self.notes.add("close")


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Notes:
    """What the runs of a test do."""
    from coevolve.training import trainer

    notes = Notes()

    def make_noting_engine(
        team: PolicySet, *arguments: Any, **settings: Any
    ) -> EngineRouter:
        engine = make_engine(team, *arguments, **settings)
        return NotingEngine(team, engine, notes)

    update = notes.before("update", trainer.update_policy)
    monkeypatch.setattr(trainer, "make_engine", make_noting_engine)
    monkeypatch.setattr(trainer, "update_policy", update)
    return notes


def note_trl(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Note when TRL's trainer copies the weights and when it computes a loss."""
    from coevolve.training import trl_grpo

    copy = notes.before("copy", trl_grpo.copy.deepcopy)
    loss = notes.before("update", trl_grpo.EpisodeTrainer._compute_loss)
    monkeypatch.setattr(trl_grpo, "copy", SimpleNamespace(deepcopy=copy))
    monkeypatch.setattr(trl_grpo.EpisodeTrainer, "_compute_loss", loss)


def run_of(out: Path, **fields: Any) -> config.Run:
    return config.build("mae", "quick", out=out, overrides=FIELDS | fields)


def take_steps(trainer: Trainer, notes: Notes) -> None:
    """Take the steps of a run, which neither records nor saves them."""

    def end_step(step: int, outcomes: list[Outcome], metrics: dict) -> StepEnd:
        notes.add("end")
        return StepEnd(is_stopped=False, is_saved=False)

    trainer.take_steps(0, Timer(), end_step)


@pytest.mark.parametrize("kind", ORDER)
class TestSteps:
    """The steps of the run's own trainer and of TRL's."""

    @pytest.fixture
    def trainer(
        self,
        kind: str,
        notes: Notes,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> Trainer:
        if kind == "trl":
            note_trl(notes, monkeypatch)
        return _load_trainer(run_of(tmp_path / "run", trainer=kind))

    def test_the_engine_sleeps_until_the_new_weights_are_there(
        self, kind: str, trainer: Trainer, notes: Notes
    ) -> None:
        before = weights_of(trainer.team.primary)
        take_steps(trainer, notes)
        assert notes.events == ORDER[kind]
        after = weights_of(trainer.team.primary)
        assert not after.equal(before)
        assert notes.loaded.equal(after)

    def test_an_engine_with_other_probabilities_stops_the_run(
        self, kind: str, trainer: Trainer, notes: Notes
    ) -> None:
        notes.error = 0.6
        with pytest.raises(ArithmeticError, match="^step 1: .* differ by 0.60 nats"):
            take_steps(trainer, notes)
        assert "end" not in notes.events


def test_dropout_excuses_other_probabilities(
    notes: Notes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = Trainer(run_of(tmp_path / "run", lora=[4, 8, 0.1]))
    notes.error = 0.6
    take_steps(trainer, notes)
    assert "dropout of the adapter" in capsys.readouterr().err


def test_a_resumed_run_gives_its_engine_the_restored_weights(
    notes: Notes, tmp_path: Path
) -> None:
    run = run_of(tmp_path / "run")
    first = Trainer(run)
    take_steps(first, notes)
    first.save(1)
    notes.loaded = torch.empty(0)
    assert Trainer(run).resume() == 1
    assert notes.loaded.equal(weights_of(first.team.primary))


def test_the_engine_sleeps_while_a_method_s_own_trainer_learns(
    notes: Notes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SFT, "fit", notes.before("fit", lambda *_: 1))
    fields = {"model": "tiny-small", "lora": [], "eval_every": 0, "eval_items": 1}
    train_small(tmp_path / "run", "sft", **fields)
    assert notes.events == ["play", "sleep", "fit", "load", "play", "close"]


def test_every_iteration_of_srlm_plays_awake_and_learns_asleep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Mock()
    engine.pairs.return_value = [{}]
    engine.tune.return_value.state.global_step = 1
    monkeypatch.setattr(SRLM, "pairs", engine.pairs)
    monkeypatch.setattr(trl_trainers, "tune", engine.tune)
    run = config.build("srlm", "quick", out=tmp_path, overrides={"iterations": 2})
    assert run.method.fit(load_policy("tiny-small"), run, engine) == 2
    calls = [name for name, *_ in engine.mock_calls]
    assert calls == ["load_weights", "pairs", "sleep", "tune"] * 2


def test_vllm_is_asked_before_a_run_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_vllm.install(monkeypatch)  # its tokens are not the learner's
    with pytest.raises(ArithmeticError, match="^step 0: learner and sampler differ"):
        Trainer(run_of(tmp_path / "run", engine="vllm"))


@pytest.fixture(scope="module")
def policy() -> Policy:
    """A policy whose sampler is replaced."""
    return load_policy("tiny-small")


@pytest.fixture(scope="module")
def width(policy: Policy) -> int:
    """The cache positions of one reply of sixteen tokens."""
    return len(policy.render(ask().messages)) + 16


@pytest.fixture
def sizes_on_gpu(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[int]]:
    """Return a function that says how many of eight replies are sampled at once on a GPU.

    Its arguments are cache positions: what the GPU has free, and what torch has reserved of it.
    """
    config_of_model = policy.plain_model.config
    position_bytes = cache_bytes(config_of_model, 2) / sampler.CACHE_SHARE
    sizes: list[int] = []

    def complete(requests: list[Request]) -> list[Completion]:
        sizes.append(len(requests))
        return [Completion([0], [-1.0])] * len(requests)

    def sample(free: int, reserved: int = 0, allocated: int = 0) -> list[int]:
        memory = {
            "mem_get_info": (int(free * position_bytes), 2**40),
            "memory_reserved": int(reserved * position_bytes),
            "memory_allocated": int(allocated * position_bytes),
        }
        for name, value in memory.items():
            monkeypatch.setattr(torch.cuda, name, Mock(return_value=value))
        policy.generate([ask(key=key) for key in range(8)], max_tokens=16)
        return sizes

    bfloat16_on_gpu = SimpleNamespace(is_cuda=True, element_size=lambda: 2)
    monkeypatch.setattr(policy, "head_VH", bfloat16_on_gpu)
    monkeypatch.setattr(policy, "batch_sampler", lambda: complete)
    return sample


def test_a_batch_of_the_sampler_stays_within_what_a_gpu_has_free(
    sizes_on_gpu: Callable[..., list[int]], width: int
) -> None:
    assert sizes_on_gpu(free=3 * width + 1) == [3, 3, 2]


def test_blocks_that_torch_keeps_empty_are_free(
    sizes_on_gpu: Callable[..., list[int]], width: int
) -> None:
    sizes = sizes_on_gpu(free=width, reserved=9 * width + 1, allocated=6 * width)
    assert sizes == [4, 4]


def test_what_is_free_is_measured_after_the_sampler_has_its_copies(
    policy: Policy,
    sizes_on_gpu: Callable[..., list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order = Notes()
    make_sampler = order.before("copies", policy.batch_sampler)
    measure = order.before("measure", policy._cache_positions)
    monkeypatch.setattr(policy, "batch_sampler", make_sampler)
    monkeypatch.setattr(policy, "_cache_positions", measure)
    sizes_on_gpu(free=1000)
    assert order.events == ["copies", "measure"]
