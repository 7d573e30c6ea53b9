"""The metrics of one training step: facts, rewards and lengths by role, the update, the pools."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from coevolve.advantages.segments import segments
from coevolve.methods.base import Method
from coevolve.rollout.errors import MethodError, explained
from coevolve.runs import record
from coevolve.training import diagnostics
from coevolve.types import Outcome, Sample

# Columns of metrics.jsonl beside the metrics of a step.
RESERVED = ("step", "validation")
NamedNumber = tuple[str, float | None]  # (metric, value; None: does not apply)


def step_metrics(
    outcomes: Sequence[Outcome], update_metrics: Mapping[str, float], method: Method
) -> dict[str, Any]:
    """Return a step's metrics by name, from its episodes, its update and the method's state.

    Facts, rewards and completion lengths are means: over the episodes, and over the samples of each
    role (and of each policy, if there are several). What an oracle says for a role does not count.
    """
    policies = method.policies
    has_several_policies = len(policies) > 1
    by_role: list[NamedNumber] = []
    by_owner: list[NamedNumber] = []
    samples_of_role: Counter[str] = Counter()
    generated_tokens = 0
    for outcome in outcomes:
        generated_tokens += outcome.generated
        for sample in outcome.samples:
            if sample.policy not in policies:
                continue
            samples_of_role[sample.role] += 1
            numbers_of_role = _rewards_and_length(sample, sample.role)
            by_role += numbers_of_role
            by_owner += numbers_of_role
            if has_several_policies:
                by_owner += _rewards_and_length(sample, sample.policy)

    facts = record.means(_numeric_facts(outcomes))
    metrics: dict[str, Any] = dict(update_metrics)
    metrics |= record.means(by_owner)
    metrics |= diagnostics.spreads(by_role)
    metrics["generated"] = generated_tokens
    for role, count in samples_of_role.items():
        metrics[f"samples/{role}"] = count
    for name, pool in method.pools.items():
        metrics[f"pool/{name}"] = len(pool)
    with explained("measure"):
        measured = method.measure()
    _check_names("observe", facts, metrics, method)
    _check_names("measure", measured, metrics, method)
    return facts | metrics | measured


def _check_names(
    hook: str, named: Mapping[str, Any], metrics: Mapping[str, Any], method: Method
) -> None:
    """Raise MethodError if a hook returns a number under a name that the run records itself."""
    taken = [name for name in named if name in metrics or name in RESERVED]
    if taken:
        raise MethodError(
            f"{hook} of {type(method).__name__} returns {', '.join(taken)}, which the run records "
            "itself: choose another name"
        )


def _numeric_facts(outcomes: Sequence[Outcome]) -> Iterator[NamedNumber]:
    for outcome in outcomes:
        for name, value in outcome.facts.items():
            if isinstance(value, np.generic):  # a scalar of numpy
                value = value.item()
            if isinstance(value, (int, float)):
                yield name, value


def _rewards_and_length(sample: Sample, owner: str) -> list[NamedNumber]:
    """Return a sample's reward per segment and its length, as metrics of a role or policy."""
    numbers: list[NamedNumber] = []
    for segment, reward in segments(sample).items():
        name = f"reward/{owner}"
        if segment:
            name += f"/{segment}"
        numbers.append((name, reward))
    for part, value in sample.parts.items():
        numbers.append((f"part/{owner}/{part}", value))
    length = len(sample.reply.completion_ids)
    numbers.append((f"length/{owner}", length))
    return numbers
