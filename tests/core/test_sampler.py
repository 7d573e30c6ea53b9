"""The sampler: parity with transformers, exact log-probabilities, samples that hang on their keys alone."""

import random

import numpy as np
import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from coevolve.policies import sampler
from coevolve.policies.qwen2 import Decoder, supports
from coevolve.policies.sampler import Rows, choose, noise, sample_together

END = 3


def qwen(tied=True, kv=1, scale=0.2, vocabulary=320):
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=kv,
        max_position_embeddings=128,
        tie_word_embeddings=tied,
        initializer_range=scale,
        bos_token_id=1,
        eos_token_id=END,
        pad_token_id=0,
    )
    model = Qwen2ForCausalLM(config).eval()
    for name, parameter in model.named_parameters():  # zero biases would hide a forgotten one
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def ragged(count, seed=0):
    rng = random.Random(seed)
    return [[rng.randrange(5, 300) for _ in range(rng.randint(1, 24))] for _ in range(count)]


def sample(model, prompts, keys, temperatures, max_tokens, eos):
    """Sample one model's rows."""
    ends = [eos] if isinstance(eos, int) else eos
    return sample_together([Decoder.of(model)], [Rows(prompts, keys, temperatures, max_tokens, ends)])[0]


def teacher_forced(model, prompt, ids, temperature=1.0):
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1] / temperature
    return logits.log_softmax(-1).gather(-1, torch.tensor(ids)[:, None])[:, 0]


def teacher_choice(model, prompt, ids):
    with torch.no_grad():
        return model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1].argmax(-1).tolist()


@pytest.mark.parametrize(("tied", "kv"), [(True, 1), (False, 1), (True, 2)])
def test_greedy_equals_transformers_on_ragged_prompts(tied, kv):
    model, prompts = qwen(tied, kv), ragged(64)
    ours = sample(model, prompts, [()] * 64, [0.0] * 64, [16] * 64, END)
    for prompt, (ids, logprobs) in zip(prompts, ours, strict=True):
        theirs = model.generate(torch.tensor([prompt]), max_new_tokens=16, do_sample=False)[0, len(prompt) :]
        assert ids == theirs.tolist()
        expected = teacher_forced(model, prompt, ids)
        torch.testing.assert_close(torch.tensor(logprobs), expected, atol=1e-4, rtol=0)


def test_sampled_logprobs_are_those_of_a_teacher_forced_forward():
    model, prompts = qwen(), ragged(40)
    heats = [(1.0, 0.6, 2.5)[row % 3] for row in range(40)]
    done = sample(model, prompts, list(range(40)), heats, [20] * 40, END)
    for prompt, heat, (ids, logprobs) in zip(prompts, heats, done, strict=True):
        expected = teacher_forced(model, prompt, ids, heat)
        torch.testing.assert_close(torch.tensor(logprobs), expected, atol=1e-4, rtol=0)


def test_a_key_gives_the_same_sample_in_any_batch():
    model, prompts = qwen(), ragged(48)
    keys = [(7, 0, row, 1) for row in range(48)]
    together = sample(model, prompts, keys, [1.0] * 48, [16] * 48, END)
    order = random.Random(1).sample(range(48), 48)
    mixed_prompts, mixed_keys = [prompts[i] for i in order], [keys[i] for i in order]
    shuffled = sample(model, mixed_prompts, mixed_keys, [1.0] * 48, [16] * 48, END)
    for place, row in enumerate(order):
        assert shuffled[place][0] == together[row][0]
    for row in range(0, 48, 7):
        alone = sample(model, [prompts[row]], [keys[row]], [1.0], [16], END)
        assert alone[0][0] == together[row][0]
        np.testing.assert_allclose(alone[0][1], together[row][1], atol=1e-4)
    other = sample(model, prompts, [(8, *key) for key in keys], [1.0] * 48, [16] * 48, END)
    assert sum(a[0] == b[0] for a, b in zip(other, together, strict=True)) < 5


def test_rows_that_finish_leave_and_the_others_go_on(monkeypatch):
    model, prompts = qwen(), ragged(32)
    limits = [1 + row % 16 for row in range(32)]
    endings = list(range(40, 110))
    done = sample(model, prompts, list(range(32)), [1.0] * 32, limits, endings)
    for (ids, logprobs), limit in zip(done, limits, strict=True):
        assert len(ids) == len(logprobs) <= limit
        assert not set(ids[:-1]) & set(endings)
        assert len(ids) == limit or ids[-1] in endings
    assert any(len(ids) < limit for (ids, _), limit in zip(done, limits, strict=True))
    monkeypatch.setattr(sampler, "DENSE", 0.0)  # nobody leaves
    kept = sample(model, prompts, list(range(32)), [1.0] * 32, limits, endings)
    assert [ids for ids, _ in kept] == [ids for ids, _ in done]


def test_equal_prompts_are_prefilled_once(monkeypatch):
    model, few = qwen(), ragged(4)
    prompts = [few[row % 4] for row in range(32)]
    widths = []
    prefill = Decoder.prefill

    def spy(self, ids_MS, *rest):
        widths.append(len(ids_MS))
        return prefill(self, ids_MS, *rest)

    monkeypatch.setattr(Decoder, "prefill", spy)
    together = sample(model, prompts, list(range(32)), [1.0] * 32, [12] * 32, END)
    assert widths == [4]
    alone = [sample(model, [prompts[i]], [i], [1.0], [12], END)[0] for i in range(32)]
    assert [ids for ids, _ in together] == [ids for ids, _ in alone]


def test_large_batches_are_split_without_changing_a_sample(monkeypatch):
    model, prompts = qwen(), ragged(40)
    whole = sample(model, prompts, list(range(40)), [1.0] * 40, [8] * 40, END)
    monkeypatch.setattr(sampler, "CHUNK", 20)
    chunks = list(sampler._chunks([sorted(map(tuple, prompts), key=lambda prompt: (len(prompt), prompt))], 20))
    assert len(chunks) > 5 and [first for first, _ in chunks[1:]] == [last for _, last in chunks[:-1]]
    parts = sample(model, prompts, list(range(40)), [1.0] * 40, [8] * 40, END)
    assert [ids for ids, _ in parts] == [ids for ids, _ in whole]
    monkeypatch.setattr(sampler, "ROWS", 7)
    parts = sample(model, prompts, list(range(40)), [1.0] * 40, [8] * 40, END)
    assert [ids for ids, _ in parts] == [ids for ids, _ in whole]
    monkeypatch.setattr(sampler, "POSITIONS", 60)
    batches = list(sampler.batches(prompts, [8] * 40))
    assert sorted(row for batch in batches for row in batch) == list(range(40))
    assert all(len(b) == 1 or len(b) * (max(len(prompts[r]) for r in b) + 8) <= 60 for b in batches)


def test_the_cache_grows_with_long_completions():
    model, prompts = qwen(), ragged(3)
    heats, limits = [1.0, 0.0, 1.0], [200, 150, 70]
    done = sample(model, prompts, [0, 1, 2], heats, limits, 10**6)
    for prompt, heat, limit, (ids, logprobs) in zip(prompts, heats, limits, done, strict=True):
        assert len(ids) == limit
        expected = teacher_forced(model, prompt, ids)
        torch.testing.assert_close(torch.tensor(logprobs), expected, atol=1e-4, rtol=0)
        assert heat or ids == teacher_choice(model, prompt, ids)


@pytest.mark.parametrize("kv", [1, 2])
def test_models_sampled_together_say_what_each_says_alone(kv, monkeypatch):
    models = [qwen(tied=kv == 1, kv=kv, scale=scale) for scale in (0.2, 0.3, 0.1)]
    asked = [
        Rows(
            ragged(count, seed),
            [(seed, row) for row in range(count)],
            [1.0 * (row % 3 > 0) for row in range(count)],
            [1 + row % 20 for row in range(count)],
            {END, 40 + seed},
        )
        for seed, count in enumerate((9, 1, 30))
    ]
    alone = [sample_together([Decoder.of(model)], [rows])[0] for model, rows in zip(models, asked, strict=True)]
    for most in (sampler.ROWS, 4):  # whole, and in batches of which the first model's and the second's run out
        monkeypatch.setattr(sampler, "ROWS", most)
        together = sample_together([Decoder.of(model) for model in models], asked)
        for model, rows, its, mine in zip(models, asked, together, alone, strict=True):
            assert [ids for ids, _ in its] == [ids for ids, _ in mine]
            for prompt, heat, (ids, logprobs) in zip(rows.prompts, rows.temperatures, its, strict=True):
                expected = teacher_forced(model, prompt, ids)
                torch.testing.assert_close(torch.tensor(logprobs), expected, atol=1e-4, rtol=0)
                assert heat or ids == teacher_choice(model, prompt, ids)


def test_models_of_different_shapes_are_not_sampled_together():
    rows = [Rows([[5]], [0], [1.0], [4], {END})] * 2
    with pytest.raises(ValueError, match="one shape"):
        sample_together([Decoder.of(qwen()), Decoder.of(qwen(vocabulary=330))], rows)


def test_bfloat16_weights_sample():
    model = qwen().to(torch.bfloat16)
    prompt = ragged(1)[0]
    ids, logprobs = sample(model, [prompt], [1], [1.0], [12], END)[0]
    expected = teacher_forced(model, prompt, ids).float()
    torch.testing.assert_close(torch.tensor(logprobs), expected, atol=0.15, rtol=0)


def test_choose_inverts_the_cumulative_distribution_and_never_leaves_it():
    logits = torch.tensor([0.5, 0.25, 0.25, 0.0]).log().repeat(6, 1)
    uniforms = torch.tensor([0.0, 0.499, 0.501, 0.7501, 1 - 2**-53, 0.9], dtype=torch.float64)
    heats = torch.tensor([1.0] * 5 + [0.0])
    tokens, logprobs = choose(logits, heats, uniforms)
    assert tokens.tolist() == [0, 0, 1, 2, 2, 0]
    expected = torch.tensor([0.5, 0.5, 0.25, 0.25, 0.25, 0.5]).log()
    torch.testing.assert_close(logprobs, expected)
    cold, at_half = choose(logits[:1], torch.tensor([0.5]), torch.tensor([0.66], dtype=torch.float64))
    assert cold.tolist() == [0]  # squares: 2/3, 1/6, 1/6
    assert at_half.exp().item() == pytest.approx(2 / 3)


def test_choose_follows_the_probabilities():
    probabilities = torch.tensor([0.1, 0.2, 0.3, 0.4])
    uniforms = torch.from_numpy(noise("many", 20_000))
    tokens, _ = choose(probabilities.log().repeat(20_000, 1), torch.ones(20_000), uniforms)
    share = torch.bincount(tokens, minlength=4) / 20_000
    assert (share - probabilities).abs().max() < 0.015  # more than four standard errors


def test_noise_hangs_on_the_key_alone():
    assert (noise((1, 2), 5) == noise((1, 2), 9)[:5]).all()
    assert not (noise((1, 2), 5) == noise((12,), 5)).any()


@pytest.mark.parametrize(
    ("field", "change"),
    [("prompts", {"prompts": [[]]}), ("temperatures", {"heat": [-1.0]}), ("max_tokens", {"limit": [0]})],
)
def test_bad_arguments_are_named(field, change):
    given = {"prompts": [[5]], "heat": [1.0], "limit": [4]} | change
    with pytest.raises(ValueError, match=field):
        sample(qwen(), given["prompts"], [0], given["heat"], given["limit"], END)


def test_a_broken_weight_is_named():
    model = qwen()
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[0, 0] = torch.nan
    with pytest.raises(FloatingPointError, match="layers.1.mlp.down_proj.weight"):
        sample(model, [[5, 6]], [0], [1.0], [4], END)


def test_supports_only_the_plain_model():
    assert supports(qwen())
    adapted = qwen()
    adapted.model.layers[0].self_attn.q_proj = torch.nn.Sequential(adapted.model.layers[0].self_attn.q_proj)
    assert not supports(adapted)
