"""What is special about the learning steps that are taken on a fake GPU."""

from typing import Any

# A few short replies, and one step.
SMALL = {"replies": 2, "prompt_tokens": 40, "reply_tokens": 12, "steps": 1}
OF_LOSSES: dict[str, dict[str, Any]] = {
    "ppo": {},
    "importance": {"loss": "importance"},
    "recompute": {"old_logprobs": "recompute"},
    "truncated": {"old_logprobs": "recompute", "ratio_cap": 2.0},
    "kl in the reward": {"estimator": "reinforce_pp", "kl_coef": 0.1},
    "kl in the loss": {"kl_loss_coef": 0.1},
    "minibatches": {"minibatches": 2},
}
