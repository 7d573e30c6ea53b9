"""The losses against numbers worked out by hand and finite differences, in torch on both paths."""

import math
from dataclasses import dataclass
from math import exp, isnan, log

import pytest
import torch
from core.tensors import policy_loss
from pytest import approx
from torch import Tensor

from coevolve.losses import PolicyLoss, selective_logprobs

FLOAT64 = torch.float64
each_loss = pytest.mark.parametrize("loss", ["ppo", "importance"])

# Three tokens whose probability was 0.4: their ratios are 1.5 (above 1.28), 0.5 (below 0.8), 1.1.
LOGPROBS = [log(0.6), log(0.2), log(0.44)]
OLD_LOGPROBS = [log(0.4)] * 3


@pytest.fixture(autouse=True, params=["reference", "chunked"])
def loss_path(request, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test on both paths."""
    monkeypatch.setenv("COEVOLVE_LOSS_PATH", request.param)


def vector(values: list[float]) -> Tensor:
    """Return the values in float64."""
    return torch.tensor(values, dtype=FLOAT64)


@dataclass(frozen=True)
class LossByHand:
    """The loss of a few tokens, its statistics as numbers, and its gradient by the logits."""

    result: PolicyLoss
    loss: float
    ratio_mean: float
    ratio_max: float
    clip_fraction: float
    gradient_TV: Tensor

    @property
    def moves(self) -> list[bool]:
        """Whether each token has a gradient."""
        norms = self.gradient_TV.abs().sum(-1)
        return [norm > 0 for norm in norms.tolist()]


def loss_of(
    logprobs: list[float],
    advantages: list[float],
    old_logprobs: list[float] | None = None,
    **options: object,
) -> LossByHand:
    """Compute the loss of tokens with exactly these log-probabilities.

    All are token 0 of a vocabulary of two, with the hidden states as logits.
    """
    p_T = vector(logprobs).exp()
    logits = [p_T.log(), (1 - p_T).log()]
    hidden_TH = torch.stack(logits, -1).requires_grad_()
    result = policy_loss(
        hidden_TH,
        head_VH=torch.eye(2, dtype=FLOAT64),
        targets_T=torch.zeros(len(logprobs), dtype=torch.long),
        advantages_T=vector(advantages),
        old_logprobs_T=None if old_logprobs is None else vector(old_logprobs),
        **options,
    )
    result.loss.backward()
    return LossByHand(
        result=result,
        loss=result.loss.item(),
        ratio_mean=result.ratio_mean.item(),
        ratio_max=result.ratio_max.item(),
        clip_fraction=result.clip_fraction.item(),
        gradient_TV=hidden_TH.grad,
    )


class TestClipping:
    def test_the_gain_of_a_good_token_stops_above(self) -> None:
        result = loss_of(LOGPROBS, [1.0, 1.0, 1.0], OLD_LOGPROBS)
        mean = (1.28 + 0.5 + 1.1) / 3
        assert result.loss == approx(-mean)
        assert result.clip_fraction == approx(1 / 3)
        assert result.moves == [False, True, True]

    def test_the_gain_of_a_bad_token_stops_below(self) -> None:
        result = loss_of(LOGPROBS, [-2.0, -2.0, -2.0], OLD_LOGPROBS)
        mean = (1.5 + 0.8 + 1.1) / 3
        assert result.loss == approx(2 * mean)
        assert result.moves == [True, False, True]

    def test_the_statistics_are_of_unclipped_ratios(self) -> None:
        result = loss_of(LOGPROBS, [-2.0, -2.0, -2.0], OLD_LOGPROBS)
        mean = (1.5 + 0.5 + 1.1) / 3
        assert result.ratio_mean == approx(mean)
        assert result.ratio_max == approx(1.5)

    def test_clip_is_low_then_high(self) -> None:
        result = loss_of(LOGPROBS, [1, -1, 0], OLD_LOGPROBS, clip=(0.6, 0.1))
        assert result.loss == approx((-1.1 + 0.5) / 3)
        assert result.clip_fraction == approx(1 / 3)

    def test_importance_sampling_does_not_clip(self) -> None:
        result = loss_of(LOGPROBS, [1, -2, 3], OLD_LOGPROBS, loss="importance")
        mean = (1.5 - 2 * 0.5 + 3 * 1.1) / 3
        assert result.loss == approx(-mean)
        assert result.clip_fraction == approx(0)


@each_loss
def test_on_policy_gradient_is_the_policy_gradient(loss: str) -> None:
    advantages = [1.0, -2.0, 3.0]
    result = loss_of(LOGPROBS, advantages, loss=loss)
    p_T = vector([0.6, 0.2, 0.44])
    # The derivative of the log-probability by the two logits is (1 - p, -(1 - p)).
    slope_T = -vector(advantages) * (1 - p_T) / 3
    torch.testing.assert_close(result.gradient_TV, torch.stack([slope_T, -slope_T], -1))
    assert result.ratio_mean == 1
    assert result.ratio_max == 1


def binary_entropy(p: float) -> float:
    """Return the entropy of two outcomes with the probabilities p and 1 - p."""
    return -(p * log(p) + (1 - p) * log(1 - p))


class TestEntropyBonus:
    ENTROPIES = (binary_entropy(0.6), binary_entropy(0.2))

    @pytest.fixture
    def weighted(self) -> LossByHand:
        """Two tokens with a bonus, of which the first counts four times as much."""
        return loss_of(
            LOGPROBS[:2],
            [1.0, 1.0],
            OLD_LOGPROBS[:2],
            loss="importance",
            entropy_coef=0.1,
            weights_T=vector([2.0, 0.5]),
        )

    def test_weights_apply_to_the_bonus_as_well(self, weighted: LossByHand) -> None:
        first_term = -1.5 - 0.1 * self.ENTROPIES[0]
        second_term = -0.5 - 0.1 * self.ENTROPIES[1]
        assert weighted.loss == approx(2 * first_term + 0.5 * second_term)

    def test_statistics_are_detached(self, weighted: LossByHand) -> None:
        result = weighted.result
        torch.testing.assert_close(result.entropy_T, vector(list(self.ENTROPIES)))
        assert not result.entropy_T.requires_grad
        assert not result.logprobs_T.requires_grad

    def test_it_makes_the_likelier_token_less_likely(self) -> None:
        result = loss_of(LOGPROBS[:2], [0.0, 0.0], entropy_coef=0.1)
        likelier, other = result.gradient_TV[0].tolist()
        assert likelier > 0 > other


@each_loss
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_gradients_agree_with_finite_differences(loss: str, temperature: float) -> None:
    torch.manual_seed(0)
    hidden_TH = torch.randn(5, 4, dtype=FLOAT64, requires_grad=True)
    head_VH = torch.randn(7, 4, dtype=FLOAT64, requires_grad=True)
    targets_T = torch.tensor([0, 3, 6, 2, 2])
    logprobs_T = selective_logprobs(hidden_TH, head_VH, targets_T, temperature)
    old_logprobs_T = logprobs_T + 0.1 * torch.randn(5, dtype=FLOAT64)
    advantages_T = torch.randn(5, dtype=FLOAT64)

    def loss_by(hidden_TH: Tensor, head_VH: Tensor) -> Tensor:
        result = policy_loss(
            hidden_TH,
            head_VH,
            targets_T,
            advantages_T,
            old_logprobs_T,
            loss=loss,
            entropy_coef=0.3,
            temperature=temperature,
        )
        return result.loss

    assert torch.autograd.gradcheck(loss_by, (hidden_TH, head_VH))


def test_logprobs_and_entropy_are_those_of_the_tempered_distribution() -> None:
    torch.manual_seed(1)
    hidden_TH = torch.randn(6, 4, dtype=FLOAT64)
    head_VH = torch.randn(9, 4, dtype=FLOAT64)
    targets_T = torch.arange(6)
    logits_TV = hidden_TH @ head_VH.T / 0.5
    distribution = torch.distributions.Categorical(logits=logits_TV)
    expected_T = distribution.log_prob(targets_T)
    logprobs_T = selective_logprobs(hidden_TH, head_VH, targets_T, 0.5)
    torch.testing.assert_close(logprobs_T, expected_T)

    advantages_T = torch.zeros(6, dtype=FLOAT64)
    result = policy_loss(hidden_TH, head_VH, targets_T, advantages_T, temperature=0.5)
    torch.testing.assert_close(result.logprobs_T, expected_T)
    torch.testing.assert_close(result.entropy_T, distribution.entropy())


class TestHugeRatios:
    """The log-ratio is 25; the ratio stops growing at e^20."""

    LOGPROB = log(0.5)
    OLD_LOGPROB = log(0.5) - 25

    def test_a_ratio_stops_growing_and_then_has_no_gradient(self) -> None:
        result = loss_of(
            [self.LOGPROB] * 3,
            [1.0, -1.0, 0.0],  # the last is not stopped: it does not move anyway
            [self.OLD_LOGPROB] * 3,
            loss="importance",
        )
        assert result.loss == approx(0)
        assert result.ratio_mean == approx(exp(20))
        assert result.ratio_max == approx(exp(20))
        assert result.clip_fraction == approx(2 / 3)
        assert result.gradient_TV.abs().sum() == 0

    def test_a_bad_token_loses_e_to_the_20_at_most(self) -> None:
        result = loss_of([self.LOGPROB], [-1.0], [self.OLD_LOGPROB])
        assert result.loss == approx(exp(20))
        assert result.clip_fraction == 1

    def test_a_good_token_gains_as_much_as_the_clip_allows(self) -> None:
        result = loss_of([self.LOGPROB], [1.0], [self.OLD_LOGPROB])
        assert result.loss == approx(-1.28)


@each_loss
@pytest.mark.parametrize("old_logprob", [-math.inf, math.inf, math.nan])
@pytest.mark.parametrize("advantage", [1.0, -1.0, 0.0])
def test_an_old_logprob_that_is_not_finite_is_never_learned_from(
    loss: str, old_logprob: float, advantage: float
) -> None:
    logprobs = [log(0.5), log(0.5)]
    old_logprobs = [old_logprob, log(0.5)]
    result = loss_of(logprobs, [advantage, 1.0], old_logprobs, loss=loss)
    assert isnan(result.loss)
    assert result.gradient_TV[0].isnan().all()
    assert result.gradient_TV[1].isfinite().all()
