"""The policy losses in plain torch, exact in float64: the definition every faster version is compared with.

Tensors are packed: T counts completion tokens over all rows, H is the model's width, V its vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

KINDS = ("ppo", "importance", "reinforce")
NORMS = ("token_mean", "sequence_mean", "constant", "token_sum")


@dataclass(frozen=True)
class PolicyLoss:
    """A scalar to differentiate, and detached facts about it."""

    loss: Tensor
    logprobs_T: Tensor
    entropy_T: Tensor
    ratio_mean: Tensor  # of current over old probability
    ratio_max: Tensor
    clip_fraction: Tensor  # share of tokens whose gradient the clip stopped


def policy_loss(
    hidden_TH: Tensor,
    head_VH: Tensor,
    targets_T: Tensor,
    advantages_T: Tensor,
    old_logprobs_T: Tensor | None = None,
    *,
    clip: tuple[float, float] = (0.2, 0.28),
    dual_clip: float | None = None,
    kind: str = "ppo",
    entropy_coef: float = 0.0,
    temperature: float = 1.0,
    weights_T: Tensor | None = None,
    chunk: int | None = None,
) -> PolicyLoss:
    """Return sum_t weights_t * (term_t - entropy_coef * entropy_t); without weights, the mean over tokens.

    With ratio r = exp(logprob - old) and advantage A, the term of "importance" is -r A, of "reinforce"
    -A logprob, and of "ppo" -min(r A, clip(r, 1 - low, 1 + high) A), at most -dual_clip A where A < 0.
    Without old log-probabilities the current ones stand in (r = 1). `chunk` bounds memory to that many
    tokens' logits.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {KINDS}, got {kind!r}")
    if dual_clip is not None and dual_clip <= 1:
        raise ValueError(f"dual_clip must be greater than 1, got {dual_clip}")
    with_entropy = entropy_coef != 0
    logprobs_T, entropy_T = selective_logprobs(
        hidden_TH, head_VH, targets_T, temperature, chunk, entropy_grad=with_entropy
    )
    A_T = advantages_T.to(logprobs_T)
    old_T = logprobs_T.detach() if old_logprobs_T is None else old_logprobs_T.to(logprobs_T)
    if weights_T is None:
        weights_T = torch.full_like(A_T, 1 / max(len(A_T), 1))
    ratio_T = (logprobs_T - old_T).exp()
    stopped_T = torch.zeros_like(A_T, dtype=torch.bool)
    if kind == "reinforce":
        term_T = -A_T * logprobs_T
    elif kind == "importance":
        term_T = -A_T * ratio_T
    else:
        low, high = clip
        stopped_T = torch.where(A_T > 0, ratio_T > 1 + high, (A_T < 0) & (ratio_T < 1 - low))
        term_T = torch.maximum(-A_T * ratio_T, -A_T * ratio_T.clamp(1 - low, 1 + high))
        if dual_clip is not None:
            stopped_T = stopped_T | ((A_T < 0) & (ratio_T > dual_clip))
            term_T = torch.where(A_T < 0, torch.minimum(term_T, -A_T * dual_clip), term_T)
    loss = (weights_T.to(logprobs_T) * (term_T - entropy_coef * entropy_T)).sum()
    facts_T = ratio_T.detach() if len(A_T) else ratio_T.new_ones(1)
    clipped = stopped_T.to(facts_T).sum() / len(facts_T)
    return PolicyLoss(loss, logprobs_T.detach(), entropy_T.detach(), facts_T.mean(), facts_T.max(), clipped)


def selective_logprobs(
    hidden_TH: Tensor,
    head_VH: Tensor,
    targets_T: Tensor,
    temperature: float = 1.0,
    chunk: int | None = None,
    entropy_grad: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the targets' log-probabilities (T,) and the distributions' entropies (T,) at a temperature > 0.

    Computed in float32 at least. Only with `entropy_grad` is the entropy differentiable.
    """
    if temperature <= 0:
        raise ValueError(f"temperature must be positive, got {temperature}")

    def part(hidden_CH: Tensor, head_VH: Tensor, targets_C: Tensor) -> tuple[Tensor, Tensor]:
        logits_CV = hidden_CH @ head_VH.T
        if logits_CV.dtype in (torch.bfloat16, torch.float16):
            logits_CV = logits_CV.float()
        logprobs_CV = (logits_CV / temperature).log_softmax(-1)
        with torch.set_grad_enabled(entropy_grad and torch.is_grad_enabled()):
            entropy_C = -(logprobs_CV.exp() * logprobs_CV).sum(-1)
        return logprobs_CV.gather(-1, targets_C[:, None])[:, 0], entropy_C

    if chunk is None or len(targets_T) <= chunk:
        return part(hidden_TH, head_VH, targets_T)
    pieces = zip(hidden_TH.split(chunk), targets_T.split(chunk), strict=True)
    done = [checkpoint(part, hidden, head_VH, targets, use_reentrant=False) for hidden, targets in pieces]
    logprobs, entropies = zip(*done, strict=True)
    return torch.cat(logprobs), torch.cat(entropies)


def weights(lengths: Sequence[int], kind: str, constant: float | None = None) -> Tensor:
    """Return one weight per token (sum of lengths,) in float64 for sequences of these lengths.

    "token_mean": every token counts the same and all sum to 1. "sequence_mean": every sequence does.
    "constant": 1 / (sequences * constant), the length-free mean of DrGRPO. "token_sum": 1 each.
    """
    if kind not in NORMS:
        raise ValueError(f"length_norm must be one of {NORMS}, got {kind!r}")
    if kind == "constant" and not (constant and constant > 0):
        raise ValueError(f"length_constant must be positive with length_norm='constant', got {constant}")
    per_sequence = {
        "token_mean": lambda length: 1 / sum(lengths),
        "sequence_mean": lambda length: 1 / (len(lengths) * length),
        "constant": lambda length: 1 / (len(lengths) * constant),
        "token_sum": lambda length: 1.0,
    }[kind]
    return torch.tensor([per_sequence(n) for n in lengths for _ in range(n)], dtype=torch.float64)
