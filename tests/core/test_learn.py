"""One step of learning: micro-batches add up, nothing is half done, and what is rewarded becomes likelier."""

import math
from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch
from test_sampler import END, qwen, ragged, sample, teacher_forced

from coevolve.learner import _micro_batches, _rows, learn
from coevolve.policies import Policy
from coevolve.types import Reply, Turn


class Letters:
    """As much of a tokenizer as training needs."""

    eos_token_id = END


def policy_of(**changes):
    return Policy(qwen(**changes), Letters())


def batch_of(policy, count=24, heats=(None,), reward=lambda row, ids: row * 0.618 % 1):
    prompts = ragged(count)
    chosen = [heats[row % len(heats)] for row in range(count)]
    drawn_at = [1.0 if heat is None else heat for heat in chosen]
    done = sample(policy.model, prompts, list(range(count)), drawn_at, [12] * count, END)
    samples = []
    for row, (prompt, (ids, logprobs)) in enumerate(zip(prompts, done, strict=True)):
        turn = Turn(("solver", "judge")[row % 2], (), temperature=chosen[row])
        samples.append(Reply(turn, "", tuple(prompt), tuple(ids), tuple(logprobs)).earns(reward(row, ids)))
    return samples


class Keep(torch.optim.SGD):
    """An optimiser that keeps the gradients it was given and changes nothing."""

    def step(self):
        self.seen = [None if p.grad is None else p.grad.clone() for g in self.param_groups for p in g["params"]]


def gradient(samples, **settings):
    policy = policy_of()
    policy.model.double()
    optimizer = Keep(policy.parameters(), lr=1.0)
    metrics = learn(policy, optimizer, samples, **{"estimator": "task_relative", "grad_clip": None, **settings})
    return optimizer.seen, metrics


@pytest.mark.parametrize("norm", ["token_mean", "sequence_mean", "constant", "token_sum"])
@pytest.mark.parametrize("entropy_coef", [0.0, 0.01])
def test_micro_batches_add_up_to_the_whole_batch(norm, entropy_coef):
    samples = batch_of(policy_of(), heats=(None, 0.7, 0.0))
    settings = {"length_norm": norm, "length_constant": 12, "entropy_coef": entropy_coef}
    whole, one = gradient(samples, micro_tokens=10**6, **settings)
    parts, many = gradient(samples, micro_tokens=60, **settings)
    for a, b in zip(whole, parts, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
    assert many == pytest.approx(one, rel=1e-9)
    assert one["tokens"] == sum(len(s.reply.ids) for s in samples)
    assert one["logprob_gap"] < 1e-4 and one["ratio_mean"] == pytest.approx(1, abs=1e-4)


def test_the_loss_is_the_weighted_sum_over_all_samples():
    policy = policy_of()
    samples = batch_of(policy, 6)
    _, metrics = gradient(samples, estimator="group_mean", kind="reinforce", length_norm="sequence_mean")
    means = {role: sum(s.reward for s in samples if s.role == role) / 3 for role in ("solver", "judge")}
    expected = 0.0
    for s in samples:
        logprobs = teacher_forced(policy.model, s.reply.prompt_ids, list(s.reply.ids))
        expected -= (s.reward - means[s.role]) * logprobs.mean().item() / 6
    assert metrics["loss"] == pytest.approx(expected, rel=1e-4)
    assert metrics["response_length"] == sum(len(s.reply.ids) for s in samples) / 6


def test_samples_without_advantage_are_left_out_but_still_counted_in_the_mean():
    samples = batch_of(policy_of(), 12, reward=lambda row, ids: 0.0 if row % 2 else float(row))
    seen, metrics = gradient(samples, length_norm="sequence_mean")
    assert metrics["sequences"] == 12 and metrics["sequences_used"] == 6
    assert metrics["tokens"] == sum(len(s.reply.ids) for s in samples if s.role == "solver")
    kept, _ = gradient(samples, length_norm="sequence_mean", entropy_coef=1e-300)  # nothing is left out
    for a, b in zip(seen, kept, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def told(policy, rewards, logprobs=((-0.5, -1.5), (-2.0,), (-0.25, -0.75))):
    """Replies of one role with the log-probabilities that the sampler reported."""
    turn = Turn("solver", ())
    replies = [Reply(turn, "", (9, 8), (7,) * len(its), its) for its in logprobs]
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.0)
    samples = [reply.earns(reward) for reply, reward in zip(replies, rewards, strict=True)]
    return learn(policy, optimizer, samples, estimator="group_mean")


def test_surprisal_is_the_mean_of_what_the_sampler_reported_for_every_token():
    policy = policy_of()
    assert told(policy, (1.0, 0.0, 0.5))["surprisal"] == pytest.approx((0.5 + 1.5 + 2.0 + 0.25 + 0.75) / 5)
    assert math.isnan(
        learn(policy, torch.optim.SGD(policy.parameters(), lr=0.0), [], estimator="group_mean")["surprisal"]
    )


def test_surprisal_of_the_same_replies_is_the_same_whatever_they_earn():
    policy = policy_of()
    all_paid, one_idle, idle = (told(policy, rewards) for rewards in ((1.0, 0.0, 0.75), (1.0, 0.0, 0.5), (1.0,) * 3))
    assert [its["tokens"] for its in (all_paid, one_idle, idle)] == [5, 3, 0]
    assert all_paid["entropy"] != pytest.approx(one_idle["entropy"]) and math.isnan(idle["entropy"])
    assert all_paid["surprisal"] == one_idle["surprisal"] == idle["surprisal"] == pytest.approx(1.0)


def weights_of(policy):
    return [p.detach().clone() for p in policy.parameters()]


def test_no_advantage_no_step():
    policy = policy_of()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=0.1, weight_decay=0.1)
    before = weights_of(policy)
    metrics = learn(policy, optimizer, batch_of(policy, reward=lambda row, ids: 1.0), estimator="task_relative")
    assert metrics["sequences_used"] == 0 and metrics["loss"] == 0 and metrics["skipped_update"] == 0
    assert all(torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))
    learn(policy, optimizer, [], estimator="task_relative")
    assert all(torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))


def test_a_gradient_that_is_not_finite_is_skipped_and_counted():
    policy = policy_of()
    samples = batch_of(policy)
    last = samples[-1].reply
    broken = [*samples[:-1], replace(last, logprobs=(-math.inf,) * len(last.ids)).earns(0.0)]
    optimizer = torch.optim.AdamW(policy.parameters(), lr=0.1)
    before = weights_of(policy)
    metrics = learn(policy, optimizer, broken, estimator="task_relative", kind="importance", micro_tokens=80)
    assert metrics["skipped_update"] == 1 and not math.isfinite(metrics["grad_norm"])
    assert all(torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))
    assert not optimizer.state and all(p.grad is None for p in policy.parameters())
    after = learn(policy, optimizer, samples, estimator="task_relative")
    assert after["skipped_update"] == 0 and math.isfinite(after["grad_norm"])
    assert not torch.equal(before[0], next(policy.parameters()))


def test_the_gradient_is_clipped_to_its_norm():
    samples = batch_of(policy_of())
    free, metrics = gradient(samples)
    clipped, _ = gradient(samples, grad_clip=metrics["grad_norm"] / 2)
    for a, b in zip(free, clipped, strict=True):
        torch.testing.assert_close(b, a / 2, rtol=1e-4, atol=1e-12)


def test_old_logprobs_of_the_learner_make_the_ratio_one():
    samples = batch_of(policy_of())
    lower = [tuple(p - 0.5 for p in s.reply.logprobs) for s in samples]
    shifted = [replace(s.reply, logprobs=p).earns(s.reward) for s, p in zip(samples, lower, strict=True)]
    _, sampler = gradient(shifted)
    _, learner = gradient(shifted, old="learner")
    assert sampler["ratio_mean"] == pytest.approx(math.exp(0.5), rel=1e-3) and sampler["clip_fraction"] > 0.2
    assert learner["ratio_mean"] == 1 and learner["clip_fraction"] == 0
    assert sampler["logprob_gap"] == learner["logprob_gap"] == pytest.approx(0.5, rel=1e-3)


def test_micro_batches_keep_to_the_budget():
    samples = batch_of(policy_of(), 40, heats=(None, 0.5, 0.0))
    rows = _rows(samples, "task_relative", "token_mean", None, 1.0)
    batches = list(_micro_batches(rows, 100, share=False))
    assert sum(map(len, batches)) == len(rows)
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(sum(map(len, row.text)) for row in batch) <= 100
    assert {row.temperature for row in rows} == {1.0, 0.5}


def test_rows_of_several_temperatures_learn_in_one_pass_what_they_learn_apart(monkeypatch):
    samples = batch_of(policy_of(), 24, heats=(None, 0.5, 0.1))
    taught = {}
    for micro_tokens in (16384, 1):  # one pass; a pass for every row, so of one temperature
        policy = policy_of()
        states = Mock(side_effect=policy.states)
        monkeypatch.setattr(policy, "states", states)
        optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)
        learn(policy, optimizer, samples, estimator="task_relative", micro_tokens=micro_tokens, grad_clip=None)
        taught[states.call_count] = [part.detach().clone() for part in policy.parameters()]
    assert set(taught) == {1, max(taught)} and max(taught) > 5
    start = [part.detach() for part in policy_of().parameters()]
    moved = [float((one - was).norm()) for one, was in zip(taught[1], start, strict=True)]
    apart = [float((one - other).norm()) for one, other in zip(*taught.values(), strict=True)]
    assert sum(moved) > 0 and all(gap <= 1e-3 * max(moved) for gap in apart)


def test_a_rewarded_token_becomes_likelier():
    policy = policy_of(scale=0.05)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=0.01)
    prompt, count = [9, 8, 7], 64

    def share(ids):
        return sum(token < 160 for token in ids) / len(ids)

    rates = []
    for step in range(12):
        keys = [(step, i) for i in range(count)]
        done = sample(policy.model, [prompt] * count, keys, [1.0] * count, [4] * count, END)
        replies = [Reply(Turn("solver", ()), "", tuple(prompt), tuple(ids), tuple(lp)) for ids, lp in done]
        rates.append(sum(share(ids) for ids, _ in done) / count)
        learn(policy, optimizer, [r.earns(share(r.ids)) for r in replies], estimator="task_relative")
    assert rates[0] < 0.6 and rates[-1] > 0.9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"estimator": "nope"}, "advantage.*task_relative"),
        ({"old": "both"}, "old"),
        ({"length_norm": "x"}, "length_norm"),
    ],
)
def test_wrong_settings_are_named(change, message):
    policy = policy_of()
    with pytest.raises(ValueError, match=message):
        settings = {"estimator": "group_mean", **change}
        learn(policy, torch.optim.SGD(policy.parameters(), lr=1.0), batch_of(policy, 4), **settings)


def test_a_reply_without_logprobs_is_refused_by_its_role():
    policy = policy_of()
    reply = Reply(Turn("planner", ()), "x", (5,), (6, 7))
    with pytest.raises(ValueError, match="planner.*2 ids and 0"):
        learn(policy, torch.optim.SGD(policy.parameters(), lr=1.0), [reply.earns(1.0)], estimator="group_mean")
