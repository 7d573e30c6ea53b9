"""Learned baselines: what the value head and the role means learn from rewards."""

import pytest
import torch
from tensors import draw, learn, policy_of

from coevolve.advantages.inputs import EstimatorInputs
from coevolve.advantages.segments import role_conditioned
from coevolve.training.value_baselines import RoleMeans, ValueHead
from coevolve.types import Reply, Sample, Turn

MAX_TOKENS = 6


def parity(row: int, ids: tuple[int, ...]) -> float:
    """Reward 1 for an odd first token, else 0."""
    return float(ids[0] % 2)


def samples_of(policy, count: int = 48, reward=parity) -> list[Sample]:
    """Return samples with two segments: s, the first two tokens, is rewarded, and t is masked."""
    prompts = [(5 + row % 7, 6) for row in range(count)]
    completions = draw(policy.model, prompts, limits=MAX_TOKENS)
    samples = []
    for row, completion in enumerate(completions):
        ids = tuple(completion.token_ids)
        reply = Reply(
            Turn("review", ()),
            text="x" * len(ids),
            prompt_ids=prompts[row],
            completion_ids=ids,
            logprobs=tuple(completion.logprobs),
            char_ends=tuple(range(1, len(ids) + 1)),
        )
        rewards = {"s": reward(row, ids), "t": None}
        spans = {"s": ((0, 2),), "t": ((2, len(ids)),)}
        samples.append(reply.earns(rewards, row // 4, spans))
    return samples


def observe_repeatedly(
    head: ValueHead, samples: list[Sample], times: int, max_tokens_per_micro_batch: int
) -> list[list[float]]:
    """Show a head the same samples several times; return its last values."""
    for _ in range(times):
        values = head.observe(samples, max_tokens_per_micro_batch)
    return values


def test_a_fresh_head_expects_nothing() -> None:
    policy = policy_of()
    samples = samples_of(policy)
    values = ValueHead(policy).observe(samples, 64)
    lengths = [len(sample.reply.completion_ids) for sample in samples]
    assert [len(row) for row in values] == lengths
    assert {value for row in values for value in row} == {0.0}


def test_a_head_learns_a_constant_reward() -> None:
    policy = policy_of()
    samples = samples_of(policy, reward=lambda row, ids: 0.75)
    values = observe_repeatedly(
        ValueHead(policy), samples, times=31, max_tokens_per_micro_batch=64
    )
    for row in values:
        assert row[:2] == pytest.approx([0.75] * len(row[:2]), abs=0.05)


def test_a_head_tells_states_apart() -> None:
    """The first token decides the reward. Only the state of the second token knows it."""
    policy = policy_of()
    samples = samples_of(policy, 96)
    values = observe_repeatedly(
        ValueHead(policy), samples, times=40, max_tokens_per_micro_batch=256
    )

    def squared_error(token: int) -> float:
        errors = []
        for row, sample in zip(values, samples, strict=True):
            errors.append((row[token] - sample.reward["s"]) ** 2)
        return sum(errors) / len(errors)

    assert squared_error(1) < 0.7 * squared_error(0)


def test_the_size_of_micro_batches_does_not_change_what_a_head_learns() -> None:
    policy = policy_of()
    samples = samples_of(policy)
    whole = ValueHead(policy)
    whole.observe(samples, 10_000)
    in_parts = ValueHead(policy)
    in_parts.observe(samples[::-1], 16)
    assert torch.allclose(whole.weight_H, in_parts.weight_H, atol=1e-5)


def test_masked_tokens_teach_a_head_nothing() -> None:
    policy = policy_of()
    samples = samples_of(policy)
    masked = ValueHead(policy)
    masked.observe(samples, 10_000)
    unmasked_samples = []
    for sample in samples:
        rewards = {"s": sample.reward["s"], "t": 9.0}
        unmasked_samples.append(
            Sample(sample.reply, rewards, sample.group_id, sample.spans)
        )
    unmasked = ValueHead(policy)
    unmasked.observe(unmasked_samples, 10_000)
    assert not torch.allclose(unmasked.weight_H, masked.weight_H)


def probability_of_an_odd_token(policy, samples: list[Sample]) -> float:
    """Return the mean probability that the first token of a completion is odd."""
    examples = []
    for sample in samples:
        reply = sample.reply
        examples.append((reply.prompt_ids, reply.completion_ids[:1]))
    states_TH, _ = policy.hidden_states(examples)
    probs_TV = (states_TH @ policy.head_VH.T).softmax(-1)
    return float(probs_TV[:, 1::2].sum(-1).mean().detach())


def test_gae_raises_the_probability_of_rewards_above_expectation() -> None:
    policy = policy_of()
    samples = samples_of(policy, 96)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.5)
    head = ValueHead(policy)
    head.observe(samples, 1024)
    before = probability_of_an_odd_token(policy, samples)
    for _ in range(5):
        metrics = learn(
            policy,
            optimizer,
            samples,
            baseline=head,
            estimator="gae",
            loss="importance",
            loss_aggregation="token_mean",
        )
    assert metrics["skipped_update"] == 0
    assert probability_of_an_odd_token(policy, samples) > before + 0.005


def reply_of(role: str) -> Reply:
    """Return a reply "ab" of two tokens, one per character."""
    return Reply(
        Turn(role, ()),
        text="ab",
        prompt_ids=(0,),
        completion_ids=(1, 2),
        logprobs=(0.0, 0.0),
        char_ends=(1, 2),
    )


class TestRoleMeans:
    """By hand: a role's mean is 0, 0.05 after a reward of 1, and 0.0475 after a further 0."""

    SPANS = {"s": ((0, 1),), "t": ((1, 2),)}

    @pytest.fixture
    def samples(self) -> list[Sample]:
        return [
            reply_of("solver").earns(1.0),
            reply_of("judge").earns(-4.0),
            reply_of("solver").earns(0.0),
            reply_of("solver").earns(1.0),
            reply_of("review").earns({"s": 2.0, "t": None}, None, self.SPANS),
            reply_of("review").earns({"s": 0.0, "t": 1.0}, None, self.SPANS),
        ]

    def test_a_reward_is_compared_with_the_earlier_rewards_of_its_role(self, samples):
        inputs = EstimatorInputs(samples, values=RoleMeans().observe(samples, 64))
        advantages = role_conditioned(inputs)
        assert advantages[0] == pytest.approx([1.0, 1.0])
        assert advantages[1] == pytest.approx([-4.0, -4.0])
        assert advantages[2] == pytest.approx([-0.05, -0.05])
        assert advantages[3] == pytest.approx([0.9525, 0.9525])

    def test_every_segment_has_its_own_mean(self, samples):
        inputs = EstimatorInputs(samples, values=RoleMeans().observe(samples, 64))
        advantages = role_conditioned(inputs)
        assert advantages[4] == [2.0, None], "t is masked"
        assert advantages[5] == pytest.approx([-0.1, 1.0])

    def test_the_means_are_restored_from_a_state(self, samples):
        means = RoleMeans()
        means.observe(samples, 64)
        restored = RoleMeans()
        restored.load_state_dict(means.state_dict())
        values = restored.observe(samples[:2], 64)
        assert values[0] == pytest.approx([0.095125, 0.095125])
        assert values[1] == pytest.approx([-0.2, -0.2])
