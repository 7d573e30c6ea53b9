"""Which mechanisms of a run acted, judged by its metrics.

A reward that never varies teaches nothing. A filter that passes everything or nothing selects
nothing, so leaving it out of a run shows nothing either.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

# A mechanism that acts in a smaller share of the steps is called idle.
MIN_ACTIVITY = 0.2
# The run warns after this number of consecutive steps in which no reward varied.
PATIENCE = 10
# Prefix of a metric: the standard deviation of a role's rewards within a step.
SPREAD = "spread/"
EPSILON = 1e-9

Metrics = Mapping[str, Any]  # of one step
Rows = Sequence[Metrics]


@dataclass(frozen=True)
class HalfMeans:
    """Means of a metric over the first and the second half of a run."""

    first: float
    second: float

    def __str__(self) -> str:
        return f"{self.first:.3f}, {self.second:.3f}"


def spreads(numbers: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    """Return the population standard deviation of each reward, named spread/ROLE[/SEGMENT].

    `numbers` holds (metric, value); metrics other than reward/ROLE[/SEGMENT] are ignored, and so
    are rewards of None.
    """
    rewards_of_owner: dict[str, list[float]] = defaultdict(list)
    for name, value in numbers:
        if name.startswith("reward/") and value is not None:
            owner = name.removeprefix("reward/")
            rewards_of_owner[owner].append(value)
    spread_by_name = {}
    for owner, rewards in rewards_of_owner.items():
        spread_by_name[SPREAD + owner] = pstdev(rewards)
    return spread_by_name


def has_no_signal(metrics: Metrics) -> bool:
    """Whether no role's reward varied in a step."""
    has_varied = []
    for name, value in metrics.items():
        if name.startswith(SPREAD):
            has_varied.append(value > EPSILON)
    return not any(has_varied)


def activity(rows: Rows, filters: Mapping[str, str]) -> dict[str, float]:
    """Return the share of the steps in which each mechanism acted, by its readable name.

    `filters` is {name of a filter: the metric that is the share it lets pass}. A filter acts where
    that share is neither 0 nor 1, a reward where it varies. Steps without the metric do not count.
    """
    shares = {}
    for metric in _spread_metrics(rows):
        spread_of_steps = _values(rows, metric)
        acted = [spread > EPSILON for spread in spread_of_steps]
        if acted:
            label = metric.removeprefix(SPREAD).replace("/", ", ")
            shares[f"reward of {label}"] = acted.count(True) / len(acted)
    for name, metric in filters.items():
        passed_of_steps = _values(rows, metric)
        acted = [EPSILON < passed < 1 - EPSILON for passed in passed_of_steps]
        if acted:
            shares[name] = acted.count(True) / len(acted)
    return shares


def warnings(shares: Mapping[str, float], rows: Rows, role: str) -> list[str]:
    """Return a line for each idle mechanism, and one if the reward misleads the solver, `role`.

    It does if the solver's reward rises from the first to the second half of the run while its
    accuracy on the validation split falls.
    """
    lines = []
    for name, share in shares.items():
        if share < MIN_ACTIVITY:
            lines.append(f"idle: {name} acted in {share:.0%} of the steps")
    reward = _half_means(rows, f"reward/{role}")
    accuracy = _half_means(rows, "validation")
    if reward is None or accuracy is None:
        return lines
    if reward.second > reward.first and accuracy.second < accuracy.first:
        lines.append(
            f"{role} is rewarded more in the second half ({reward}) "
            f"and correct less often ({accuracy} of validation)"
        )
    return lines


def _spread_metrics(rows: Rows) -> list[str]:
    """Return the names of all spread metrics, sorted."""
    names: set[str] = set()
    for row in rows:
        names |= row.keys()
    return sorted(name for name in names if name.startswith(SPREAD))


def _values(rows: Rows, metric: str) -> list[float]:
    """Return a metric of the steps that have it."""
    return [row[metric] for row in rows if row.get(metric) is not None]


def _half_means(rows: Rows, metric: str) -> HalfMeans | None:
    """Return the means over the halves of the steps with a metric; None with fewer than two."""
    values = _values(rows, metric)
    middle = len(values) // 2
    if middle == 0:
        return None
    first_half = values[:middle]
    second_half = values[middle:]
    return HalfMeans(fmean(first_half), fmean(second_half))
