"""Advantages: from the rewards of a batch to one number per token of each sample's ids.

Pure arithmetic on samples. Knows roles and groups by name only, and neither text nor tensors.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from numbers import Real
from statistics import fmean

from coevolve.types import Sample

EPSILON = 1e-8

Estimator = Callable[[Sequence[Sample]], list[list[float]]]


def task_relative(samples: Sequence[Sample]) -> list[list[float]]:
    """Standardise each role's rewards over its sequences (Task-Relative REINFORCE++, MAE and SAGE).

    (reward - mean) / (population standard deviation + 1e-8), the same on every token; a role whose rewards
    are all equal gets zeros. Samples with a group share a baseline with their role's samples of that group
    only (AZR's task modes).
    """
    rewards = _rewards(samples, "task_relative")
    advantages = [0.0] * len(samples)
    for rows in _rows(samples, lambda sample: (sample.role, sample.group)):
        centred = _centred([rewards[row] for row in rows])
        scale = math.sqrt(fmean(value**2 for value in centred)) + EPSILON
        for row, value in zip(rows, centred, strict=True):
            advantages[row] = value / scale
    return _broadcast(samples, advantages)


def token_whiten(samples: Sequence[Sample]) -> list[list[float]]:
    """Place reward - role mean on every token, then whiten over all tokens of the role (what verl computes).

    The token variance is the unbiased one and 1e-8 is added to it, so long sequences weigh more.
    """
    rewards = _rewards(samples, "token_whiten")
    advantages = [0.0] * len(samples)
    for rows in _rows(samples, lambda sample: (sample.role, sample.group)):
        centred = _centred([rewards[row] for row in rows])
        lengths = [len(samples[row].reply.ids) for row in rows]
        count = sum(lengths)
        if count < 2 or not any(centred):
            continue
        pairs = list(zip(centred, lengths, strict=True))
        mean = sum(value * length for value, length in pairs) / count
        variance = sum((value - mean) ** 2 * length for value, length in pairs) / (count - 1)
        for row, value in zip(rows, centred, strict=True):
            advantages[row] = (value - mean) / math.sqrt(variance + EPSILON)
    return _broadcast(samples, advantages)


def group_mean(samples: Sequence[Sample]) -> list[list[float]]:
    """Subtract the mean reward of the sample's role and group, no standard deviation (DrGRPO, SPICE)."""
    rewards = _rewards(samples, "group_mean")
    advantages = [0.0] * len(samples)
    for rows in _rows(samples, lambda sample: (sample.role, sample.group)):
        for row, value in zip(rows, _centred([rewards[row] for row in rows]), strict=True):
            advantages[row] = value
    return _broadcast(samples, advantages)


ESTIMATORS: dict[str, Estimator] = {
    "task_relative": task_relative,
    "token_whiten": token_whiten,
    "group_mean": group_mean,
}


def _rewards(samples: Sequence[Sample], estimator: str) -> list[float]:
    for sample in samples:
        if not isinstance(sample.reward, Real) or not math.isfinite(sample.reward):
            wanted = f"advantage {estimator!r} takes one finite number per reply"
            raise ValueError(f"{wanted}, role {sample.role!r} earned {sample.reward!r}")
    return [float(sample.reward) for sample in samples]


def _rows(samples: Sequence[Sample], key: Callable[[Sample], Hashable]) -> list[list[int]]:
    rows = defaultdict(list)
    for row, sample in enumerate(samples):
        rows[key(sample)].append(row)
    return list(rows.values())


def _centred(rewards: list[float]) -> list[float]:
    if min(rewards) == max(rewards):  # the rounded mean of equal numbers may differ from them
        return [0.0] * len(rewards)
    mean = fmean(rewards)
    return [reward - mean for reward in rewards]


def _broadcast(samples: Sequence[Sample], advantages: list[float]) -> list[list[float]]:
    pairs = zip(samples, advantages, strict=True)
    return [[advantage] * len(sample.reply.ids) for sample, advantage in pairs]
