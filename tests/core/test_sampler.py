"""The sampler: parity with transformers, exact log-probabilities, one sample per key."""

import random
from unittest.mock import patch

import numpy as np
import pytest
import torch
from tensors import draw, qwen, ragged, teacher_forced
from transformers import LlamaForCausalLM, Qwen3ForCausalLM

from coevolve.models import sampler
from coevolve.models.decoder import Decoder, supports
from coevolve.models.sampler import Request, choose, noise

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
QWEN2 = {}
# Two heads of 24 are wider than the model.
QWEN3 = {
    "kind": Qwen3ForCausalLM,
    "head_dim": 24,
}
LLAMA = {"kind": LlamaForCausalLM, "rope_parameters": LLAMA3_ROPE}
ARCHITECTURES = [QWEN2, QWEN3, LLAMA]
VARIANTS = [{"tied": False}, {"kv": 2}, *ARCHITECTURES]


def assert_exact_logprobs(model, prompts, completions, temperatures, atol=1e-4):
    for prompt, completion, temperature in zip(
        prompts, completions, temperatures, strict=True
    ):
        expected = teacher_forced(
            model, prompt, completion.token_ids, temperature or 1.0
        )
        reported = torch.tensor(completion.logprobs)
        torch.testing.assert_close(reported, expected, atol=atol, rtol=0)


def tokens_of(completions):
    return [completion.token_ids for completion in completions]


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_greedy_equals_transformers_on_ragged_prompts(settings):
    model = qwen(**settings)
    prompts = ragged(64)
    assert supports(model)
    completions = draw(model, prompts, temperatures=0.0)
    for prompt, completion in zip(prompts, completions, strict=True):
        output = model.generate(
            torch.tensor([prompt]), max_new_tokens=16, do_sample=False
        )
        expected = output[0, len(prompt) :]
        assert completion.token_ids == expected.tolist()
    assert_exact_logprobs(model, prompts, completions, [0.0] * 64)


@pytest.mark.parametrize("settings", ARCHITECTURES, ids=str)
def test_sampled_logprobs_are_those_of_a_teacher_forced_forward(settings):
    model = qwen(**settings)
    prompts = ragged(40)
    temperatures = [1.0, 0.6, 2.5, 1.0] * 10
    completions = draw(model, prompts, temperatures=temperatures, limits=20)
    assert_exact_logprobs(model, prompts, completions, temperatures)


@pytest.mark.parametrize("settings", ARCHITECTURES, ids=str)
def test_logprobs_stay_exact_while_the_cache_grows(settings):
    model = qwen(**settings)
    prompts = ragged(40)[:3]
    limits = [200, 150, 70]
    completions = draw(model, prompts, limits=limits, eos_token_ids=[])
    lengths = [len(completion.token_ids) for completion in completions]
    assert lengths == limits
    assert_exact_logprobs(model, prompts, completions, [1.0] * 3)


@pytest.mark.parametrize("settings", ARCHITECTURES, ids=str)
def test_logprobs_of_a_bfloat16_model_are_close(settings):
    model = qwen(**settings)
    prompts = ragged(40)[:1]
    model.to(torch.bfloat16)
    completions = draw(model, prompts, limits=12)
    assert_exact_logprobs(model, prompts, completions, [1.0], atol=0.15)


@pytest.fixture(scope="module")
def keyed():
    """A model, prompts and keys, and the completions of one large batch."""
    model = qwen()
    prompts = ragged(48)
    keys = [(7, 0, row, 1) for row in range(48)]
    return model, prompts, keys, draw(model, prompts, keys)


def test_a_key_gives_the_same_sample_in_a_shuffled_batch(keyed):
    model, prompts, keys, completions = keyed
    order = random.Random(1).sample(range(48), 48)
    shuffled_prompts = [prompts[row] for row in order]
    shuffled_keys = [keys[row] for row in order]
    shuffled = draw(model, shuffled_prompts, shuffled_keys)
    for row, completion in zip(order, shuffled, strict=True):
        assert completion.token_ids == completions[row].token_ids


def test_a_key_gives_the_same_sample_alone(keyed):
    model, prompts, keys, completions = keyed
    for row in range(0, 48, 7):
        (alone,) = draw(model, [prompts[row]], [keys[row]])
        in_batch = completions[row]
        assert alone.token_ids == in_batch.token_ids
        np.testing.assert_allclose(alone.logprobs, in_batch.logprobs, atol=1e-4)


def test_other_keys_give_other_samples(keyed):
    model, prompts, keys, completions = keyed
    other_keys = [(8, *key) for key in keys]
    others = draw(model, prompts, other_keys)
    equal = []
    for other, completion in zip(others, completions, strict=True):
        if other.token_ids == completion.token_ids:
            equal.append(other)
    assert len(equal) < 5


def test_limits_of_memory_do_not_change_samples(keyed, monkeypatch):
    model, prompts, keys, completions = keyed
    limits = {
        "PREFILL_TOKENS": 20,
        "COMPACT_BELOW": 0.0,
        "MAX_ROWS": 7,
        "MAX_CACHE_POSITIONS": 60,
    }
    for name, value in limits.items():  # one after the other, and together in the end
        monkeypatch.setattr(sampler, name, value)
        again = draw(model, prompts, keys)
        assert tokens_of(again) == tokens_of(completions), name
    requests = [Request(prompt, (), 1.0, 8) for prompt in prompts]
    for batch in sampler.batches(requests):
        longest = max(len(prompts[row]) for row in batch)
        positions = len(batch) * (longest + 8)
        assert len(batch) == 1 or positions <= 60


def test_rows_that_finish_leave_and_the_others_continue():
    eos_token_ids = range(40, 110)
    limits = [*range(1, 17)] * 2
    completions = draw(qwen(), ragged(32), limits=limits, eos_token_ids=eos_token_ids)
    ended_early = []
    for completion, limit in zip(completions, limits, strict=True):
        ids = completion.token_ids
        assert len(ids) == len(completion.logprobs) <= limit
        *before, last = ids
        assert not set(before) & set(eos_token_ids)
        assert len(ids) == limit or last in eos_token_ids
        ended_early.append(len(ids) < limit)
    assert any(ended_early)


def test_a_common_beginning_of_requests_is_computed_once(monkeypatch):
    model = qwen()
    prompts = ragged(4) * 8
    temperatures = [1.0] * 16 + [0.0] * 16
    monkeypatch.setattr(sampler, "COMPACT_BELOW", 1.0)  # finished rows leave at once
    run_layers = Decoder._run_layers
    with patch.object(
        Decoder, "_run_layers", autospec=True, side_effect=run_layers
    ) as calls:
        completions = draw(model, prompts, temperatures=temperatures)
    rows_computed = []
    for call in calls.call_args_list:
        _, ids, *_ = call.args
        rows_computed.append(len(ids))
    completion_ids = tokens_of(completions)
    for t in range(16):
        beginnings = set()
        for prompt, temperature, ids in zip(
            prompts, temperatures, completion_ids, strict=True
        ):
            if t == 0 or len(ids) > t:
                beginnings.add((prompt, temperature, *ids[:t]))
        assert rows_computed[t] == len(beginnings)
    assert len(rows_computed) == 16
    assert rows_computed[0] == 8
    rows = zip(prompts, temperatures, completion_ids, strict=True)
    for key, (prompt, temperature, ids) in enumerate(rows):
        (alone,) = draw(model, [prompt], [key], temperature)
        assert ids == alone.token_ids


def test_noise_of_a_key_is_the_same_in_any_order_and_length():
    first, second = noise([(1, 2), (12,)], 5)
    second_again, first_again = noise([(12,), (1, 2)], 9)
    assert (first == first_again[:5]).all()
    assert (second == second_again[:5]).all()
    assert not (first == second).any()


PROBABILITIES = [0.5, 0.25, 0.25, 0.0]
GREEDY = 0.0
CHOICES = [  # temperature, uniform number, token, its probability at that temperature
    (1.0, 0.0, 0, 0.5),
    (1.0, 0.499, 0, 0.5),
    (1.0, 0.501, 1, 0.25),
    (1.0, 0.7501, 2, 0.25),
    (1.0, 1 - 2**-53, 2, 0.25),  # never the last token, which has no probability
    (GREEDY, 0.9, 0, 0.5),
    (0.5, 0.66, 0, 2 / 3),  # squared and normalised: 2/3, 1/6, 1/6
]


@pytest.mark.parametrize(("temperature", "uniform", "token", "probability"), CHOICES)
def test_choose_inverts_the_cumulative_distribution(
    temperature, uniform, token, probability
):
    logits = torch.tensor([PROBABILITIES]).log()
    uniforms = torch.tensor([uniform], dtype=torch.float64)
    slots = torch.tensor([0])
    tokens, logprobs = choose(logits, torch.tensor([temperature]), slots, uniforms)
    assert tokens.tolist() == [token]
    assert logprobs.exp().item() == pytest.approx(probability)


def test_choose_uses_the_logits_and_temperature_of_each_row_s_slot():
    logits = torch.tensor([PROBABILITIES, PROBABILITIES[::-1]]).log()
    temperatures = torch.tensor([1.0, GREEDY])
    slots = torch.tensor([0, 1, 0])
    uniforms = torch.tensor([0.6, 0.6, 0.8], dtype=torch.float64)
    tokens, logprobs = choose(logits, temperatures, slots, uniforms)
    assert tokens.tolist() == [1, 3, 2]
    assert logprobs.exp().tolist() == pytest.approx([0.25, 0.5, 0.25])


def test_choose_draws_tokens_as_often_as_they_are_probable():
    count = 20_000
    probabilities = torch.tensor([0.1, 0.2, 0.3, 0.4])
    (row,) = noise(["many"], count)
    uniforms = torch.from_numpy(row)
    slots = torch.zeros(count, dtype=torch.long)
    logits = probabilities.log()[None]
    tokens, _ = choose(logits, torch.ones(1), slots, uniforms)
    frequencies = torch.bincount(tokens, minlength=4) / count
    assert (
        frequencies - probabilities
    ).abs().max() < 0.015  # more than four standard errors


BAD_REQUESTS = [
    ("0 prompt tokens", [], {}),
    ("temperature -1.0 and max_tokens 16", [5], {"temperatures": -1.0}),
    ("temperature 1.0 and max_tokens 0", [5], {"limits": 0}),
]


@pytest.mark.parametrize(("got", "prompt", "changes"), BAD_REQUESTS)
def test_bad_arguments_are_named(got, prompt, changes):
    with pytest.raises(
        ValueError, match=f"needs a prompt, a finite temp.* got .*{got}"
    ):
        draw(qwen(), [prompt], **changes)


UNSUPPORTED = [{"attention_bias": True}, {"mlp_bias": True}, {"hidden_act": "gelu"}]


@pytest.mark.parametrize("changes", UNSUPPORTED, ids=str)
def test_unsupported_configurations_are_refused(changes):
    assert not supports(qwen(kind=LlamaForCausalLM, **changes))


def test_unsupported_layers_are_refused():
    model = qwen()
    assert supports(model)
    attention = model.model.layers[0].self_attn
    attention.q_proj = torch.nn.Sequential(attention.q_proj)
    assert not supports(model)


def test_output_that_is_not_finite_is_an_error():
    model = qwen()
    with torch.no_grad():
        last_layer = model.model.layers[1]
        last_layer.mlp.down_proj.weight[0, 0] = torch.nan
    with pytest.raises(FloatingPointError, match="not finite"):
        draw(model, [[5, 6]])
