"""Policy-gradient losses on packed completion tokens. They know tensors only."""

from coevolve.losses.reference import PolicyLoss, policy_loss, selective_logprobs, weights

__all__ = ["PolicyLoss", "policy_loss", "selective_logprobs", "weights"]
