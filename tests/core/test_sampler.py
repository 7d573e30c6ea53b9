"""The sampler: parity with transformers, exact log-probabilities, samples that depend on their keys alone."""

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


def assert_exact(model, prompts, done, temperatures, atol=1e-4):
    for prompt, (ids, logprobs), heat in zip(prompts, done, temperatures, strict=True):
        expected = teacher_forced(model, prompt, ids, heat or 1.0)
        torch.testing.assert_close(torch.tensor(logprobs), expected, atol=atol, rtol=0)


ROPE = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA = {"kind": LlamaForCausalLM, "rope_parameters": ROPE | {"original_max_position_embeddings": 16}}
KINDS = [{}, {"kind": Qwen3ForCausalLM, "head_dim": 24}, LLAMA]  # two heads of 24 are wider than the model


@pytest.mark.parametrize("settings", [{"tied": False}, {"kv": 2}, *KINDS], ids=str)
def test_greedy_equals_transformers_on_ragged_prompts(settings):
    model, prompts = qwen(**settings), ragged(64)
    assert supports(model)
    ours = draw(model, prompts, temperatures=0.0)
    for prompt, (ids, _) in zip(prompts, ours, strict=True):
        theirs = model.generate(torch.tensor([prompt]), max_new_tokens=16, do_sample=False)[0, len(prompt) :]
        assert ids == theirs.tolist()
    assert_exact(model, prompts, ours, [0.0] * 64)


@pytest.mark.parametrize("settings", KINDS, ids=str)
def test_sampled_logprobs_are_those_of_a_teacher_forced_forward(settings):
    model, prompts = qwen(**settings), ragged(40)
    heats = [(1.0, 0.6, 2.5)[row % 3] for row in range(40)]
    assert_exact(model, prompts, draw(model, prompts, temperatures=heats, limits=20), heats)
    limits = [200, 150, 70]  # the cache grows
    long = draw(model, prompts[:3], limits=limits, ends=[])
    assert [len(ids) for ids, _ in long] == limits
    assert_exact(model, prompts[:3], long, [1.0] * 3)
    assert_exact(model.to(torch.bfloat16), prompts[:1], draw(model, prompts[:1], limits=12), [1.0], atol=0.15)


def test_a_key_gives_the_same_sample_in_any_batch(monkeypatch):
    model, prompts = qwen(), ragged(48)
    keys = [(7, 0, row, 1) for row in range(48)]
    together = draw(model, prompts, keys)
    order = random.Random(1).sample(range(48), 48)
    shuffled = draw(model, [prompts[i] for i in order], [keys[i] for i in order])
    assert [shuffled[place][0] for place in range(48)] == [together[row][0] for row in order]
    for row in range(0, 48, 7):
        (alone,) = draw(model, [prompts[row]], [keys[row]])
        assert alone[0] == together[row][0]
        np.testing.assert_allclose(alone[1], together[row][1], atol=1e-4)
    other = draw(model, prompts, [(8, *key) for key in keys])
    assert sum(a[0] == b[0] for a, b in zip(other, together, strict=True)) < 5
    for name, value in (("CHUNK", 20), ("DENSE", 0.0), ("ROWS", 7), ("POSITIONS", 60)):
        monkeypatch.setattr(sampler, name, value)
        assert [ids for ids, _ in draw(model, prompts, keys)] == [ids for ids, _ in together], name
    batches = sampler.batches([Request(prompt, (), 1.0, 8) for prompt in prompts])
    assert all(len(b) == 1 or len(b) * (max(len(prompts[r]) for r in b) + 8) <= 60 for b in batches)


def test_rows_that_finish_leave_and_the_others_go_on():
    model, prompts = qwen(), ragged(32)
    limits, endings = [1 + row % 16 for row in range(32)], range(40, 110)
    done = draw(model, prompts, limits=limits, ends=endings)
    for (ids, logprobs), limit in zip(done, limits, strict=True):
        assert len(ids) == len(logprobs) <= limit
        assert not set(ids[:-1]) & set(endings) and (len(ids) == limit or ids[-1] in endings)
    assert any(len(ids) < limit for (ids, _), limit in zip(done, limits, strict=True))


def test_what_requests_begin_with_is_computed_once(monkeypatch):
    model, prompts, heats = qwen(), ragged(4) * 8, [1.0] * 16 + [0.0] * 16
    monkeypatch.setattr(sampler, "DENSE", 1.0)  # who finishes leaves at once
    with patch.object(Decoder, "_run", autospec=True, side_effect=Decoder._run) as run:
        done = draw(model, prompts, temperatures=heats)
    said = [(prompt, heat, ids) for prompt, heat, (ids, _) in zip(prompts, heats, done, strict=True)]
    parts = [{(p, heat, *ids[:t]) for p, heat, ids in said if not t or len(ids) > t} for t in range(16)]
    assert [len(asked.args[1]) for asked in run.call_args_list] == [*map(len, parts)] and len(parts[0]) == 8
    assert [ids for *_, ids in said] == [draw(model, [prompts[i]], [i], heats[i])[0][0] for i in range(32)]


def test_choose_inverts_the_cumulative_distribution_and_never_leaves_it():
    drawn = noise([(1, 2), (12,)], 5)
    assert (drawn == noise([(12,), (1, 2)], 9)[::-1, :5]).all() and not (drawn[0] == drawn[1]).any()
    logits = torch.tensor([0.5, 0.25, 0.25, 0.0]).log().repeat(2, 1)
    uniforms = torch.tensor([0.0, 0.499, 0.501, 0.7501, 1 - 2**-53, 0.9], dtype=torch.float64)
    heats, places = torch.tensor([1.0, 0.0]), torch.tensor([0] * 5 + [1])
    tokens, logprobs = choose(logits[:2], heats, places, uniforms)
    assert tokens.tolist() == [0, 0, 1, 2, 2, 0]
    torch.testing.assert_close(logprobs, torch.tensor([0.5, 0.5, 0.25, 0.25, 0.25, 0.5]).log())
    cold, at_half = choose(logits[:1], torch.tensor([0.5]), places[:1], torch.tensor([0.66]))
    assert cold.tolist() == [0] and at_half.exp().item() == pytest.approx(2 / 3)  # squares: 2/3, 1/6, 1/6
    probabilities = torch.tensor([0.1, 0.2, 0.3, 0.4])
    uniforms = torch.from_numpy(noise(["many"], 20_000)[0])
    drawn, _ = choose(probabilities.log()[None], torch.ones(1), torch.zeros(20_000, dtype=torch.long), uniforms)
    share = torch.bincount(drawn, minlength=4) / 20_000
    assert (share - probabilities).abs().max() < 0.015  # more than four standard errors


BAD = [(r"0 tokens", [], {}), (r"\(-1.0, 16\)", [5], {"temperatures": -1.0}), (r"\(1.0, 0\)", [5], {"limits": 0})]


@pytest.mark.parametrize(("got", "prompt", "change"), BAD)
def test_bad_arguments_are_named(got, prompt, change):
    with pytest.raises(ValueError, match=f"needs a prompt, a finite temp.* got .*{got}"):
        draw(qwen(), [prompt], **change)


def test_what_the_decoder_cannot_compute_is_refused():
    for changed in ({"attention_bias": True}, {"mlp_bias": True}, {"hidden_act": "gelu"}):
        assert not supports(qwen(kind=LlamaForCausalLM, **changed)), changed
    model = qwen()
    assert supports(model)
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[0, 0] = torch.nan
    with pytest.raises(FloatingPointError, match="not finite"):
        draw(model, [[5, 6]])
    model.model.layers[0].self_attn.q_proj = torch.nn.Sequential(model.model.layers[0].self_attn.q_proj)
    assert not supports(model)
