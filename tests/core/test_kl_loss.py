"""KL as a loss: its value, its gradient on every path, and its effect on an update."""

import copy

import pytest
import torch

from coevolve.engines.loading import load_policy
from coevolve.losses import LossConfig, TokenBatch, policy_loss
from coevolve.training.settings import OptimizationConfig
from coevolve.training.update import update_policy
from coevolve.types import Role

COEFFICIENT = 0.5
TURN = Role("solver", "solve<question>{question}</question>")(question="3*4")


def batch(reference_T: torch.Tensor, **fields: torch.Tensor) -> TokenBatch:
    """Return tokens without advantages, whose loss is the divergence alone."""
    count = len(reference_T)
    defaults = {
        "targets_T": torch.arange(count),
        "advantages_T": torch.zeros(count, dtype=torch.float64),
        "weights_T": torch.full((count,), 0.25, dtype=torch.float64),
    }
    return TokenBatch(
        **(defaults | fields),
        reference_logprobs_T=reference_T,
        config=LossConfig(kl_loss_coef=COEFFICIENT),
    )


def test_the_loss_is_the_unbiased_estimate_of_the_divergence() -> None:
    logprobs_T = torch.tensor([-1.0, -2.0, -0.5], dtype=torch.float64)
    gap_T = torch.tensor([0.3, -0.7, 0.0], dtype=torch.float64)
    tokens = batch(logprobs_T + gap_T)
    loss = tokens.loss_and_stats(logprobs_T, torch.zeros_like(logprobs_T)).loss
    expected = COEFFICIENT * 0.25 * (gap_T.exp() - gap_T - 1).sum()
    torch.testing.assert_close(loss, expected)


def test_a_masked_token_does_not_count() -> None:
    logprobs_T = torch.tensor([-1.0, -2.0], dtype=torch.float64)
    weights_T = torch.tensor([0.0, 1.0], dtype=torch.float64)
    tokens = batch(torch.tensor([9.0, -2.0]).double(), weights_T=weights_T)
    loss = tokens.loss_and_stats(logprobs_T, torch.zeros_like(logprobs_T)).loss
    assert float(loss) == 0.0


def test_the_fast_path_has_the_gradient_of_the_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    hidden_TH = torch.randn(5, 4, generator=generator, dtype=torch.float64)
    head_VH = torch.randn(7, 4, generator=generator, dtype=torch.float64)
    tokens = batch(-torch.rand(5, generator=generator, dtype=torch.float64) - 1)
    gradients = []
    for path, chunk in (("reference", None), ("chunked", 2)):
        states_TH = hidden_TH.clone().requires_grad_()
        result = policy_loss(states_TH, head_VH, tokens, chunk=chunk, path=path)
        result.loss.backward()
        gradients.append(states_TH.grad)
    assert gradients[0].abs().max() > 1e-3
    torch.testing.assert_close(gradients[0], gradients[1])


class TestUpdate:
    """One update of a small model on replies that earned the same, so nothing but KL moves it."""

    @staticmethod
    def moved(coefficient: float, change_reference: float) -> float:
        """Return how far the largest weight moves."""
        policy = load_policy("tiny-small")
        reference = policy.reference()
        with torch.no_grad():
            for weights in reference.model.parameters():
                weights.mul_(1 + change_reference)
        start = copy.deepcopy(policy.model.state_dict())
        replies = policy.serve(1.0, 16).answer([TURN] * 2)
        config = OptimizationConfig(
            kl_loss_coef=coefficient,
            entropy_coef=0.0,
            max_tokens=16,
            max_tokens_per_micro_batch=512,
        )
        update_policy(
            policy,
            torch.optim.SGD(policy.parameters(), lr=1.0),
            [reply.earns(1.0) for reply in replies],
            config,
            estimator="group_mean",
            reference=reference,
        )
        changes = []
        for name, weights in policy.model.state_dict().items():
            changes.append(float((weights - start[name]).abs().max()))
        return max(changes)

    @pytest.mark.parametrize(
        ("coefficient", "change", "moves"),
        [(0.0, 0.1, False), (0.5, 0.1, True), (0.5, 0.0, False)],
        ids=["without", "with", "at the reference"],
    )
    def test_only_a_divergence_moves_the_weights(
        self, coefficient: float, change: float, moves: bool
    ) -> None:
        assert (self.moved(coefficient, change) > 1e-4) == moves
