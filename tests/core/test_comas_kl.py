"""The KL penalty of CoMAS's advantages (Eqs. 9 and 10) and the log-ratios that it is made of."""

import copy
import math
from dataclasses import dataclass, replace

import pytest
import torch
from tensors import Keep, batch_of, learn, policy_of, teacher_forced
from transformers import PreTrainedModel

from coevolve.models.lora import attach
from coevolve.models.policy import Policy
from coevolve.types import Sample

KL_COEF = 0.5  # beta of Eq. 9


def test_the_reference_of_an_adapter_is_its_base() -> None:
    base = policy_of()
    reply = batch_of(base, 1)[0].reply
    adapters = attach(base, ["agent_1", "agent_2"], (4, 8, 0.0), "x")
    policy = adapters["agent_1"]
    reference = policy.reference()
    assert reference.model is policy.model, "no copy is made"
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += 0.5
    of_base = pytest.approx(reply.logprobs, abs=1e-4)
    assert reference.logprobs([reply]).tolist() == of_base
    different = pytest.approx(reply.logprobs, abs=1e-2)
    assert policy.logprobs([reply]).tolist() != different, "the adapter is on again"


def add_noise(policy: Policy) -> None:
    """Move the weights of a policy away from their start."""
    with torch.no_grad():
        for parameter in policy.parameters():
            generator = torch.Generator().manual_seed(7)
            noise = torch.randn(parameter.shape, generator=generator)
            parameter += 0.3 * noise * parameter.std()


def with_other_logprobs(sample: Sample) -> Sample:
    """Return a sample whose sampler claims less probability for two tokens of three."""
    logprobs = []
    for t, logprob in enumerate(sample.reply.logprobs):
        logprobs.append(logprob - 0.1 * (t % 3))
    reply = replace(sample.reply, logprobs=tuple(logprobs))
    return reply.earns(sample.reward)


@dataclass(frozen=True)
class Token:
    """A token's return by Eq. 9, and its importance weight."""

    value: float
    weight: float


def tokens_of(
    sample: Sample, model: PreTrainedModel, reference: PreTrainedModel
) -> list[Token]:
    """Compute the tokens of a sample with one forward pass of each model."""
    reply = sample.reply
    inputs = (reply.prompt_ids, list(reply.completion_ids), reply.temperature)
    sampled_T = torch.tensor(reply.logprobs)
    ratios = (sampled_T - teacher_forced(reference, *inputs)).tolist()
    weights = (teacher_forced(model, *inputs) - sampled_T).exp().tolist()
    tokens = []
    for t, weight in enumerate(weights):
        kl_to_end = sum(ratios[t:])
        tokens.append(Token(sample.reward - KL_COEF * kl_to_end, weight))
    return tokens


def expected_loss(tokens: list[Token]) -> float:
    """Standardise the returns over all tokens (Eq. 10), and average the weighted advantages."""
    count = len(tokens)
    mean = sum(token.value for token in tokens) / count
    variance = sum((token.value - mean) ** 2 for token in tokens) / count
    deviation = math.sqrt(variance)
    total = 0.0
    for token in tokens:
        total += (token.value - mean) / deviation * token.weight
    return -total / count


def test_learning_penalises_by_the_ratio_of_the_sampler_over_the_frozen_copy() -> None:
    policy = policy_of()
    reference = policy.reference()
    start = copy.deepcopy(policy.model)
    for parameter in reference.model.parameters():
        assert not parameter.requires_grad
    add_noise(policy)
    drawn = batch_of(policy, 9, heats=(1.0, 0.7, 0.0))
    samples = [with_other_logprobs(sample) for sample in drawn]
    tokens = []
    for sample in samples:
        tokens += tokens_of(sample, policy.model, start)
    metrics = learn(
        policy,
        Keep(policy.parameters(), lr=1.0),
        samples,
        estimator="reinforce_pp",
        loss="importance",
        reference=reference,
        kl_coef=KL_COEF,
        max_tokens_per_micro_batch=60,
    )
    assert metrics["loss"] == pytest.approx(expected_loss(tokens), abs=1e-4)
    assert metrics["kl"] > 0.1
