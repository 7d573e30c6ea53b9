"""Learned baselines: what the value head and the means of roles learn, and the literal GAE step."""

import pytest
import torch
from tensors import draw, learn, policy_of

from coevolve.advantages.inputs import EstimatorInputs
from coevolve.advantages.segments import role_conditioned
from coevolve.training.value_baselines import RoleMeans, ValueHead
from coevolve.types import Reply, Sample, Turn


def samples_of(policy, count: int = 48, reward=lambda row, ids: float(ids[0] % 2)) -> list[Sample]:
    prompts = [(5 + row % 7, 6) for row in range(count)]
    made = []
    for row, completion in enumerate(draw(policy.model, prompts, limits=6)):
        ids, logprobs = completion.token_ids, completion.logprobs
        ends = tuple(range(1, len(ids) + 1))
        reply = Reply(Turn("review", ()), "x" * len(ids), prompts[row], tuple(ids), tuple(logprobs), ends)
        spans = {"s": ((0, 2),), "t": ((2, len(ids)),)}
        made.append(reply.earns({"s": reward(row, ids), "t": None}, row // 4, spans))
    return made


def test_a_fresh_head_expects_nothing_and_learns_the_mean() -> None:
    policy = policy_of()
    head, samples = ValueHead(policy), samples_of(policy, reward=lambda row, ids: 0.75)
    first = head.observe(samples, 64)
    assert [len(values) for values in first] == [len(s.reply.completion_ids) for s in samples]
    assert {value for values in first for value in values} == {0.0}
    for _ in range(30):
        last = head.observe(samples, 64)
    assert all(abs(value - 0.75) < 0.05 for values in last for value in values[:2])


def test_it_tells_states_apart() -> None:
    """The second token's state knows the first token, which decides the reward; the first token's does not."""
    policy = policy_of()
    head, samples = ValueHead(policy), samples_of(policy, 96)
    for _ in range(40):
        values = head.observe(samples, 256)
    rewards = [sample.reward["s"] for sample in samples]
    error = {t: sum((v[t] - r) ** 2 for v, r in zip(values, rewards, strict=True)) / len(rewards) for t in (0, 1)}
    assert error[1] < 0.7 * error[0]


def test_masked_tokens_teach_nothing_and_batching_changes_nothing() -> None:
    policy = policy_of()
    samples = samples_of(policy)
    paid = [Sample(s.reply, {"s": s.reward["s"], "t": 9.0}, s.group_id, s.spans) for s in samples]
    one, other, loud = (ValueHead(policy) for _ in range(3))
    one.observe(samples, 10_000), other.observe(samples[::-1], 16), loud.observe(paid, 10_000)
    assert torch.allclose(one.weight_H, other.weight_H, atol=1e-5)
    assert not torch.allclose(loud.weight_H, one.weight_H), "unless they are paid"


def test_gae_raises_what_is_paid_above_expectation() -> None:
    policy = policy_of()
    samples = samples_of(policy, 96)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.5)
    settings = {"estimator": "gae", "loss": "importance", "length_norm": "token_mean"}
    head = ValueHead(policy)
    head.observe(samples, 1024)

    def odd() -> float:
        states, targets = policy.hidden_states([(s.reply.prompt_ids, s.reply.completion_ids[:1]) for s in samples])
        chances = (states @ policy.head_VH.T).softmax(-1)
        return float(chances[:, 1::2].sum(-1).mean().detach())

    before = odd()
    for _ in range(5):
        metrics = learn(policy, optimizer, samples, baseline=head, **settings)
    assert metrics["skipped_update"] == 0 and odd() > before + 0.005


def test_a_role_is_measured_by_what_it_earned_before() -> None:
    """By hand: a mean of 0, after a reward of 1 of 0.05, after one of 0 of 0.0475; segments have means of their own."""
    solver, judge, review = (Reply(Turn(role, ()), "ab", (0,), (1, 2), (0.0, 0.0), (1, 2)) for role in "sjr")
    spans = {"s": ((0, 1),), "t": ((1, 2),)}
    paid = [review.earns({"s": 2.0, "t": None}, None, spans), review.earns({"s": 0.0, "t": 1.0}, None, spans)]
    batch = [solver.earns(1.0), judge.earns(-4.0), solver.earns(0.0), solver.earns(1.0), *paid]
    means = RoleMeans()
    advantages = role_conditioned(
        EstimatorInputs(batch, values=means.observe(batch, 64))
    )
    assert advantages[:4] == [pytest.approx([one] * 2) for one in (1.0, -4.0, -0.05, 0.9525)]
    assert advantages[4:] == [[2.0, None], pytest.approx([-0.1, 1.0])]
    again = RoleMeans()
    again.load_state_dict(means.state_dict())
    assert again.observe(batch[:2], 64) == [pytest.approx([0.095125] * 2), pytest.approx([-0.2] * 2)], "kept"
