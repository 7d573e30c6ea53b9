"""Which mechanisms of a run acted, judged by its metrics.

A reward acts on the samples to which it gives an advantage, because only these move the policy. A
filter that passes everything or nothing selects nothing, so leaving it out shows nothing either.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

from coevolve.advantages.used import USED

# A reward that acts on a smaller share of its samples is called idle, and so is a filter that acts
# in a smaller share of the steps.
MIN_ACTIVITY = 0.2
# The run warns after this number of consecutive steps in which no sample had an advantage.
PATIENCE = 10
# A run that begins with fewer correct answers has little to lose.
MIN_CORRECT = 10
# Prefix of a metric: the standard deviation of a role's rewards within a step.
SPREAD = "spread/"
REWARD_OF = "reward of "  # begins the readable name of a reward
# Ends the line about an idle mechanism, which otherwise reads like a run that failed.
NO_ERROR = "this is no error, see docs/metrics.md#idle"
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
    """Whether no sample had an advantage in a step."""
    has_advantage = []
    for name, share in metrics.items():
        if name.startswith(USED):
            has_advantage.append(share > 0)
    return not any(has_advantage)


def activity(rows: Rows, filters: Mapping[str, str]) -> dict[str, float]:
    """Return how much each mechanism acted, from 0 to 1, by its readable name.

    For a reward that is the share of its samples with an advantage, a mean over the steps (see
    `advantages.used`). For a filter it is the share of the steps in which it let some candidates
    pass and others not; `filters` is {name of a filter: the metric that is the share it lets pass}.
    Steps without the metric do not count.
    """
    shares = {}
    for metric in _used_metrics(rows):
        label = metric.removeprefix(USED).replace("/", ", ")
        shares[REWARD_OF + label] = fmean(_values(rows, metric))
    for name, metric in filters.items():
        passed_of_steps = _values(rows, metric)
        acted = [EPSILON < passed < 1 - EPSILON for passed in passed_of_steps]
        if acted:
            shares[name] = acted.count(True) / len(acted)
    return shares


def warnings(shares: Mapping[str, float], rows: Rows, role: str) -> list[str]:
    """Return a line for each idle mechanism, and one if the reward misleads the solver, `role`.

    It does if the solver's reward rises from the first to the second half of the run while its
    accuracy on the validation split falls. Another line warns of steps without any reward.
    """
    lines = []
    played = [row for row in rows if "generated" in row]
    if played and not any(name.startswith(USED) for row in played for name in row):
        lines.append(
            "warning: no reply earned a reward in any step, so nothing was learnt"
        )
    for name, share in shares.items():
        if share < MIN_ACTIVITY:
            lines.append(f"warning: {idle(name, share)}")
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


def collapse(
    before: Mapping[str, int], after: Mapping[str, int], learning_rate: float
) -> list[str]:
    """Return a line if a run ends far below its start, else nothing.

    `before` and `after` are counts of correct (k) and of scored (n) test questions. Far below is
    less than half of an accuracy that was not near zero.
    """
    if before["k"] < MIN_CORRECT or not after["n"]:
        return []
    accuracy_before = before["k"] / before["n"]
    accuracy_after = after["k"] / after["n"]
    if accuracy_after >= accuracy_before / 2:
        return []
    return [
        f"the run collapsed: {after['k']} of {after['n']} test questions are right after training, "
        f"{before['k']} of {before['n']} before; lower learning_rate, which is {learning_rate:g}"
    ]


def unit_of(mechanism: str) -> str:
    """Return what the share of a mechanism of `activity` is a share of: samples or steps."""
    return "samples" if mechanism.startswith(REWARD_OF) else "steps"


def described(mechanism: str, share: float) -> str:
    """Say how much a mechanism of `activity` acted."""
    unit = unit_of(mechanism)
    return f"{mechanism} acted in {_percent(share)} of the {unit}"


def _percent(share: float) -> str:
    """Return a share in percent, with one more digit where none would be left."""
    return f"{share:.1%}" if 0 < share < 0.01 else f"{share:.0%}"


def idle(mechanism: str, share: float) -> str:
    """Say that a mechanism of `activity` is idle, and what that means."""
    unit = unit_of(mechanism)
    if unit == "steps":
        return (
            f"{mechanism} passed some candidates and rejected others in {_percent(share)} of the "
            f"steps, so it had almost no effect; {NO_ERROR}"
        )
    return (
        f"{mechanism} gave an advantage to {_percent(share)} of its samples, "
        f"so almost nothing was learnt from it; {NO_ERROR}"
    )


def _used_metrics(rows: Rows) -> list[str]:
    """Return the names of the metrics of all rewards' samples, sorted."""
    names: set[str] = set()
    for row in rows:
        names |= row.keys()
    return sorted(name for name in names if name.startswith(USED))


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
