"""Advantages: from the rewards of a batch to one number per token of each sample's ids, None where masked.

Pure arithmetic on samples. Knows roles and groups by name only, and neither text nor tensors.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from itertools import accumulate
from statistics import fmean

from coevolve.advantages.segments import gae, mean_reward, role_conditioned, segment_centred
from coevolve.types import Sample

Advantages = Sequence[Sequence[float | None]]


def task_relative(samples: Sequence[Sample]) -> list[list[float]]:
    """Standardise each role's rewards over its sequences (Task-Relative REINFORCE++, MAE and SAGE).

    (reward - mean) / (population standard deviation + 1e-8), the same on every token; a role whose rewards
    are all equal gets zeros. Samples with a group share a baseline with their role's samples of that group
    only (AZR's task modes).
    """
    return _within(samples, _standardised)


def group_mean(samples: Sequence[Sample]) -> list[list[float]]:
    """Subtract the mean reward of the sample's role and group, no standard deviation (DrGRPO, SPICE)."""
    return _within(samples, _centred)


def reinforce_pp(
    samples: Sequence[Sample], log_ratios: Sequence[Sequence[float]] = (), kl_coef: float = 0.0, by_role: bool = False
) -> list[list[float]]:
    """REINFORCE++ as CoMAS uses it (Eqs. 9 and 10): rewards less cumulative KL, normalised over an agent's tokens.

    A_t = reward - kl_coef * sum of `log_ratios` (policy over reference, one per token) from t to the end; then
    mean and population standard deviation over all tokens of the policy's buffer, + 1e-8. Samples with a group
    share them with that group only; with `by_role`, with their interaction type.
    """
    advantages = _broadcast(samples, _rewards(samples))
    if kl_coef:
        for values, ratios in zip(advantages, log_ratios, strict=True):
            ahead = reversed([*accumulate(reversed(ratios))])
            values[:] = [value - kl_coef * kl for value, kl in zip(values, ahead, strict=True)]
    for indices in _by(samples, lambda s: (s.policy, s.role if by_role else None, s.group_id)):
        tokens = [(i, t) for i in indices for t in range(len(advantages[i]))]
        values = _standardised([advantages[i][t] for i, t in tokens]) if tokens else []
        for (i, t), value in zip(tokens, values, strict=True):
            advantages[i][t] = value
    return advantages


reinforce_pp_by_role = partial(reinforce_pp, by_role=True)  # no interaction type has a standing advantage

WITH_KL = ("reinforce_pp", "reinforce_pp_by_role")  # these take log-ratios to the starting policy as well
ESTIMATORS: dict[str, Callable[..., Advantages]] = {
    "task_relative": task_relative,
    "group_mean": group_mean,
    "reinforce_pp": reinforce_pp,
    "reinforce_pp_by_role": reinforce_pp_by_role,
    "segment_centred": segment_centred,
    "gae": gae,  # this and the next take an estimate of the expected reward per token as well
    "rae": role_conditioned,
}


def _rewards(samples: Sequence[Sample]) -> list[float]:
    rewards = []
    for sample in samples:
        reward = sample.reward
        if not isinstance(reward, (int, float)) or not math.isfinite(reward):
            raise ValueError(f"the advantage takes one finite number per reply, {sample.role!r} earned {reward!r}")
        rewards.append(float(reward))
    return rewards


def _by(samples: Sequence[Sample], key: Callable[[Sample], Hashable]) -> list[list[int]]:
    """Return the samples' indices, those of one key together."""
    found = defaultdict(list)
    for i, sample in enumerate(samples):
        found[key(sample)].append(i)
    return list(found.values())


def _within(samples: Sequence[Sample], change: Callable[[list[float]], list[float]]) -> list[list[float]]:
    """Return the changed rewards, those of one role and group together, on every token."""
    advantages = _rewards(samples)
    for indices in _by(samples, lambda sample: (sample.role, sample.group_id)):
        for i, value in zip(indices, change([advantages[i] for i in indices]), strict=True):
            advantages[i] = value
    return _broadcast(samples, advantages)


def _centred(rewards: list[float]) -> list[float]:
    """Return the rewards less their mean."""
    mean = mean_reward(rewards)
    return [reward - mean for reward in rewards]


def _standardised(rewards: list[float]) -> list[float]:
    """Return the rewards less their mean, over their population standard deviation + 1e-8."""
    centred = _centred(rewards)
    scale = math.sqrt(fmean(value**2 for value in centred)) + 1e-8
    return [value / scale for value in centred]


def _broadcast(samples: Sequence[Sample], values: list[float]) -> list[list[float]]:
    """Return each sample's value on every token of the sample."""
    return [[value] * len(sample.reply.completion_ids) for sample, value in zip(samples, values, strict=True)]
