"""Learned baselines: the expected reward in a policy's state (estimator gae) or of a role (rae).

Neither changes the policy or has a learning rate. Their state is part of a checkpoint. Knows tokens
and segment rewards.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from coevolve.advantages.segments import owners, segments, token_rewards, unmasked
from coevolve.models.policy import Policy
from coevolve.types import Sample

# Factor by which the weight of earlier steps shrinks in every step.
STEP_DECAY = 0.9
# Strength of the ridge penalty, in units of one token.
RIDGE = 1.0
# Factor by which the weight of earlier rewards shrinks with every reward (SPIRAL's value).
REWARD_DECAY = 0.95


class ValueHead(nn.Module):
    """V(state) = weight . [hidden, 1], fitted by least squares to recent steps (CoNL, Appendix G).

    Zero until something has been observed.
    """

    def __init__(self, policy: Policy):
        """Make a head for the policy's width."""
        super().__init__()
        _, width = policy.head_VH.shape
        zeros_H = policy.head_VH.new_zeros(width + 1, dtype=torch.float64)
        self.policy = policy
        self.weight_H: Tensor = nn.Buffer(zeros_H)
        self.moment_HH: Tensor = nn.Buffer(torch.outer(zeros_H, zeros_H))
        self.target_H: Tensor = nn.Buffer(zeros_H.clone())

    @torch.no_grad()
    def observe(
        self, samples: Sequence[Sample], max_tokens_per_micro_batch: int
    ) -> list[list[float]]:
        """Return V before every token of every sample, then learn from these samples.

        Each token's state is fitted to the undiscounted reward of its segment. Masked tokens are
        left out of the fit.
        """
        values_of_sample: dict[int, list[float]] = {}
        self.moment_HH *= STEP_DECAY
        self.target_H *= STEP_DECAY
        replies = [sample.reply for sample in samples]
        for micro_batch in self.policy.forward_micro_batches(
            replies, max_tokens_per_micro_batch
        ):
            state_TH = self._states(micro_batch.hidden_TH)
            values_T = state_TH @ self.weight_H
            lengths = [len(reply.completion_ids) for reply in micro_batch.replies]
            values = values_T.split(lengths)
            indices = micro_batch.indices
            for i, completion_values_T in zip(indices, values, strict=True):
                values_of_sample[i] = completion_values_T.tolist()
            self._add_to_moments(state_TH, [samples[i] for i in indices])
        self._fit()
        return [values_of_sample[i] for i in range(len(samples))]

    def _states(self, hidden_TH: Tensor) -> Tensor:
        """Return the hidden states with a constant 1 appended, in double precision."""
        return nn.functional.pad(hidden_TH.to(self.weight_H), (0, 1), value=1.0)

    def _add_to_moments(self, state_TH: Tensor, samples: Sequence[Sample]) -> None:
        """Add the tokens that have a reward to the moments of the least-squares fit."""
        rewards: list[float | None] = []
        for sample in samples:
            rewards += token_rewards(sample)
        rewarded_tokens = []
        known_rewards = []
        for t, reward in enumerate(rewards):
            if reward is not None:
                rewarded_tokens.append(t)
                known_rewards.append(reward)
        rewarded_TH = state_TH[rewarded_tokens]
        rewards_T = state_TH.new_tensor(known_rewards)
        self.moment_HH += rewarded_TH.T @ rewarded_TH
        self.target_H += rewarded_TH.T @ rewards_T

    def _fit(self) -> None:
        """Solve the ridge regression for the weights."""
        identity_HH = torch.eye(len(self.weight_H)).to(self.moment_HH)
        ridge_HH = RIDGE * identity_HH
        self.weight_H = torch.linalg.solve(self.moment_HH + ridge_HH, self.target_H)


class RoleMeans:
    """V = the moving mean of a role's earlier rewards, with one mean per rewarded segment.

    Role-conditioned advantage estimation (RAE), SPIRAL's baseline for self-play:
    mean <- 0.95 mean + 0.05 reward, reply by reply in the order of episodes, starting from 0.
    """

    def __init__(self) -> None:
        self.means: dict[str, float] = {}

    def observe(
        self, samples: Sequence[Sample], max_tokens_per_micro_batch: int
    ) -> list[list[float]]:
        """Return V of every token of every sample, from earlier rewards alone, then learn.

        Masked segments are left out. `max_tokens_per_micro_batch` is ignored: no model runs.
        """
        rows = []
        for sample in samples:
            expected: dict[str | None, float] = {None: 0.0}
            for name in segments(sample):
                expected[name] = self.means.get(f"{sample.role}/{name}", 0.0)
            row = [expected[owner] for owner in owners(sample)]
            rows.append(row)
            for name, reward in unmasked(sample).items():
                mean = REWARD_DECAY * expected[name] + (1 - REWARD_DECAY) * reward
                self.means[f"{sample.role}/{name}"] = mean
        return rows

    def state_dict(self) -> dict[str, float]:
        """Return the means, for a checkpoint."""
        return self.means

    def load_state_dict(self, means: Mapping[str, float]) -> None:
        """Restore the means that `state_dict` returned."""
        self.means = dict(means)


Baseline = ValueHead | RoleMeans


def make_baselines(
    estimator: str, policies: Mapping[str, Policy]
) -> dict[str, Baseline]:
    """Return {policy: its baseline}, empty unless the estimator uses expected rewards."""
    if estimator == "gae":
        return {name: ValueHead(policy) for name, policy in policies.items()}
    if estimator == "rae":
        return {name: RoleMeans() for name in policies}
    return {}
