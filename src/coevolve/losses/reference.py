"""The policy loss in plain torch, exact in float64: the definition of every faster path.

Tensors are packed: T counts completion tokens over all rows, H is the model's width, V its
vocabulary.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

LossName = Literal["ppo", "importance"]
LOSSES: tuple[str, ...] = get_args(LossName)
# The ratio stops growing at e^20: the loss stays finite whatever the policies have become.
MAX_LOG_RATIO = 20.0


@dataclass(frozen=True)
class LossConfig:
    """The objective: which loss, how it is clipped, and the weight of the entropy bonus."""

    loss: str = "ppo"
    """"ppo" or "importance"."""
    clip: tuple[float, float] = (0.2, 0.28)
    """(low, high): how far below and above 1 ratios count, each at least 0 (ppo)."""
    entropy_coef: float = 0.0
    kl_loss_coef: float = 0.0
    """Weight of the divergence from `reference_logprobs_T`."""
    ratio_cap: float = 0.0
    """Largest weight of a token by `sampler_logprobs_T`; 0: tokens are not weighed so."""


@dataclass(frozen=True)
class PolicyLoss:
    """A scalar to differentiate, and detached statistics about it."""

    loss: Tensor
    logprobs_T: Tensor
    entropy_T: Tensor
    ratio_mean: Tensor
    """Mean ratio of current to old probability."""
    ratio_max: Tensor
    clip_fraction: Tensor
    """Share of tokens whose gradient the clip, or the bound on the ratio, stopped."""
    path: str = "reference"
    """Which implementation computed it."""


@dataclass(frozen=True)
class TokenBatch:
    """The completion tokens of a micro-batch, with what the loss needs to know of each."""

    targets_T: Tensor
    """The sampled token ids."""
    advantages_T: Tensor
    weights_T: Tensor
    """How much each token counts (1 / T each gives the mean); a weight of 0 masks a token."""
    old_logprobs_T: Tensor | None = None
    """Log-probabilities under the old policy; None: the current ones stand in (ratio 1)."""
    temperature: float = 1.0
    """The sampling temperature, by which logits are divided."""
    reference_logprobs_T: Tensor | None = None
    """Log-probabilities under the starting policy, for `LossConfig.kl_loss_coef`."""
    sampler_logprobs_T: Tensor | None = None
    """Of an engine whose probabilities differ from the learner's, see `LossConfig.ratio_cap`."""
    config: LossConfig = LossConfig()

    def chunk(self, piece: slice) -> "TokenBatch":
        """Return the tokens of one chunk."""
        old_logprobs_T = self.old_logprobs_T
        reference_logprobs_T = self.reference_logprobs_T
        if reference_logprobs_T is not None:
            reference_logprobs_T = reference_logprobs_T[piece]
        sampler_logprobs_T = self.sampler_logprobs_T
        if sampler_logprobs_T is not None:
            sampler_logprobs_T = sampler_logprobs_T[piece]
        return TokenBatch(
            targets_T=self.targets_T[piece],
            advantages_T=self.advantages_T[piece],
            weights_T=self.weights_T[piece],
            old_logprobs_T=None if old_logprobs_T is None else old_logprobs_T[piece],
            temperature=self.temperature,
            reference_logprobs_T=reference_logprobs_T,
            sampler_logprobs_T=sampler_logprobs_T,
            config=self.config,
        )

    def loss_and_stats(self, logprobs_T: Tensor, entropy_T: Tensor) -> PolicyLoss:
        """Return sum_t weight_t * (term_t - entropy_coef * entropy_t).

        Given the targets' current log-probabilities (T,) and the entropies (T,). With ratio
        r = exp(logprob - old logprob) and advantage A, the term of "importance" is -r A, and
        that of "ppo" is -min(r A, clip(r, 1 - low, 1 + high) A). An old log-probability that is
        not finite makes r nan. A masked token counts neither in the loss nor in the statistics.
        With a `kl_loss_coef`, that times e^d - d - 1 is added, d = reference logprob - logprob: an
        unbiased estimate of the KL divergence to the reference that is never negative (GRPO,
        arXiv:2402.03300, Eq. 4).
        With a `ratio_cap`, A is first multiplied by min(exp(logprob - sampler's), ratio_cap), which
        has no gradient: truncated importance sampling.
        """
        advantages_T = self.advantages_T.to(logprobs_T)
        weights_T = self.weights_T.to(logprobs_T)
        current_T = logprobs_T.detach()
        used_T = weights_T != 0
        advantages_T = advantages_T.where(used_T, 0)
        advantages_T = advantages_T * self._truncated_weights(current_T, used_T)
        old_T = self._old_logprobs(current_T, used_T)

        log_ratio_T = logprobs_T - old_T
        saturated_T = log_ratio_T > MAX_LOG_RATIO
        ratio_T = torch.where(saturated_T, MAX_LOG_RATIO, log_ratio_T).exp()
        stopped_T = saturated_T & (advantages_T != 0)
        term_T = -advantages_T * ratio_T
        if self.config.loss == "ppo":
            low, high = self.config.clip
            above_T = ratio_T > 1 + high
            below_T = ratio_T < 1 - low
            stopped_T |= torch.where(
                advantages_T > 0, above_T, (advantages_T < 0) & below_T
            )
            clipped_T = -advantages_T * ratio_T.clamp(1 - low, 1 + high)
            term_T = torch.maximum(term_T, clipped_T)
        if self.config.entropy_coef:
            term_T = term_T - self.config.entropy_coef * entropy_T
        if self.config.kl_loss_coef and self.reference_logprobs_T is not None:
            reference_T = self.reference_logprobs_T.to(logprobs_T)
            gap_T = (reference_T - logprobs_T).where(used_T, 0).clamp(max=MAX_LOG_RATIO)
            term_T = term_T + self.config.kl_loss_coef * (gap_T.exp() - gap_T - 1)

        used_ratio_T = ratio_T.detach()[used_T] if used_T.any() else ratio_T.new_ones(1)
        return PolicyLoss(
            loss=(weights_T * term_T).sum(),
            logprobs_T=current_T,
            entropy_T=entropy_T.detach(),
            ratio_mean=used_ratio_T.mean(),
            ratio_max=used_ratio_T.max(),
            clip_fraction=stopped_T.to(used_ratio_T).sum() / len(used_ratio_T),
        )

    def _truncated_weights(self, current_T: Tensor, used_T: Tensor) -> Tensor | float:
        """Return how much likelier the learner finds each token than its sampler, up to the cap."""
        cap = self.config.ratio_cap
        if not cap or self.sampler_logprobs_T is None:
            return 1.0
        sampler_T = self.sampler_logprobs_T.to(current_T).where(used_T, current_T)
        return (current_T - sampler_T).clamp(max=math.log(cap)).exp()

    def _old_logprobs(self, current_T: Tensor, used_T: Tensor) -> Tensor:
        """Return the old log-probabilities, nan where not finite; current ones where masked."""
        if self.old_logprobs_T is None:
            old_T = current_T
        else:
            old_T = self.old_logprobs_T.to(current_T).where(used_T, current_T)
        return old_T.where(old_T.isfinite(), torch.nan)

    def logit_slopes(
        self, logprobs_T: Tensor, entropy_T: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Return the loss's derivatives by log-probability and by entropy, per unit of logit.

        Both are (T,). Without an entropy bonus the second is None.
        """
        with torch.enable_grad():
            logprobs_T = logprobs_T.detach().requires_grad_()
            entropy_T = entropy_T.detach().requires_grad_()
            loss = self.loss_and_stats(logprobs_T, entropy_T).loss
            inputs = (logprobs_T, entropy_T)
            slope_T, bonus_T = torch.autograd.grad(loss, inputs, allow_unused=True)
        slope_T = slope_T / self.temperature
        if bonus_T is not None:
            bonus_T = bonus_T / self.temperature
        return slope_T, bonus_T


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """Return the type of statistics of such inputs: float32, or float64 for float64."""
    return torch.promote_types(dtype, torch.float32)


def token_statistics(
    hidden_TH: Tensor, head_VH: Tensor, targets_T: Tensor, temperature: float = 1
) -> tuple[Tensor, Tensor]:
    """Return the targets' log-probabilities (T,) and the entropies (T,), in float32 at least."""
    logits_TV = (hidden_TH @ head_VH.T).to(
        at_least_float32(hidden_TH.dtype)
    ) / temperature
    logprobs_TV = logits_TV.log_softmax(-1)
    finite_TV = logprobs_TV.clamp(min=-1e30)  # 0 log 0 is 0
    entropy_T = -(logprobs_TV.exp() * finite_TV).sum(-1)
    return logprobs_TV.gather(-1, targets_T[:, None])[:, 0], entropy_T
