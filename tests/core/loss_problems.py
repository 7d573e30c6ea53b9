"""Inputs for the policy loss, and its gradients: shared by the tests of all paths."""

import math
from dataclasses import dataclass, fields, replace

import torch
from core.tensors import policy_loss
from torch import Tensor

from coevolve.losses import PolicyLoss
from coevolve.losses.reference import token_statistics

FLOAT64 = torch.float64
CLIP_BOUNDS = (0.8, 1.28)
STATISTICS = [
    field.name for field in fields(PolicyLoss) if field.name not in ("loss", "path")
]
GRADIENTS = ("hidden_grad_TH", "head_grad_VH")


@dataclass(frozen=True)
class LossProblem:
    """T packed tokens with hidden states of width H, and a vocabulary of V."""

    hidden_TH: Tensor
    head_VH: Tensor
    targets_T: Tensor
    advantages_T: Tensor
    old_logprobs_T: Tensor | None = None
    """None: the current log-probabilities."""
    weights_T: Tensor | None = None
    """None: the mean over the tokens."""

    def without(self, *names: str) -> "LossProblem":
        """Return the problem without these inputs."""
        return replace(self, **dict.fromkeys(names))

    def double(self) -> "LossProblem":
        """Return the problem with states and head in float64."""
        return replace(
            self, hidden_TH=self.hidden_TH.double(), head_VH=self.head_VH.double()
        )

    def policy_loss(self, **options: object) -> PolicyLoss:
        """Compute the loss."""
        return policy_loss(**vars(self), **options)

    def loss_and_gradients(
        self,
        train_hidden: bool = True,
        train_head: bool = True,
        upstream: float = 1.0,
        **options: object,
    ) -> "LossAndGradients":
        """Compute the loss, and the gradients of `upstream` times the loss."""
        hidden_TH = self.hidden_TH.detach().clone().requires_grad_(train_hidden)
        head_VH = self.head_VH.detach().clone().requires_grad_(train_head)
        problem = replace(self, hidden_TH=hidden_TH, head_VH=head_VH)
        result = problem.policy_loss(**options)
        if train_hidden or train_head:
            (upstream * result.loss).backward()
        detached = replace(result, loss=result.loss.detach())
        return LossAndGradients(
            **vars(detached),
            hidden_grad_TH=hidden_TH.grad,
            head_grad_VH=head_VH.grad,
        )


@dataclass(frozen=True)
class LossAndGradients(PolicyLoss):
    """A policy loss and its gradients, which are None for what is not trained."""

    hidden_grad_TH: Tensor | None = None
    head_grad_VH: Tensor | None = None

    def tensors(self) -> dict[str, Tensor | None]:
        """Return everything but the path by name."""
        names = ("loss", *STATISTICS, *GRADIENTS)
        return {name: getattr(self, name) for name in names}


def assert_same(
    actual: LossAndGradients,
    expected: LossAndGradients,
    rtol: float = 1e-9,
    atol: float = 1e-12,
) -> None:
    """Assert that loss, statistics and gradients are close, whatever their dtype."""
    torch.testing.assert_close(
        actual.tensors(),
        expected.tensors(),
        rtol=rtol,
        atol=atol,
        check_dtype=False,
    )


def random_problem(
    seed: int,
    T: int,
    V: int,
    H: int,
    dtype: torch.dtype = FLOAT64,
    scale: float = 1.0,
) -> LossProblem:
    """Draw a problem with old log-probabilities and weights, and some advantages of 0.

    No ratio is within 1e-3 of a bound where the slope jumps. The numbers are the same on every
    device.
    """
    device = torch.get_default_device()
    with torch.device("cpu"):
        problem = _draw(seed, T, V, H, dtype, scale)
    moved = {name: tensor.to(device) for name, tensor in vars(problem).items()}
    return LossProblem(**moved)


def _draw(
    seed: int, T: int, V: int, H: int, dtype: torch.dtype, scale: float
) -> LossProblem:
    rng = torch.Generator().manual_seed(seed)
    hidden_TH = torch.randn(T, H, generator=rng, dtype=FLOAT64)
    hidden_TH = (scale * hidden_TH).to(dtype)
    head_VH = torch.randn(V, H, generator=rng, dtype=FLOAT64).to(dtype)
    targets_T = torch.randint(V, (T,), generator=rng)

    log_ratios_T = 3 * torch.rand(T, generator=rng, dtype=FLOAT64) - 1.5
    for bound in CLIP_BOUNDS:
        distance_T = (log_ratios_T - math.log(bound)).abs()
        log_ratios_T[distance_T < 1e-3] += 0.01
    logprobs_T, _ = token_statistics(hidden_TH.double(), head_VH.double(), targets_T)

    advantages_T = torch.randn(T, generator=rng, dtype=FLOAT64)
    advantages_T[::7] = 0
    return LossProblem(
        hidden_TH=hidden_TH,
        head_VH=head_VH,
        targets_T=targets_T,
        advantages_T=advantages_T,
        old_logprobs_T=logprobs_T - log_ratios_T,
        weights_T=torch.rand(T, generator=rng, dtype=FLOAT64),
    )


def huge_problem() -> LossProblem:
    """Return a problem with logits of 1e4 and -1e4, so that tokens are certain or impossible.

    The four targets have the log-probabilities 0, -2e4, -2e4 and 0.
    """
    return LossProblem(
        hidden_TH=torch.tensor([[1e4], [1e4], [-1e4], [-1e4]]),
        head_VH=torch.tensor([[1.0], [-1.0]]),
        targets_T=torch.tensor([0, 1, 0, 1]),
        advantages_T=torch.tensor([1.0, -1.0, 1.0, -1.0]),
        old_logprobs_T=torch.tensor([-2e4, -1.0, -1.0, -2e4]),
    )
