"""Policy-gradient losses on packed completion tokens. They know tensors only."""

from coevolve.losses.paths import policy_loss, selective_logprobs
from coevolve.losses.reference import PolicyLoss

__all__ = ["PolicyLoss", "policy_loss", "selective_logprobs"]
