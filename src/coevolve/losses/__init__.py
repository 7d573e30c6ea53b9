"""Policy-gradient losses on packed completion tokens. They know tensors only."""

from coevolve.losses.dispatch import policy_loss, selective_logprobs
from coevolve.losses.reference import LossConfig, PolicyLoss, TokenBatch

__all__ = [
    "LossConfig",
    "PolicyLoss",
    "TokenBatch",
    "policy_loss",
    "selective_logprobs",
]
