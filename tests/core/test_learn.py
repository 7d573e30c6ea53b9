"""One step of learning: micro-batches add up, nothing is half done, and what is rewarded becomes likelier."""

import math
from dataclasses import replace

import pytest
import torch
from tensors import batch_of, draw, gradient, learn, policy_of, weights_of

from coevolve.training.settings import Learning
from coevolve.training.update import token_weight
from coevolve.types import Reply, Turn


@pytest.mark.parametrize("norm", ["token_mean", "constant", "token_sum"])
@pytest.mark.parametrize("entropy_coef", [0.0, 0.01])
def test_micro_batches_add_up_to_the_whole_batch(norm, entropy_coef):
    samples = batch_of(policy_of(), heats=(1.0, 0.7, 0.0))
    settings = {"length_norm": norm, "max_tokens": 12, "entropy_coef": entropy_coef}
    whole, one = gradient(samples, micro_tokens=10**6, **settings)
    for micro_tokens in (60, 1):  # passes of several temperatures, and of one
        parts, many = gradient(samples, micro_tokens=micro_tokens, **settings)
        torch.testing.assert_close(parts, whole, rtol=1e-9, atol=1e-12)
        assert many == pytest.approx(one, rel=1e-9)
    assert one["tokens"] == sum(len(s.reply.completion_ids) for s in samples)
    assert one["logprob_gap"] < 1e-4 and one["ratio_mean"] == pytest.approx(1, abs=1e-4)


def test_the_loss_is_the_weighted_sum_over_all_samples():
    drawn = [sample.reply for sample in batch_of(policy_of(), 6)]
    # the ratio is e^(row / 10)
    told = [
        tuple(p - 0.1 * row for p in reply.logprobs) for row, reply in enumerate(drawn)
    ]
    samples = [
        replace(r, logprobs=p).earns(row**2)
        for row, (r, p) in enumerate(zip(drawn, told, strict=True))
    ]
    _, metrics = gradient(
        samples,
        estimator="group_mean",
        loss="importance",
        length_norm="constant",
        max_tokens=12,
    )
    means = {
        role: sum(s.reward for s in samples if s.role == role) / 3
        for role in ("solver", "judge")
    }
    parts = [
        math.exp(row / 10) * (s.reward - means[s.role]) * len(s.reply.completion_ids)
        for row, s in enumerate(samples)
    ]
    expected = -sum(parts) / (6 * 12)
    assert metrics["loss"] == pytest.approx(expected, rel=1e-4)


NORMS = {"token_mean": 1 / 4, "constant": 1 / 30, "token_sum": 1.0}


@pytest.mark.parametrize(("norm", "expected"), NORMS.items())
def test_a_token_weighs_what_its_norm_says(norm, expected):
    settings = Learning(length_norm=norm, max_tokens=10)
    assert token_weight([1, 3, 0], settings) == expected and math.isfinite(
        token_weight([0, 0], settings)
    )


def test_samples_without_advantage_are_left_out_but_still_counted_in_the_mean():
    samples = batch_of(
        policy_of(), 12, reward=lambda row, ids: 0.0 if row % 2 else float(row)
    )
    seen, metrics = gradient(samples, length_norm="constant")
    assert metrics["sequences"] == 12 and metrics["sequences_used"] == 6
    assert metrics["tokens"] == sum(
        len(s.reply.completion_ids) for s in samples if s.role == "solver"
    )
    kept, _ = gradient(
        samples, length_norm="constant", entropy_coef=1e-300
    )  # nothing is left out
    torch.testing.assert_close(seen, kept, rtol=1e-9, atol=1e-12)


def told(policy, *rewards):
    """What is measured where three replies earn so much; the sampler has reported their log-probabilities."""
    logprobs = ((-0.5, -1.5), (-2.0,), (-0.25, -0.75))
    replies = [
        Reply(Turn("solver", ()), "", (9, 8), (7,) * len(each), each)
        for each in logprobs
    ]
    samples = [
        reply.earns(reward) for reply, reward in zip(replies, rewards, strict=False)
    ]
    return learn(
        policy,
        torch.optim.SGD(policy.parameters(), lr=0.0),
        samples,
        estimator="group_mean",
    )


def test_surprisal_is_the_mean_of_what_the_sampler_reported_whatever_the_replies_earn():
    policy = policy_of()
    all_paid, one_idle, idle = (
        told(policy, 1, 0, 0.75),
        told(policy, 1, 0, 0.5),
        told(policy, 1, 1, 1),
    )
    assert [metrics["tokens"] for metrics in (all_paid, one_idle, idle)] == [5, 3, 0]
    assert all_paid["entropy"] != pytest.approx(one_idle["entropy"]) and math.isnan(
        idle["entropy"]
    )
    mean = pytest.approx((0.5 + 1.5 + 2.0 + 0.25 + 0.75) / 5)
    assert all_paid["surprisal"] == one_idle["surprisal"] == idle["surprisal"] == mean
    assert math.isnan(told(policy)["surprisal"]), "of nothing"


def test_minibatches_are_steps_on_shares_of_the_batch():
    samples = batch_of(
        policy_of(), 8, reward=lambda row, ids: float(row // 2 % 2)
    )  # each share has the same mean
    once, twice = policy_of(), policy_of()
    optimizers = [
        torch.optim.SGD(policy.parameters(), lr=0.5) for policy in (once, twice)
    ]
    torch.manual_seed(0)
    both = learn(once, optimizers[0], samples, minibatches=2, estimator="group_mean")
    torch.manual_seed(0)
    order = torch.randperm(8).tolist()
    parts = [
        learn(
            twice,
            optimizers[1],
            [samples[k] for k in order[i::2]],
            estimator="group_mean",
        )
        for i in (0, 1)
    ]
    assert torch.equal(weights_of(once), weights_of(twice))
    assert (
        both["tokens"] == sum(part["tokens"] for part in parts)
        and both["sequences_used"] == 8
    )
    assert both["ratio_mean"] != pytest.approx(1, abs=1e-4), (
        "the second share is seen by a policy that has moved"
    )
    many = learn(once, optimizers[0], samples, minibatches=99, estimator="group_mean")
    assert many["sequences_used"] == 8 and many["loss"] != 0, "no share is empty"
    with pytest.raises(ValueError, match="minibatches must be 1 with old=learner"):
        Learning(minibatches=2, old="learner")


def test_no_advantage_no_step():
    policy = policy_of()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=0.1, weight_decay=0.1)
    before = weights_of(policy)
    metrics = learn(
        policy,
        optimizer,
        batch_of(policy, reward=lambda row, ids: 1.0),
        estimator="task_relative",
    )
    assert (
        metrics["sequences_used"] == 0
        and metrics["loss"] == 0
        and metrics["skipped_update"] == 0
    )
    learn(policy, optimizer, [], estimator="task_relative")
    assert torch.equal(before, weights_of(policy))


def test_a_gradient_that_is_not_finite_is_skipped_and_counted():
    policy = policy_of()
    samples = batch_of(policy)
    last = samples[-1].reply
    broken = [
        *samples[:-1],
        replace(last, logprobs=(-math.inf,) * len(last.completion_ids)).earns(0.0),
    ]
    optimizer = torch.optim.AdamW(policy.parameters(), lr=0.1)
    before = weights_of(policy)
    metrics = learn(
        policy,
        optimizer,
        broken,
        estimator="task_relative",
        loss="importance",
        micro_tokens=80,
    )
    assert metrics["skipped_update"] == 1 and not math.isfinite(metrics["grad_norm"])
    assert torch.equal(before, weights_of(policy))
    assert not optimizer.state and all(p.grad is None for p in policy.parameters())
    after = learn(policy, optimizer, samples, estimator="task_relative")
    assert after["skipped_update"] == 0 and math.isfinite(after["grad_norm"])
    assert not torch.equal(before, weights_of(policy))


def test_the_gradient_is_clipped_to_its_norm():
    samples = batch_of(policy_of())
    free, metrics = gradient(samples)
    clipped, _ = gradient(samples, grad_clip=metrics["grad_norm"] / 2)
    torch.testing.assert_close(
        clipped, [part / 2 for part in free], rtol=1e-4, atol=1e-12
    )


def test_old_logprobs_of_the_learner_make_the_ratio_one():
    samples = batch_of(policy_of())
    lower = [tuple(p - 0.5 for p in s.reply.logprobs) for s in samples]
    shifted = [
        replace(s.reply, logprobs=p).earns(s.reward)
        for s, p in zip(samples, lower, strict=True)
    ]
    _, sampler = gradient(shifted)
    _, learner = gradient(shifted, old="learner")
    assert (
        sampler["ratio_mean"] == pytest.approx(math.exp(0.5), rel=1e-3)
        and sampler["clip_fraction"] > 0.2
    )
    assert learner["ratio_mean"] == 1 and learner["clip_fraction"] == 0
    assert (
        sampler["logprob_gap"] == learner["logprob_gap"] == pytest.approx(0.5, rel=1e-3)
    )


def test_a_rewarded_token_becomes_likelier():
    policy = policy_of(scale=0.05)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=0.01)
    prompt, count = [9, 8, 7], 64

    def share(ids):
        return sum(token < 160 for token in ids) / len(ids)

    rates = []
    for step in range(12):
        done = draw(
            policy.model, [prompt] * count, [(step, i) for i in range(count)], limits=4
        )
        replies = [
            Reply(
                Turn("solver", ()),
                "",
                tuple(prompt),
                tuple(one.token_ids),
                tuple(one.logprobs),
            )
            for one in done
        ]
        rates.append(sum(share(one.token_ids) for one in done) / count)
        learn(
            policy,
            optimizer,
            [r.earns(share(r.completion_ids)) for r in replies],
            estimator="task_relative",
        )
    assert rates[0] < 0.6 and rates[-1] > 0.9


def test_wrong_settings_and_a_reply_without_log_probabilities_are_refused():
    samples = batch_of(policy_of(), 4)
    for field, named in {
        "estimator": "advantage",
        "length_norm": "length_norm",
    }.items():
        with pytest.raises(ValueError, match=f"^{named} must be one of .*got 'nope'"):
            gradient(samples, **{field: "nope"})
    silent = replace(samples[1].reply, logprobs=())
    with pytest.raises(ValueError, match="^old_logprobs_T must have shape"):
        gradient([samples[0], silent.earns(1.0), *samples[2:]])
