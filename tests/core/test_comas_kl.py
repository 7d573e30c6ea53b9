"""The penalty of CoMAS's advantage (Eqs. 9 and 10): the log-ratios that learning hands to it."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from tensors import Keep, batch_of, learn, policy_of, teacher_forced

from coevolve.models.lora import attach


def test_the_reference_of_an_adapter_is_its_base():
    base = policy_of()
    said = batch_of(base, 1)[0].reply
    policy = attach(base, ["agent_1", "agent_2"], (4, 8, 0.0), "x")["agent_1"]
    reference = policy.reference()
    assert reference.model is policy.model, "no copy is made"
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += 0.5
    assert reference.logprobs([said]).tolist() == pytest.approx(said.logprobs, abs=1e-4)
    assert policy.logprobs([said]).tolist() != pytest.approx(said.logprobs, abs=1e-2), "the adapter speaks again"


def test_learning_penalises_by_the_ratio_of_the_sampler_over_the_frozen_copy():
    policy = policy_of()
    reference, start = policy.reference(), copy.deepcopy(policy.model)
    assert not any(parameter.requires_grad for parameter in reference.model.parameters())
    with torch.no_grad():
        for parameter in policy.parameters():
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(7))
            parameter += 0.3 * noise * parameter.std()
    drawn, tokens = batch_of(policy, 9, heats=(1.0, 0.7, 0.0)), []
    told = [tuple(p - 0.1 * (t % 3) for t, p in enumerate(one.reply.logprobs)) for one in drawn]
    samples = [replace(one.reply, logprobs=p).earns(one.reward) for one, p in zip(drawn, told, strict=True)]
    for one in samples:
        said = one.reply.prompt_ids, list(one.reply.completion_ids), one.reply.temperature
        now, then = (teacher_forced(model, *said) for model in (policy.model, start))
        sampled = torch.tensor(one.reply.logprobs)
        ratios, weights = (sampled - then).tolist(), (now - sampled).exp().tolist()
        tokens += [(one.reward - 0.5 * sum(ratios[t:]), weights[t]) for t in range(len(ratios))]
    mean = sum(value for value, _ in tokens) / len(tokens)
    deviation = math.sqrt(sum((value - mean) ** 2 for value, _ in tokens) / len(tokens))
    expected = -sum((value - mean) / deviation * weight for value, weight in tokens) / len(tokens)
    settings = {"estimator": "reinforce_pp", "loss": "importance", "reference": reference, "kl_coef": 0.5}
    metrics = learn(policy, Keep(policy.parameters(), lr=1.0), samples, **settings, micro_tokens=60)
    assert metrics["loss"] == pytest.approx(expected, abs=1e-4) and metrics["kl"] > 0.1
