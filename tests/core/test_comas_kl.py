"""CoMAS's advantage (Eqs. 9 and 10) against hand-computed cases, and the log-ratios that learning hands to it."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from tensors import Keep, batch_of, learn, policy_of, teacher_forced

from coevolve.advantages import reinforce_pp, reinforce_pp_by_role
from coevolve.policies.adapters import attach
from coevolve.types import Reply, Turn


def sample(role, reward, tokens=1, policy="agent_1", group=None):
    ids = tuple(range(tokens))
    return Reply(Turn(role, (), policy), "", (0,), ids, (0.0,) * tokens).earns(reward, group)


def flat(rows):
    return [value for row in rows for value in row]


def test_equations_9_and_10_by_hand():
    # Rewards 1 on two tokens and 0 on one; beta = 0.5. Log-ratios (0.2, 0.4) and (-0.6):
    # A = 1 - 0.5 (0.2 + 0.4) = 0.7, 1 - 0.5 * 0.4 = 0.8, and 0 + 0.5 * 0.6 = 0.3. Their mean is 0.6;
    # deviations 0.1, 0.2, -0.3; population variance (0.01 + 0.04 + 0.09) / 3 = 0.14 / 3.
    pair, deviation = [sample("solution", 1.0, 2), sample("scoring", 0.0)], math.sqrt(0.14 / 3)
    found = reinforce_pp(pair, [[0.2, 0.4], [-0.6]], 0.5)
    assert flat(found) == pytest.approx([0.1 / deviation, 0.2 / deviation, -0.3 / deviation])
    # The penalty of a token counts everything that follows it.
    # Equal rewards, beta 1, log-ratios 1, 2, 3: A_t = -(6, 5, 3), centred on -14/3.
    found = reinforce_pp([sample("solution", 0.0, 3)], [[1.0, 2.0, 3.0]], 1.0)
    scale = math.sqrt(((-4 / 3) ** 2 + (-1 / 3) ** 2 + (5 / 3) ** 2) / 3)
    assert found[0] == pytest.approx([-4 / 3 / scale, -1 / 3 / scale, 5 / 3 / scale])
    # Without a penalty every token has its reward. Rewards 1 (one token) and 0 (three): mean 1/4, variance 3/16.
    found = reinforce_pp([sample("solution", 1.0), sample("evaluation", 0.0, 3)])
    assert flat(found) == pytest.approx([math.sqrt(3)] + [-1 / math.sqrt(3)] * 3)


def test_a_readable_scoring_has_a_standing_disadvantage_in_the_common_buffer_only():
    # Zero-sum pairs 1/0 and scorings that earn 0: mean 1/3, deviation sqrt(2)/3, so a scoring gets -1/sqrt(2).
    roles = ("solution", "evaluation", "scoring") * 2
    batch = [sample(role, reward) for role, reward in zip(roles, (1.0, 0.0, 0.0, 0.0, 1.0, 0.0), strict=True)]
    common, apart = flat(reinforce_pp(batch)), flat(reinforce_pp_by_role(batch))
    assert [common[2], common[5]] == pytest.approx([-1 / math.sqrt(2)] * 2)
    assert [apart[2], apart[5]] == [0.0, 0.0] and apart[:2] == pytest.approx([1, -1])


def test_agents_and_groups_are_normalised_apart():
    one = [sample("solution", 1.0, 2), sample("solution", 0.0)]
    other = [sample("solution", 9.0, 1, "agent_2"), sample("solution", 5.0, 1, "agent_2")]
    both = reinforce_pp([*one, *other])
    assert both[:2] == reinforce_pp(one) and flat(both[2:]) == pytest.approx([1, -1])
    assert flat(reinforce_pp([*one, sample("solution", 0.5, 2, group="dummy")]))[3:] == [0.0, 0.0]


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
        said = one.reply.prompt_ids, list(one.reply.ids), one.reply.temperature
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
