"""How a batch of samples moves the weights."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from coevolve.validation import settle

Clip = Annotated[tuple[NonNegativeFloat, NonNegativeFloat], "[low, high], each at least 0"]


@dataclass(kw_only=True)
class Learning:
    """How a batch of samples moves the weights: the part of a run that the learner reads."""

    grad_clip: PositiveFloat = 1.0  # largest norm of the gradient
    loss: Annotated[str, ("ppo", "importance")] = "ppo"  # ratios clipped as in PPO, or importance sampling without a clip
    clip: Clip = (0.2, 0.28)  # how far below and above 1 ratios count (ppo)
    old: Annotated[str, ("sampler", "learner")] = "sampler"  # who computes the ratio's old log-probabilities
    entropy_coef: float = 0.001  # weight of the entropy bonus
    length_norm: Annotated[str, ("token_mean", "constant", "token_sum")] = "token_mean"  # see `update.token_weight`
    max_tokens: PositiveInt = 8192  # longest reply, for roles without a limit of their own
    micro_tokens: PositiveInt = 16384  # tokens in one forward and backward pass
    minibatches: PositiveInt = 1  # optimiser steps a batch of samples is shared out over, as in PPO

    def __post_init__(self) -> None:
        """Bring every field into its type; ValueError in one line for a wrong value or combination."""
        settle(self, "protocol", "out")  # which a run has too
        if self.minibatches > 1 and self.old == "learner":  # the ratio would be 1 in every step
            raise ValueError(f"minibatches must be 1 with old=learner, got {self.minibatches}")
