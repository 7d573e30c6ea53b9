"""The memory of `trainer=trl` beside vLLM: what the engine leaves free, and when it sleeps."""

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pretend_vllm
import pytest
from pretend_vllm import PretendLLM
from transformers import AutoConfig

from coevolve.engines.limits import RESERVE_GIB, share_beside_learner
from coevolve.engines.vllm import VLLM
from coevolve.models.policy_set import PolicySet
from coevolve.training import config, memory, plan, trainer, trl_grpo
from coevolve.training.memory import CONTEXT_GIB, GIB, Memory, Model
from coevolve.training.progress import StepEnd, Timer
from coevolve.training.trl_trainer import TRLTrainer

CARD_GIB = 79.2  # of a card of 80 GB
PROCESSES = 8
SEVEN_BILLION = AutoConfig.for_model(
    "qwen2",
    hidden_size=3584,
    intermediate_size=18_944,
    num_hidden_layers=28,
    num_attention_heads=28,
    num_key_value_heads=4,
    vocab_size=152_064,
    tie_word_embeddings=False,
)
CONFIG_OF = {
    "3B": plan.known_config("Qwen/Qwen2.5-3B-Instruct"),
    "7B": SEVEN_BILLION,
    "8B": plan.known_config("Qwen/Qwen3-8B"),
}
LORA = [64, 128, 0.0]


def run_of(method: str = "mae", **fields: Any) -> config.Run:
    overrides = {"world": "tiny", "trainer": "trl"} | fields
    return config.build(method, "gpu", out=".", overrides=overrides)


def estimate(size: str, **fields: Any) -> Memory:
    return memory.estimate(run_of(**fields), lambda name: CONFIG_OF[size])


def parameters_of(size: str) -> int:
    return Model.read(CONFIG_OF[size]).parameters


def left_to_vllm(need: Memory, size: str, weight_bytes: int) -> float:
    """Return the GiB that vLLM gets on a card where the policy lies already."""
    loaded = weight_bytes * parameters_of(size) / GIB
    free = CARD_GIB - CONTEXT_GIB - loaded
    return CARD_GIB * share_beside_learner(free, CARD_GIB, need.later)


@pytest.fixture
def eight_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("WORLD_SIZE", str(PROCESSES))


class TestLater:
    """What the learner allocates when vLLM is already there."""

    @pytest.mark.parametrize("size", ["7B", "8B"])
    def test_a_shard_of_copy_and_moments(self, size: str, eight_shards: None) -> None:
        need = estimate(size)
        expected = (4 + 8) * parameters_of(size) / PROCESSES
        assert need.later * GIB == pytest.approx(expected)

    @pytest.mark.parametrize("size", ["7B", "8B"])
    def test_vllm_has_room_beside_shards(self, size: str, eight_shards: None) -> None:
        need = estimate(size, max_tokens=4096)
        assert left_to_vllm(need, size, weight_bytes=4) > need.sampler

    def test_one_process_keeps_twelve_bytes_of_a_parameter(self) -> None:
        need = estimate("3B")
        assert need.later * GIB == pytest.approx(12 * parameters_of("3B"))

    def test_moments_of_8_bits_take_two_bytes(self) -> None:
        need = estimate("3B", optimizer="adamw_8bit")
        assert need.later * GIB == pytest.approx((4 + 2) * parameters_of("3B"))

    def test_our_own_trainer_allocates_moments_alone(self) -> None:
        need = estimate("3B", trainer="own")
        assert need.later * GIB == pytest.approx(8 * parameters_of("3B"))

    def test_a_copy_of_the_adapter_on_the_same_base(self) -> None:
        need = estimate("3B", lora=LORA)
        adapter = LORA[0] * Model.read(CONFIG_OF["3B"]).linear_widths
        expected = (4 + 8) * adapter
        assert need.later * GIB == pytest.approx(expected)
        kept = CARD_GIB - left_to_vllm(need, "3B", weight_bytes=2)
        loaded = CONTEXT_GIB + 2 * parameters_of("3B") / GIB
        assert kept == pytest.approx(loaded + need.later + RESERVE_GIB)

    def test_a_frozen_judge_has_no_moments(self) -> None:
        judged = estimate("3B", lora=LORA, judge_model="judge")
        assert judged.later == pytest.approx(estimate("3B", lora=LORA).later)

    def test_a_reference_is_not_copied(self) -> None:
        need = estimate("3B", kl_loss_coef=0.1)
        assert need.copied == pytest.approx(estimate("3B").copied)


class TestCopy:
    """What TRL's copy of a model with an adapter shares with the policy."""

    def shared(self) -> tuple[list[bool], list[bool]]:
        """Return, for frozen and for trained parameters, whether both models have the same."""
        model = PolicySet(
            {"shared": "tiny-small"}, ("shared",), (4, 8, 0.0)
        ).primary.model
        copied = trl_grpo.trainable_copy(model)
        frozen: list[bool] = []
        trained: list[bool] = []
        for one, two in zip(model.parameters(), copied.parameters(), strict=True):
            kind = trained if one.requires_grad else frozen
            kind.append(one is two)
        return frozen, trained

    def test_the_frozen_base(self) -> None:
        frozen, trained = self.shared()
        assert all(frozen)
        assert not any(trained)

    def test_nothing_of_a_model_that_is_sharded(self, eight_shards: None) -> None:
        frozen, trained = self.shared()
        assert not any(frozen + trained)


class TestStart:
    """TRL copies the whole model before it is sharded."""

    def test_policy_copy_and_shard_lie_side_by_side(self, eight_shards: None) -> None:
        need = estimate("8B", max_tokens_per_micro_batch=1024)
        weights = 4 * parameters_of("8B") / GIB
        expected = CONTEXT_GIB + weights * (2 + 1 / PROCESSES) + memory.ASLEEP_GIB
        assert need.copying == pytest.approx(expected)
        assert need.learning == need.copying > need.updating

    def test_one_process_has_no_other_copy(self) -> None:
        need = estimate("8B")
        assert need.whole_copy == 0
        assert need.learning == need.updating


def test_vllm_gets_what_the_learner_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    team = PolicySet({"shared": "tiny-small"}, ("shared",), (4, 8, 0.0))
    pretend_vllm.install(monkeypatch)
    pretend_vllm.pretend_gpu(monkeypatch)
    VLLM(team.policies, 1.0, 8, later_gib=5.0)
    (settings,) = PretendLLM.started
    # 17 GiB are free, and 1.5 stay so.
    assert settings["gpu_memory_utilization"] == pytest.approx((17 - 1.5 - 5) / 24)


def test_the_users_share_comes_before_the_learners_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    team = PolicySet({"shared": "tiny-small"}, ("shared",), (4, 8, 0.0))
    pretend_vllm.install(monkeypatch)
    pretend_vllm.pretend_gpu(monkeypatch)
    options = {"gpu_memory_utilization": 0.3}
    VLLM(team.policies, 1.0, 8, options=options, later_gib=1000.0)
    (settings,) = PretendLLM.started
    assert settings["gpu_memory_utilization"] == 0.3


def small_run(out: Path) -> config.Run:
    fields = {
        "engine": "vllm",
        "trainer": "trl",
        "model": "tiny-small",
        "steps": 1,
        "batch_size": 1,
        "attempts": 1,
        "solves": 1,
    }
    return config.build("mae", "quick", out=out, overrides=fields)


def test_a_run_passes_its_estimate_to_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []

    def make_engine(*_: Any, later_gib: float, server: str) -> None:
        given.append(later_gib)
        raise InterruptedError

    need = Memory(weights=9.0, copied=2.0, moments=4.0)
    monkeypatch.setattr(memory, "check", lambda run: need)
    monkeypatch.setattr(trainer, "make_engine", make_engine)
    with pytest.raises(InterruptedError):
        TRLTrainer(small_run(tmp_path))
    assert given == [6.0]


def test_the_engine_sleeps_while_trl_copies_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_vllm.install(monkeypatch)
    # The pretend engine has no weights that could agree with the policy's.
    monkeypatch.setattr(trainer, "probe", lambda *_: None)
    monkeypatch.setattr(trainer.Canary, "watch", lambda *_: None)
    trl_trainer = TRLTrainer(small_run(tmp_path))
    (engine,) = trl_trainer.engine.distinct
    engine.sleeps = True  # as on a GPU
    asleep = {}
    play = trl_trainer.play

    def copy_model(*arguments: Any) -> Any:
        asleep["copy"] = engine.llm.asleep
        return copy.deepcopy(*arguments)

    def play_step(step: int) -> Any:
        asleep["play"] = engine.llm.asleep
        return play(step)

    monkeypatch.setattr(trl_grpo, "copy", SimpleNamespace(deepcopy=copy_model))
    monkeypatch.setattr(trl_trainer, "play", play_step)
    end = StepEnd(is_stopped=False, is_saved=False)
    trl_trainer.take_steps(0, Timer(), lambda *_: end)
    assert asleep == {"copy": True, "play": False}
