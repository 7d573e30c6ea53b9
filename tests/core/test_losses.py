"""The losses against numbers worked out by hand and finite differences, on both paths that every machine has."""

import math

import pytest
import torch
from tensors import policy_loss

from coevolve.losses import selective_logprobs

D = torch.float64
LOG = math.log


@pytest.fixture(autouse=True, params=["reference", "chunked"])
def path(request, monkeypatch):
    monkeypatch.setenv("COEVOLVE_LOSS_PATH", request.param)


def loss_of(logprobs, advantages, old=None, **settings):
    """The loss of tokens 0 of 2 with exactly these log-probabilities, and the hidden states (H = 2) that give them."""
    p = torch.tensor(logprobs, dtype=D).exp()
    hidden_TH = torch.stack([p.log(), (1 - p).log()], -1).requires_grad_()
    known = [
        None if given is None else torch.tensor(given, dtype=D)
        for given in (advantages, old)
    ]
    head_VH, targets_T = (
        torch.eye(2, dtype=D),
        torch.zeros(len(logprobs), dtype=torch.long),
    )
    return policy_loss(hidden_TH, head_VH, targets_T, *known, **settings), hidden_TH


# old probability 0.4; current 0.6 (ratio 1.5), 0.2 (ratio 0.5), 0.44 (ratio 1.1)
NOW, OLD = [LOG(0.6), LOG(0.2), LOG(0.44)], [LOG(0.4)] * 3


def test_ppo_clips_the_gain_of_a_good_token_above_and_of_a_bad_one_below():
    up, grad = loss_of(NOW, [1.0, 1.0, 1.0], OLD)
    assert up.loss.item() == pytest.approx(-(1.28 + 0.5 + 1.1) / 3)
    assert up.clip_fraction.item() == pytest.approx(1 / 3)
    up.loss.backward()
    assert (
        grad.grad[0].abs().sum() == 0
        and grad.grad[1].abs().sum() > 0
        and grad.grad[2].abs().sum() > 0
    )
    down, grad = loss_of(NOW, [-2.0, -2.0, -2.0], OLD)
    assert down.loss.item() == pytest.approx(2 * (1.5 + 0.8 + 1.1) / 3)
    down.loss.backward()
    assert grad.grad[1].abs().sum() == 0 and grad.grad[0].abs().sum() > 0
    assert down.ratio_mean.item() == pytest.approx((1.5 + 0.5 + 1.1) / 3)
    assert down.ratio_max.item() == pytest.approx(1.5)


BY_HAND = [
    ([1, -1, 0], {"clip": (0.6, 0.1)}, (-1.1 + 0.5) / 3, 1 / 3),  # low, then high
    ([1, -2, 3], {"loss": "importance"}, -(1.5 - 2 * 0.5 + 3 * 1.1) / 3, 0),
]


@pytest.mark.parametrize(("advantages", "settings", "loss", "clipped"), BY_HAND)
def test_objectives_by_hand(advantages, settings, loss, clipped):
    result, _ = loss_of(NOW, advantages, OLD, **settings)
    assert result.loss.item() == pytest.approx(
        loss
    ) and result.clip_fraction.item() == pytest.approx(clipped)


@pytest.mark.parametrize("kind", ["ppo", "importance"])
def test_on_policy_gradient_is_the_policy_gradient(kind):
    result, hidden = loss_of(NOW, [1.0, -2.0, 3.0], loss=kind)
    result.loss.backward()
    p = torch.tensor(
        [0.6, 0.2, 0.44], dtype=D
    )  # d logprob / d logits = (1 - p, -(1 - p))
    expected = -torch.tensor([1.0, -2.0, 3.0], dtype=D) * (1 - p) / 3
    torch.testing.assert_close(hidden.grad, torch.stack([expected, -expected], -1))
    assert result.ratio_mean.item() == 1 and result.ratio_max.item() == 1


def test_weights_and_entropy_bonus():
    h = -(0.6 * LOG(0.6) + 0.4 * LOG(0.4))
    h2 = -(0.2 * LOG(0.2) + 0.8 * LOG(0.8))
    settings = {
        "entropy_coef": 0.1,
        "weights_T": torch.tensor([2.0, 0.5], dtype=D),
        "loss": "importance",
    }
    result, hidden = loss_of(NOW[:2], [1.0, 1.0], OLD[:2], **settings)
    assert result.loss.item() == pytest.approx(
        2 * (-1.5 - 0.1 * h) + 0.5 * (-0.5 - 0.1 * h2)
    )
    torch.testing.assert_close(result.entropy_T, torch.tensor([h, h2], dtype=D))
    assert not result.entropy_T.requires_grad and not result.logprobs_T.requires_grad
    still, hidden = loss_of(NOW[:2], [0.0, 0.0], entropy_coef=0.1)
    still.loss.backward()
    assert (
        hidden.grad[0, 0] > 0 > hidden.grad[0, 1]
    )  # a step down pulls the likelier token back


@pytest.mark.parametrize("kind", ["ppo", "importance"])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_gradients_against_finite_differences(kind, temperature):
    torch.manual_seed(0)
    hidden = torch.randn(5, 4, dtype=D, requires_grad=True)
    head = torch.randn(7, 4, dtype=D, requires_grad=True)
    targets = torch.tensor([0, 3, 6, 2, 2])
    old = selective_logprobs(hidden, head, targets, temperature) + 0.1 * torch.randn(
        5, dtype=D
    )
    advantages = torch.randn(5, dtype=D)

    def loss(hidden, head):
        settings = {"loss": kind, "entropy_coef": 0.3, "temperature": temperature}
        return policy_loss(hidden, head, targets, advantages, old, **settings).loss

    assert torch.autograd.gradcheck(loss, (hidden, head))


def test_logprobs_and_entropy_are_those_of_the_tempered_distribution():
    torch.manual_seed(1)
    hidden, head = torch.randn(6, 4, dtype=D), torch.randn(9, 4, dtype=D)
    targets = torch.arange(6)
    expected = torch.distributions.Categorical(logits=hidden @ head.T / 0.5)
    torch.testing.assert_close(
        selective_logprobs(hidden, head, targets, 0.5), expected.log_prob(targets)
    )
    found = policy_loss(hidden, head, targets, torch.zeros(6, dtype=D), temperature=0.5)
    torch.testing.assert_close(found.logprobs_T, expected.log_prob(targets))
    torch.testing.assert_close(found.entropy_T, expected.entropy())


def test_ratio_stops_growing_and_stays_finite():
    # log-ratio 25: both ratio and slope stop at 20; an advantage of 0 is not stopped by anything
    now, old = [LOG(0.5)] * 3, [LOG(0.5) - 25] * 3
    result, grad = loss_of(now, [1.0, -1.0, 0.0], old, loss="importance")
    assert result.loss.item() == pytest.approx(0)
    assert (
        result.ratio_mean.item()
        == pytest.approx(math.exp(20))
        == result.ratio_max.item()
    )
    assert result.clip_fraction.item() == pytest.approx(2 / 3)
    result.loss.backward()
    assert grad.grad.abs().sum() == 0
    bad, grad = loss_of(now[:1], [-1.0], old[:1])
    assert (
        bad.loss.item() == pytest.approx(math.exp(20)) and bad.clip_fraction.item() == 1
    )
    good, _ = loss_of(now[:1], [1.0], old[:1])
    assert good.loss.item() == pytest.approx(-1.28)


@pytest.mark.parametrize("kind", ["ppo", "importance"])
@pytest.mark.parametrize("old", [-math.inf, math.inf, math.nan])
@pytest.mark.parametrize("advantage", [1.0, -1.0, 0.0])
def test_an_old_logprob_that_is_not_finite_is_never_learned_from(kind, old, advantage):
    result, hidden = loss_of(
        [LOG(0.5), LOG(0.5)], [advantage, 1.0], [old, LOG(0.5)], loss=kind
    )
    assert result.loss.isnan()
    result.loss.backward()
    assert hidden.grad[0].isnan().all() and hidden.grad[1].isfinite().all()
