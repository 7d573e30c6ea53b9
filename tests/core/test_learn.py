"""One update of a policy: micro-batches, minibatches, masks, and steps that are skipped."""

import math
from dataclasses import replace

import pytest
import torch
from tensors import batch_of, draw, gradient, learn, policy_of, weights_of

from coevolve.training.settings import OptimizationConfig
from coevolve.training.update import token_weight
from coevolve.types import Reply, Turn

SAMPLING_TEMPERATURES = (1.0, 0.7, 0.0)


def completion_tokens(samples):
    return sum(len(sample.reply.completion_ids) for sample in samples)


def with_logprobs(sample, logprobs):
    """The same sample, as if its sampler had reported these log-probabilities."""
    reply = replace(sample.reply, logprobs=tuple(logprobs))
    return reply.earns(sample.reward)


def assert_same_gradient(gradient_one, gradient_two):
    torch.testing.assert_close(gradient_one, gradient_two, rtol=1e-9, atol=1e-12)


class TestMicroBatches:
    @pytest.fixture
    def samples(self):
        return batch_of(policy_of(), 24, SAMPLING_TEMPERATURES)

    @pytest.fixture(params=["token_mean", "constant", "token_sum"])
    def norm(self, request):
        return request.param

    @pytest.fixture(params=[0.0, 0.01])
    def settings(self, norm, request):
        return {
            "loss_aggregation": norm,
            "max_tokens": 12,
            "entropy_coef": request.param,
        }

    # With 60 tokens a pass has samples of several temperatures, with 1 a single sample.
    @pytest.mark.parametrize("max_tokens_per_micro_batch", [60, 1])
    def test_they_add_up_to_the_whole_batch(
        self, samples, settings, max_tokens_per_micro_batch
    ):
        whole, metrics = gradient(samples, max_tokens_per_micro_batch=10**6, **settings)
        parts, metrics_of_parts = gradient(
            samples, max_tokens_per_micro_batch=max_tokens_per_micro_batch, **settings
        )
        assert_same_gradient(parts, whole)
        assert metrics_of_parts == pytest.approx(metrics, rel=1e-9)

    def test_every_token_counts_and_the_ratio_starts_at_one(self, samples, settings):
        _, metrics = gradient(samples, max_tokens_per_micro_batch=10**6, **settings)
        assert metrics["tokens"] == completion_tokens(samples)
        assert metrics["logprob_gap"] < 1e-4
        assert metrics["ratio_mean"] == pytest.approx(1, abs=1e-4)


class TestLoss:
    def test_it_is_the_weighted_sum_over_all_samples(self):
        samples = []
        for row, sample in enumerate(batch_of(policy_of(), 6)):
            # The ratio of the learner to the sampler becomes e^(row / 10).
            logprobs = [logprob - 0.1 * row for logprob in sample.reply.logprobs]
            samples.append(with_logprobs(replace(sample, reward=row**2), logprobs))
        _, metrics = gradient(
            samples,
            estimator="group_mean",
            loss="importance",
            loss_aggregation="constant",
            max_tokens=12,
        )

        mean_reward = {}
        for role in ("solver", "judge"):
            rewards = [sample.reward for sample in samples if sample.role == role]
            mean_reward[role] = sum(rewards) / 3
        total = 0.0
        for row, sample in enumerate(samples):
            ratio = math.exp(row / 10)
            advantage = sample.reward - mean_reward[sample.role]
            total += ratio * advantage * len(sample.reply.completion_ids)
        assert metrics["loss"] == pytest.approx(-total / (6 * 12), rel=1e-4)

    @pytest.mark.parametrize(
        ("norm", "weight"),
        [("token_mean", 1 / 4), ("constant", 1 / 30), ("token_sum", 1.0)],
    )
    def test_each_norm_gives_a_token_its_weight(self, norm, weight):
        settings = OptimizationConfig(loss_aggregation=norm, max_tokens=10)
        assert token_weight([1, 3, 0], settings) == weight
        assert math.isfinite(token_weight([0, 0], settings))

    def test_samples_without_advantage_are_left_out_but_counted_in_the_mean(self):
        def only_solvers_vary(row, ids):
            is_judge = row % 2 == 1
            return 0.0 if is_judge else float(row)

        samples = batch_of(policy_of(), 12, reward=only_solvers_vary)
        solvers = [sample for sample in samples if sample.role == "solver"]
        without_judges, metrics = gradient(samples, loss_aggregation="constant")
        assert metrics["sequences"] == 12
        assert metrics["sequences_used"] == 6
        assert metrics["used/judge"] == 0
        # Deviations from the mean reward are -5, -3, -1, 1, 3 and 5.
        mean_size = 3
        mean_square = 35 / 3
        assert metrics["used/solver"] == pytest.approx(mean_size**2 / mean_square)
        assert metrics["tokens"] == completion_tokens(solvers)

        # The faintest entropy bonus keeps every sample in.
        with_judges, _ = gradient(
            samples, loss_aggregation="constant", entropy_coef=1e-300
        )
        assert_same_gradient(without_judges, with_judges)


class TestEntropy:
    LOGPROBS = ((-0.5, -1.5), (-2.0,), (-0.25, -0.75))

    @pytest.fixture
    def policy(self):
        return policy_of()

    def metrics_of(self, policy, *rewards):
        """Metrics of an update on replies with LOGPROBS that earn these rewards."""
        samples = []
        for logprobs, reward in zip(self.LOGPROBS, rewards, strict=False):
            ids = (7,) * len(logprobs)
            reply = Reply(Turn("solver", ()), "", (9, 8), ids, logprobs)
            samples.append(reply.earns(reward))
        optimizer = torch.optim.SGD(policy.parameters(), lr=0.0)
        return learn(policy, optimizer, samples, estimator="group_mean")

    def test_surprisal_is_the_sampled_mean_whatever_the_replies_earn(self, policy):
        mean = (0.5 + 1.5 + 2.0 + 0.25 + 0.75) / 5
        for rewards in ((1, 0, 0.75), (1, 0, 0.5), (1, 1, 1)):
            metrics = self.metrics_of(policy, *rewards)
            assert metrics["surprisal"] == pytest.approx(mean)

    def test_surprisal_does_not_depend_on_which_tokens_are_trained(self, policy):
        all_trained = self.metrics_of(policy, 1, 0, 0.75)
        one_at_the_mean = self.metrics_of(policy, 1, 0, 0.5)
        all_equal = self.metrics_of(policy, 1, 1, 1)
        assert all_trained["surprisal"] == one_at_the_mean["surprisal"]
        assert one_at_the_mean["surprisal"] == all_equal["surprisal"]

    def test_entropy_is_the_mean_over_trained_tokens_alone(self, policy):
        all_trained = self.metrics_of(policy, 1, 0, 0.75)
        one_at_the_mean = self.metrics_of(policy, 1, 0, 0.5)
        all_equal = self.metrics_of(policy, 1, 1, 1)
        assert all_trained["tokens"] == 5
        assert one_at_the_mean["tokens"] == 3
        assert all_equal["tokens"] == 0
        assert all_trained["entropy"] != pytest.approx(one_at_the_mean["entropy"])
        assert math.isnan(all_equal["entropy"])

    def test_surprisal_of_an_empty_batch_is_nan(self, policy):
        assert math.isnan(self.metrics_of(policy)["surprisal"])


class TestMinibatches:
    @pytest.fixture
    def samples(self):
        # Solver and judge earn the same, so every minibatch has the same mean reward.
        return batch_of(policy_of(), 8, reward=lambda row, ids: float(row // 2 % 2))

    def update(self, policy, samples, **settings):
        """Update by SGD, which keeps nothing from step to step."""
        optimizer = torch.optim.SGD(policy.parameters(), lr=0.5)
        return learn(policy, optimizer, samples, estimator="group_mean", **settings)

    def test_they_are_steps_on_disjoint_parts_of_the_shuffled_batch(self, samples):
        policy = policy_of()
        torch.manual_seed(0)
        metrics = self.update(policy, samples, minibatches=2)

        policy_by_hand = policy_of()
        torch.manual_seed(0)
        shuffled = [samples[k] for k in torch.randperm(8).tolist()]
        first = self.update(policy_by_hand, shuffled[0::2])
        second = self.update(policy_by_hand, shuffled[1::2])
        assert torch.equal(weights_of(policy), weights_of(policy_by_hand))
        assert metrics["tokens"] == first["tokens"] + second["tokens"]
        assert metrics["sequences_used"] == 8

    def test_the_policy_has_moved_before_the_second_minibatch(self, samples):
        torch.manual_seed(0)
        metrics = self.update(policy_of(), samples, minibatches=2)
        assert metrics["ratio_mean"] != pytest.approx(1, abs=1e-4)

    def test_none_is_empty(self, samples):
        policy = policy_of()
        torch.manual_seed(0)
        self.update(policy, samples, minibatches=2)
        metrics = self.update(policy, samples, minibatches=99)
        assert metrics["sequences_used"] == 8
        assert metrics["loss"] != 0

    def test_several_require_the_samplers_logprobs(self):
        message = "minibatches must be 1 with old_logprobs=recompute"
        with pytest.raises(ValueError, match=message):
            OptimizationConfig(minibatches=2, old_logprobs="recompute")


class TestSkippedSteps:
    @pytest.fixture
    def policy(self):
        return policy_of()

    @pytest.fixture
    def optimizer(self, policy):
        return torch.optim.AdamW(policy.parameters(), lr=0.1, weight_decay=0.1)

    def test_without_any_advantage_the_weights_stay(self, policy, optimizer):
        before = weights_of(policy)
        samples = batch_of(policy, reward=lambda row, ids: 1.0)
        metrics = learn(policy, optimizer, samples)
        assert metrics["sequences_used"] == 0
        assert metrics["loss"] == 0
        assert metrics["skipped_update"] == 0
        assert torch.equal(before, weights_of(policy))

    def test_without_samples_the_weights_stay(self, policy, optimizer):
        before = weights_of(policy)
        learn(policy, optimizer, [])
        assert torch.equal(before, weights_of(policy))

    def test_a_gradient_that_is_not_finite_is_skipped_and_counted(self, policy):
        optimizer = torch.optim.AdamW(policy.parameters(), lr=0.1)
        samples = batch_of(policy)
        last = replace(samples[-1], reward=0.0)
        logprobs = [-math.inf] * completion_tokens([last])
        broken = [*samples[:-1], with_logprobs(last, logprobs)]
        before = weights_of(policy)
        metrics = learn(
            policy, optimizer, broken, loss="importance", max_tokens_per_micro_batch=80
        )
        assert metrics["skipped_update"] == 1
        assert not math.isfinite(metrics["grad_norm"])
        assert torch.equal(before, weights_of(policy))
        assert not optimizer.state
        assert all(parameter.grad is None for parameter in policy.parameters())

        metrics = learn(policy, optimizer, samples)
        assert metrics["skipped_update"] == 0
        assert math.isfinite(metrics["grad_norm"])
        assert not torch.equal(before, weights_of(policy))


def test_the_gradient_is_clipped_to_its_norm():
    samples = batch_of(policy_of())
    free, metrics = gradient(samples)
    clipped, _ = gradient(samples, grad_clip=metrics["grad_norm"] / 2)
    half = [part / 2 for part in free]
    torch.testing.assert_close(clipped, half, rtol=1e-4, atol=1e-12)


def test_old_logprobs_of_the_learner_make_the_ratio_one():
    shifted = []
    for sample in batch_of(policy_of()):
        logprobs = [logprob - 0.5 for logprob in sample.reply.logprobs]
        shifted.append(with_logprobs(sample, logprobs))
    _, by_sampler = gradient(shifted)
    _, by_learner = gradient(shifted, old_logprobs="recompute")
    assert by_sampler["ratio_mean"] == pytest.approx(math.exp(0.5), rel=1e-3)
    assert by_sampler["clip_fraction"] > 0.2
    assert by_learner["ratio_mean"] == 1
    assert by_learner["clip_fraction"] == 0
    assert by_sampler["logprob_gap"] == pytest.approx(0.5, rel=1e-3)
    assert by_sampler["logprob_gap"] == by_learner["logprob_gap"]


def test_a_rewarded_token_becomes_likelier():
    policy = policy_of(scale=0.05)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=0.01)
    prompt = (9, 8, 7)
    rollouts = 64

    def low_token_rate(ids):
        return sum(token < 160 for token in ids) / len(ids)

    rates = []
    for step in range(12):
        keys = [(step, i) for i in range(rollouts)]
        completions = draw(policy.model, [prompt] * rollouts, keys, limits=4)
        samples = []
        for completion in completions:
            ids = tuple(completion.token_ids)
            logprobs = tuple(completion.logprobs)
            reply = Reply(Turn("solver", ()), "", prompt, ids, logprobs)
            samples.append(reply.earns(low_token_rate(ids)))
        rates.append(sum(sample.reward for sample in samples) / rollouts)
        learn(policy, optimizer, samples)
    assert rates[0] < 0.6
    assert rates[-1] > 0.9


class TestRefusals:
    @pytest.fixture
    def samples(self):
        return batch_of(policy_of(), 4)

    def test_an_unknown_estimator_is_refused(self, samples):
        message = "^advantage must be one of .*got 'nope'"
        with pytest.raises(ValueError, match=message):
            gradient(samples, estimator="nope")

    def test_an_unknown_length_norm_is_refused(self, samples):
        message = "^loss_aggregation must be one of .*got 'nope'"
        with pytest.raises(ValueError, match=message):
            gradient(samples, loss_aggregation="nope")

    def test_a_reply_without_log_probabilities_is_refused(self, samples):
        samples[1] = with_logprobs(replace(samples[1], reward=1.0), ())
        with pytest.raises(ValueError, match="^old_logprobs_T must have shape"):
            gradient(samples)
