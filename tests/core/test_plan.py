"""`coevolve plan`: memory, hours and dollars of a run on four cards, and which setting fits."""

from typing import Any

import pytest

from coevolve.cli import main
from coevolve.training import config, memory, plan
from coevolve.training.memory import Memory
from coevolve.training.plan import CARDS, Replies, choose, known_config, step_seconds

SMALLEST, CONSUMER, _, LARGEST = CARDS
ONE_GPU = {"world": "tiny"}


def build(preset: str, method: str = "mae", **fields: Any) -> config.Run:
    return config.build(method, preset, out=".", overrides={"world": "tiny", **fields})


def test_the_command_prints_a_line_for_each_card(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "EPISODES", 1)
    assert main(["plan", "mae", "--preset", "one-gpu", "world=tiny"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == plan.HEADER
    rows = [line.strip("| ").split(" | ") for line in lines[2:6]]
    for row, card in zip(rows, CARDS, strict=True):
        name, _, _, fits, hours, *_ = row
        assert name == card.name
        assert fits == "yes"
        assert float(hours) > 0
    assert lines[-1].startswith("Computed, never measured")


def test_preset_one_gpu_fits_24_gb_as_it_is() -> None:
    fit = choose("mae", "one-gpu", ONE_GPU, CONSUMER)
    assert fit.fits
    assert fit.changes == {}


def test_a_smaller_card_gets_smaller_micro_batches_or_weights() -> None:
    fit = choose("mae", "one-gpu", ONE_GPU, SMALLEST)
    assert fit.fits
    assert fit.changes
    assert fit.memory.needed <= SMALLEST.gib


def test_the_papers_scale_fits_80_gb_and_needs_an_adapter_on_24() -> None:
    assert choose("mae", "gpu", ONE_GPU, LARGEST).run.lora == ()
    assert choose("mae", "gpu", ONE_GPU, CONSUMER).run.lora == (64, 128, 0.0)


def test_trl_gets_adapters_without_unsloth() -> None:
    fields = {**ONE_GPU, "trainer": "trl"}
    consumer = choose("mae", "gpu", fields, CONSUMER)
    assert consumer.fits
    assert consumer.run.lora == (64, 128, 0.0)
    assert consumer.run.engine == "vllm"
    smallest = choose("mae", "gpu", fields, SMALLEST)
    assert smallest.fits
    assert smallest.run.quantize == "4bit"
    assert smallest.run.engine == "torch"


def test_weights_of_4_bits_are_not_planned_for_shards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("WORLD_SIZE", "2")
    fit = choose("mae", "gpu", {**ONE_GPU, "trainer": "trl"}, SMALLEST)
    assert fit.run.quantize == ""


def test_several_policies_get_adapters_without_unsloth() -> None:
    fit = choose("comas", "gpu", ONE_GPU, CARDS[2])
    assert fit.run.lora
    assert fit.run.engine == "vllm"


def test_what_fits_nowhere_is_said() -> None:
    fit = choose("comas", "gpu", {**ONE_GPU, "lora": []}, SMALLEST)
    assert not fit.fits


def test_a_field_of_the_user_is_never_changed() -> None:
    fields = {**ONE_GPU, "max_tokens_per_micro_batch": 16_384}
    for card in CARDS:
        run = choose("mae", "one-gpu", fields, card).run
        assert run.max_tokens_per_micro_batch == 16_384


def test_a_step_takes_sampling_and_operations() -> None:
    run = build("one-gpu", batch_size=10)
    replies = Replies(total=5, rewarded=2)
    seconds = step_seconds(run, replies, 3_100_000_000, CONSUMER)
    sampled_tokens = 10 * 5 * 350
    learned_tokens = 10 * 2 * 950
    operations = learned_tokens * 6 * 3.1e9
    sampling = sampled_tokens / 2500
    update = operations / 30e12
    assert seconds == pytest.approx(sampling + update)


def test_the_torch_engine_samples_slowly() -> None:
    replies = Replies(total=5, rewarded=0)
    by_vllm = step_seconds(build("one-gpu"), replies, 3_000_000_000, CONSUMER)
    in_python = build("one-gpu", engine="torch")
    in_a_loop = step_seconds(in_python, replies, 3_000_000_000, CONSUMER)
    ratio = in_a_loop / by_vllm
    assert ratio == pytest.approx(10)


@pytest.mark.parametrize("name", plan.KNOWN_MODELS)
def test_known_models_have_the_size_in_their_name(name: str) -> None:
    _, _, size = name.partition("-")
    billions, _, _ = size.partition("B")
    model = memory.Model.read(known_config(name))
    expected = float(billions) * 1e9
    assert model.parameters == pytest.approx(expected, rel=0.15)


def test_more_of_everything_needs_more() -> None:
    run = build("one-gpu")
    need = memory.estimate(run, known_config)
    assert need.learning > need.resting
    assert need.resting > need.weights
    larger = max(need.learning, need.sampling)
    assert need.needed == larger
    empty = Memory()
    assert empty.learning == memory.CONTEXT_GIB
