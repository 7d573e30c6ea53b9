"""Advantage estimators: from the rewards of a batch to one number per token of each completion.

Pure arithmetic on samples. Knows roles and groups by name only, and neither text nor tensors.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from statistics import fmean
from typing import Literal

from coevolve.advantages.inputs import Advantages, EstimatorInputs
from coevolve.advantages.segments import (
    finite_reward,
    gae,
    mean_reward,
    role_conditioned,
    segment_centred,
)
from coevolve.types import Sample

EPSILON = 1e-8  # added to a standard deviation before dividing by it


def task_relative(inputs: EstimatorInputs) -> list[list[float]]:
    """Standardise rewards within each role and group (Task-Relative REINFORCE++, MAE and SAGE).

    (reward - mean) / (population standard deviation + 1e-8), the same on every token. Equal rewards
    give zeros. Samples without a group share one with their whole role; AZR groups by task mode.
    """
    return _per_role_and_group(inputs.samples, _standardised)


def group_mean(inputs: EstimatorInputs) -> list[list[float]]:
    """Subtract the mean reward of the role and group (DrGRPO; SPICE, Eqs. 3 and 4)."""
    return _per_role_and_group(inputs.samples, _centred)


def reinforce_pp(inputs: EstimatorInputs) -> list[list[float]]:
    """REINFORCE++ as CoMAS uses it (Eqs. 9 and 10): rewards less the KL to the end, standardised.

    Mean and population standard deviation are taken over all tokens of a policy's samples, or of
    one group of them.
    """
    return _reinforce_pp(inputs, lambda sample: (sample.policy, sample.group_id))


def reinforce_pp_by_role(inputs: EstimatorInputs) -> list[list[float]]:
    """REINFORCE++ standardised per interaction type, so that none has a standing advantage."""
    return _reinforce_pp(
        inputs, lambda sample: (sample.policy, sample.role, sample.group_id)
    )


def _reinforce_pp(
    inputs: EstimatorInputs, buffer_of: Callable[[Sample], Hashable]
) -> list[list[float]]:
    rewards = _scalar_rewards(inputs.samples)
    advantages = _on_every_token(inputs.samples, rewards)
    if inputs.kl_coef:
        for values, log_ratios in zip(advantages, inputs.log_ratios, strict=True):
            _subtract_kl_to_end(values, log_ratios, inputs.kl_coef)
    for indices in _indices_by(inputs.samples, buffer_of):
        _standardise_tokens([advantages[i] for i in indices])
    return advantages


def _subtract_kl_to_end(
    values: list[float], log_ratios: Sequence[float], kl_coef: float
) -> None:
    """Subtract kl_coef times the log-ratios from each token to the end, in place (Eq. 9)."""
    kl_to_end = 0.0
    for t in reversed(range(len(values))):
        kl_to_end += log_ratios[t]
        values[t] -= kl_coef * kl_to_end


def _standardise_tokens(rows: list[list[float]]) -> None:
    """Standardise all tokens of some samples together, in place (Eq. 10)."""
    tokens = [value for row in rows for value in row]
    if not tokens:
        return
    standardised = iter(_standardised(tokens))
    for row in rows:
        for t in range(len(row)):
            row[t] = next(standardised)


Estimator = Literal[
    "task_relative",
    "group_mean",
    "reinforce_pp",
    "reinforce_pp_by_role",
    "segment_centred",
    "gae",
    "rae",
]
# Estimators that use log_ratios and kl_coef.
WITH_KL = ("reinforce_pp", "reinforce_pp_by_role")
ESTIMATORS: dict[str, Callable[[EstimatorInputs], Advantages]] = {
    "task_relative": task_relative,
    "group_mean": group_mean,
    "reinforce_pp": reinforce_pp,
    "reinforce_pp_by_role": reinforce_pp_by_role,
    "segment_centred": segment_centred,
    "gae": gae,  # uses values, as does the next one
    "rae": role_conditioned,
}


def _scalar_rewards(samples: Sequence[Sample]) -> list[float]:
    """Return one finite reward per sample; ValueError names the role of any other reward."""
    return [finite_reward(sample) for sample in samples]


def _indices_by(
    samples: Sequence[Sample], key_of: Callable[[Sample], Hashable]
) -> list[list[int]]:
    """Return the samples' indices, grouped by key in the order in which keys first occur."""
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for i, sample in enumerate(samples):
        groups[key_of(sample)].append(i)
    return list(groups.values())


def _per_role_and_group(
    samples: Sequence[Sample], transform: Callable[[list[float]], list[float]]
) -> list[list[float]]:
    """Transform the rewards of each role and group together, and put them on every token."""
    advantages = _scalar_rewards(samples)
    for indices in _indices_by(samples, lambda sample: (sample.role, sample.group_id)):
        transformed = transform([advantages[i] for i in indices])
        for i, value in zip(indices, transformed, strict=True):
            advantages[i] = value
    return _on_every_token(samples, advantages)


def _centred(rewards: list[float]) -> list[float]:
    """Return the rewards less their mean."""
    mean = mean_reward(rewards)
    return [reward - mean for reward in rewards]


def _standardised(rewards: list[float]) -> list[float]:
    """Return the rewards less their mean, over their population standard deviation + EPSILON."""
    centred = _centred(rewards)
    variance = fmean(value**2 for value in centred)
    scale = math.sqrt(variance) + EPSILON
    return [value / scale for value in centred]


def _on_every_token(
    samples: Sequence[Sample], values: list[float]
) -> list[list[float]]:
    """Return each sample's value once per token of its completion."""
    rows = []
    for sample, value in zip(samples, values, strict=True):
        rows.append([value] * len(sample.reply.completion_ids))
    return rows
