"""Learned baselines: the expected reward of a policy's state (estimator gae) or of a role (rae).

Neither changes the policy or has a learning rate. Their state is part of a checkpoint. Knows tokens
and segment rewards.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from coevolve.advantages.segments import owners, segments, token_rewards, unmasked
from coevolve.models.policy import Policy
from coevolve.types import Sample

MEMORY = 0.9  # by which a step's weight shrinks with every further step
RIDGE = 1.0  # strength of the ridge penalty, in units of one token
DECAY = (
    0.95  # by which a role's mean shrinks with every further reward (SPIRAL's value)
)


class ValueHead(nn.Module):
    """V(state) = weight . [hidden, 1], fitted by least squares to recent steps (CoNL, Appendix G).

    Zero until something has been observed.
    """

    def __init__(self, policy: Policy):
        """Make a head for the policy's width."""
        super().__init__()
        zeros_H = policy.head_VH.new_zeros(
            policy.head_VH.shape[1] + 1, dtype=torch.float64
        )
        self.policy = policy
        self.weight_H: Tensor = nn.Buffer(zeros_H)
        self.moment_HH: Tensor = nn.Buffer(torch.outer(zeros_H, zeros_H))
        self.target_H: Tensor = nn.Buffer(zeros_H.clone())

    @torch.no_grad()
    def observe(
        self, samples: Sequence[Sample], micro_tokens: int
    ) -> list[list[float]]:
        """Return V before every token of every sample, then learn from these samples.

        A token's state is fitted to the reward of its segment (nothing is discounted). Masked
        tokens teach nothing.
        """
        values_of: dict[int, list[float]] = {}
        self.moment_HH *= MEMORY
        self.target_H *= MEMORY
        replies = [sample.reply for sample in samples]
        for micro_batch in self.policy.forward_micro_batches(replies, micro_tokens):
            state_TH = self._states(micro_batch.hidden_TH)
            lengths = [len(reply.completion_ids) for reply in micro_batch.replies]
            values = (state_TH @ self.weight_H).split(lengths)
            for i, values_T in zip(micro_batch.indices, values, strict=True):
                values_of[i] = values_T.tolist()
            self._remember(state_TH, [samples[i] for i in micro_batch.indices])
        ridge_HH = RIDGE * torch.eye(len(self.weight_H)).to(self.moment_HH)
        self.weight_H = torch.linalg.solve(self.moment_HH + ridge_HH, self.target_H)
        return [values_of[i] for i in range(len(samples))]

    def _states(self, hidden_TH: Tensor) -> Tensor:
        """Return the hidden states with a constant 1 appended, in double precision."""
        return nn.functional.pad(hidden_TH.to(self.weight_H), (0, 1), value=1.0)

    def _remember(self, state_TH: Tensor, samples: Sequence[Sample]) -> None:
        """Add the tokens that have a reward to the sums of the least-squares fit."""
        rewards = [reward for sample in samples for reward in token_rewards(sample)]
        rewarded = {t: reward for t, reward in enumerate(rewards) if reward is not None}
        rewarded_TH = state_TH[list(rewarded)]
        rewards_T = state_TH.new_tensor(list(rewarded.values()))
        self.moment_HH += rewarded_TH.T @ rewarded_TH
        self.target_H += rewarded_TH.T @ rewards_T


class RoleMeans:
    """V = the moving mean of a role's rewards so far, one per segment where segments are rewarded.

    Role-conditioned advantage estimation (RAE), as SPIRAL has it for self-play:
    mean <- 0.95 mean + 0.05 reward, reply by reply in the order of episodes, starting from 0.
    """

    def __init__(self) -> None:
        self.means: dict[str, float] = {}

    def observe(
        self, samples: Sequence[Sample], micro_tokens: int
    ) -> list[list[float]]:
        """Return V of every token of every sample, from earlier rewards alone; then learn.

        Masked segments teach nothing. `micro_tokens` is ignored: no model runs.
        """
        rows = []
        for sample in samples:
            expected: dict[str | None, float] = {None: 0.0}
            for name in segments(sample):
                expected[name] = self.means.get(f"{sample.role}/{name}", 0.0)
            rows.append([expected[owner] for owner in owners(sample)])
            for name, reward in unmasked(sample).items():
                mean = DECAY * expected[name] + (1 - DECAY) * reward
                self.means[f"{sample.role}/{name}"] = mean
        return rows

    def state_dict(self) -> dict[str, float]:
        """Return the means, for a checkpoint."""
        return self.means

    def load_state_dict(self, means: Mapping[str, float]) -> None:
        """Take over the means that `state_dict` returned."""
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
