"""The policy loss in plain torch, exact in float64: the definition that every faster path is compared with.

Tensors are packed: T counts completion tokens over all rows, H is the model's width, V its vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

LOSSES = ("ppo", "importance")
SATURATION = 20.0  # the ratio stops growing at e^20: the loss stays finite whatever the policies have become


@dataclass(frozen=True)
class PolicyLoss:
    """A scalar to differentiate, and detached facts about it."""

    loss: Tensor
    logprobs_T: Tensor
    entropy_T: Tensor
    ratio_mean: Tensor  # of current over old probability
    ratio_max: Tensor
    clip_fraction: Tensor  # share of tokens whose gradient the clip, or the ratio's saturation, stopped
    path: str = "reference"  # which implementation computed it


@dataclass(frozen=True)
class TokenBatch:
    """What is known about each token, and how it is judged.

    `targets_T` are the tokens that were sampled, `advantages_T` what they earned. Without `old_logprobs_T` the current
    log-probabilities stand in for the old ones. `weights_T` say how much each token counts (1 / T each: the mean).
    """

    targets_T: Tensor
    advantages_T: Tensor
    old_logprobs_T: Tensor | None
    weights_T: Tensor
    temperature: float = 1.0
    kind: str = "ppo"  # or "importance"
    clip: tuple[float, float] = (0.2, 0.28)  # (low, high): how far below and above 1 ratios count, each at least 0
    entropy_coef: float = 0.0

    def part(self, piece: slice) -> "TokenBatch":
        """Return the tokens of one chunk."""
        old_T = None if self.old_logprobs_T is None else self.old_logprobs_T[piece]
        known = self.targets_T[piece], self.advantages_T[piece], old_T, self.weights_T[piece]
        return TokenBatch(*known, self.temperature, self.kind, self.clip, self.entropy_coef)

    def judge(self, logprobs_T: Tensor, entropy_T: Tensor) -> PolicyLoss:
        """Return sum_t weights_t * (term_t - entropy_coef * entropy_t), given the targets' log-probabilities.

        With ratio r = exp(logprob - old) and advantage A, the term of "importance" is -r A, and that of
        "ppo" -min(r A, clip(r, 1 - low, 1 + high) A).
        Without old log-probabilities the current ones stand in (r = 1); one that is not finite makes r nan.
        A weight of 0 masks a token: it counts neither in the loss nor in the ratios' statistics.
        """
        A_T, share_T, now_T = self.advantages_T.to(logprobs_T), self.weights_T.to(logprobs_T), logprobs_T.detach()
        used_T = share_T != 0
        A_T = A_T.where(used_T, 0)
        old_T = now_T if self.old_logprobs_T is None else self.old_logprobs_T.to(logprobs_T).where(used_T, now_T)
        gap_T = logprobs_T - old_T.where(old_T.isfinite(), torch.nan)
        ratio_T = torch.where(gap_T > SATURATION, SATURATION, gap_T).exp()
        stopped_T = (gap_T > SATURATION) & (A_T != 0)
        term_T = -A_T * ratio_T
        if self.kind == "ppo":
            low, high = self.clip
            stopped_T |= torch.where(A_T > 0, ratio_T > 1 + high, (A_T < 0) & (ratio_T < 1 - low))
            term_T = torch.maximum(term_T, -A_T * ratio_T.clamp(1 - low, 1 + high))
        if self.entropy_coef:
            term_T = term_T - self.entropy_coef * entropy_T
        facts_T = ratio_T.detach()[used_T] if used_T.any() else ratio_T.new_ones(1)
        clipped = stopped_T.to(facts_T).sum() / len(facts_T)
        loss, entropy_T = (share_T * term_T).sum(), entropy_T.detach()
        return PolicyLoss(loss, now_T, entropy_T, facts_T.mean(), facts_T.max(), clipped)

    def slopes(self, logprobs_T: Tensor, entropy_T: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the derivatives of `judge` by log-probabilities and entropies, per unit of logit.

        Without an entropy bonus the second is None.
        """
        with torch.enable_grad():
            at = logprobs_T.detach().requires_grad_(), entropy_T.detach().requires_grad_()
            slope_T, bonus_T = torch.autograd.grad(self.judge(*at).loss, at, allow_unused=True)
        return slope_T / self.temperature, None if bonus_T is None else bonus_T / self.temperature


def raised(dtype: torch.dtype) -> torch.dtype:
    """Return the type that statistics of such inputs have: float32 at least."""
    return torch.promote_types(dtype, torch.float32)


def statistics(hidden_TH: Tensor, head_VH: Tensor, targets_T: Tensor, temperature: float = 1) -> tuple[Tensor, Tensor]:
    """Return the targets' log-probabilities (T,) and the distributions' entropies (T,), in float32 at least."""
    logits_TV = (hidden_TH @ head_VH.T).to(raised(hidden_TH.dtype)) / temperature
    logprobs_TV = logits_TV.log_softmax(-1)
    entropy_T = -(logprobs_TV.exp() * logprobs_TV.clamp(min=-1e30)).sum(-1)  # 0 log 0 is 0
    return logprobs_TV.gather(-1, targets_T[:, None])[:, 0], entropy_T
