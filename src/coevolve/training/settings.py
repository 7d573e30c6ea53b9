"""The settings of an update: loss, clipping, averaging over tokens, micro-batches."""

from typing import Annotated, Literal, Self

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from coevolve.validation import Allowed, Operational, Settings

Loss = Literal["ppo", "importance"]
Clip = Annotated[
    tuple[NonNegativeFloat, NonNegativeFloat], Allowed("[low, high], each at least 0")
]


class OptimizationConfig(Settings):
    """How a batch of samples updates the weights: the part of a run that the learner reads."""

    grad_clip: PositiveFloat = 1.0
    """Largest norm of the gradient."""

    loss: Loss = "ppo"
    """ppo: clipped probability ratios; importance: importance sampling without clipping."""

    clip: Clip = (0.2, 0.28)
    """How far the ratio may fall below and rise above 1 before it is clipped (ppo)."""

    old_logprobs: Literal["sampler", "recompute"] = "sampler"
    """Who computes the old log-probabilities of the ratio."""

    entropy_coef: float = 0.001
    """Weight of the entropy bonus."""

    loss_aggregation: Literal["token_mean", "constant", "token_sum"] = "token_mean"
    """How the loss is averaged over tokens, see `update.token_weight`."""

    max_tokens: PositiveInt = 8192
    """Longest completion in tokens, for the roles that set no limit."""

    max_tokens_per_micro_batch: Annotated[PositiveInt, Operational()] = 16384
    """Tokens in one forward and backward pass."""

    minibatches: PositiveInt = 1
    """Optimiser steps that share a batch of samples, as in PPO."""

    @model_validator(mode="after")
    def check_old_logprobs(self) -> Self:
        """Refuse minibatches whose old log-probabilities come from the policy being updated."""
        if self.minibatches > 1 and self.old_logprobs == "recompute":
            # The ratio would be 1 in every step.
            raise ValueError(
                f"minibatches must be 1 with old_logprobs=recompute, got {self.minibatches}"
            )
        return self
