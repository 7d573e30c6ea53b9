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
    """Which engine computes the old log-probabilities of the ratio: the sampler, or the learner."""

    ratio_cap: NonNegativeFloat = 0.0
    """With old_logprobs=recompute: tokens weigh as the learner's probability over the sampler's, at
    most this (truncated importance sampling); 0: equally."""

    entropy_coef: float = 0.001
    """Weight of the entropy bonus."""

    kl_loss_coef: NonNegativeFloat = 0.0
    """Weight of the KL divergence from the starting model, added to the loss; goes with every
    estimator. In the reward instead: kl_coef."""

    loss_aggregation: Literal["token_mean", "constant", "token_sum"] = "token_mean"
    """How the loss is averaged: over the tokens (token_mean), over replies times max_tokens
    (constant), or not at all (token_sum)."""

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

    @model_validator(mode="after")
    def check_ratio_cap(self) -> Self:
        """Refuse a cap where the ratio to the sampler is in the loss already."""
        if self.ratio_cap and self.old_logprobs != "recompute":
            raise ValueError(
                f"ratio_cap must be 0 unless old_logprobs is 'recompute', got {self.ratio_cap}"
            )
        return self
