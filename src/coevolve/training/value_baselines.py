"""Baselines that learn over a run what reward to expect: of a policy's state, or of a role (estimators gae and rae).

Neither changes the policy or has a learning rate. Their state is part of a checkpoint. Knows tokens and segment
rewards.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from coevolve.advantages.segments import owners, segments, token_rewards, unmasked
from coevolve.models.policy import Policy
from coevolve.types import Sample

MEMORY = 0.9  # what is left of a step's weight one step later
RIDGE = 1.0  # in units of one token
DECAY = 0.95  # what is left of a role's mean after one more reward (SPIRAL's value)


class ValueHead(nn.Module):
    """V(state) = weight . [hidden, 1], fitted by least squares to recent steps (CoNL, Appendix G).

    Zero until something has been observed.
    """

    def __init__(self, policy: Policy):
        """Make a head for the policy's width."""
        super().__init__()
        zeros_H = policy.head_VH.new_zeros(policy.head_VH.shape[1] + 1, dtype=torch.float64)
        self.policy = policy
        self.weight_H: Tensor = nn.Buffer(zeros_H)
        self.moment_HH: Tensor = nn.Buffer(torch.outer(zeros_H, zeros_H))
        self.target_H: Tensor = nn.Buffer(zeros_H.clone())

    @torch.no_grad()
    def observe(self, samples: Sequence[Sample], micro_tokens: int) -> list[list[float]]:
        """Return V before every token of every sample as learnt so far, then learn from these samples.

        A token's state is fitted to the reward of the token's segment (nothing is discounted); masked tokens teach
        nothing.
        """
        found: dict[int, list[float]] = {}
        self.moment_HH *= MEMORY
        self.target_H *= MEMORY
        for indices, hidden_TH, _ in self.policy.passes([sample.reply for sample in samples], micro_tokens):
            batch = [samples[i] for i in indices]
            state_TH = nn.functional.pad(hidden_TH.to(self.weight_H), (0, 1), value=1.0)
            values = (state_TH @ self.weight_H).split([len(sample.reply.completion_ids) for sample in batch])
            found |= {i: values_T.tolist() for i, values_T in zip(indices, values, strict=True)}
            rewards = [reward for sample in batch for reward in token_rewards(sample)]
            rewarded = {t: reward for t, reward in enumerate(rewards) if reward is not None}
            known_TH = state_TH[list(rewarded)]
            self.moment_HH += known_TH.T @ known_TH
            self.target_H += known_TH.T @ state_TH.new_tensor(list(rewarded.values()))
        ridge_HH = RIDGE * torch.eye(len(self.weight_H)).to(self.moment_HH)
        self.weight_H = torch.linalg.solve(self.moment_HH + ridge_HH, self.target_H)
        return [found[i] for i in range(len(samples))]


class RoleMeans:
    """V = the moving mean of what a role has earned so far, a mean for each segment where segments are paid.

    Role-conditioned advantage estimation (RAE), as SPIRAL has it for self-play: mean <- 0.95 mean + 0.05 reward, reply
    by reply in the order of episodes, zero before the first one.
    """

    def __init__(self) -> None:
        self.means: dict[str, float] = {}

    def observe(self, samples: Sequence[Sample], micro_tokens: int) -> list[list[float]]:
        """Return V of every token of every sample, from earlier rewards alone; then add its own to the mean.

        Masked segments teach nothing. `micro_tokens` is not needed: no model is asked.
        """
        values = []
        for sample in samples:
            expected = {name: self.means.get(f"{sample.role}/{name}", 0.0) for name in segments(sample)}
            values.append([0.0 if name is None else expected[name] for name in owners(sample)])
            for name, reward in unmasked(sample).items():
                self.means[f"{sample.role}/{name}"] = DECAY * expected[name] + (1 - DECAY) * reward
        return values

    def state_dict(self) -> dict[str, float]:
        """The means, for a checkpoint."""
        return self.means

    def load_state_dict(self, means: Mapping[str, float]) -> None:
        """Take over what `state_dict` gave."""
        self.means = dict(means)


Baseline = ValueHead | RoleMeans


def make_baselines(estimator: str, policies: Mapping[str, Policy]) -> dict[str, Baseline]:
    """Return {policy: what learns the reward to expect}, empty unless the estimator takes such values."""
    if estimator == "gae":
        return {name: ValueHead(policy) for name, policy in policies.items()}
    if estimator == "rae":
        return {name: RoleMeans() for name in policies}
    return {}
