"""Which mechanisms of a run acted: rewards that varied, gates that neither let everything pass nor stopped everything.

Reads a run's metrics. What never varies teaches nothing, and leaving it out shows nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any

LEAST = 0.2  # share of the steps in which a mechanism must act, or it is called idle
SILENCE = 10  # steps in a row without any reward that varies, after which a run says so
SPREAD = "spread/"  # metric: standard deviation of what a role earned in a step


def spreads(earned: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    """Return the population standard deviation of the rewards of each name reward/ROLE[/SEGMENT], as spread/..."""
    known: dict[str, list[float]] = {}
    for name, number in earned:
        if name.startswith("reward/") and number is not None:
            known.setdefault(SPREAD + name.removeprefix("reward/"), []).append(number)
    return {name: pstdev(numbers) for name, numbers in known.items()}


def silent(metrics: Mapping[str, Any]) -> bool:
    """Whether no role's reward varied in a step."""
    return not any(value > 1e-9 for name, value in metrics.items() if name.startswith(SPREAD))


def acted(rows: Sequence[Mapping[str, Any]], gates: Mapping[str, str]) -> dict[str, float]:
    """Return the share of the steps in which each mechanism acted, by its name in words.

    A reward acts where it varies. A gate, of `gates` {name: metric}, acts where its metric, the share that passes, is
    neither 0 nor 1. A step in which a mechanism had nothing to act on does not count.
    """
    paid = sorted({name for row in rows for name in row if name.startswith(SPREAD)})
    named = {f"reward of {name.removeprefix(SPREAD).replace('/', ', ')}": name for name in paid} | dict(gates)
    shares = {}
    for words, metric in named.items():
        values = [row[metric] for row in rows if row.get(metric) is not None]
        acting = [value > 1e-9 and (metric in paid or value < 1 - 1e-9) for value in values]
        if acting:
            shares[words] = sum(acting) / len(acting)
    return shares


def warnings(shares: Mapping[str, float], rows: Sequence[Mapping[str, Any]], role: str) -> list[str]:
    """Return a line for each idle mechanism, and one when the solver, `role`, earns more while it is right less."""
    lines = [f"idle: {name} acted in {share:.0%} of the steps" for name, share in shares.items() if share < LEAST]
    paid, right = (_halves(rows, metric) for metric in (f"reward/{role}", "validation"))
    if paid and right and paid[1] > paid[0] and right[1] < right[0]:
        told = f"{role} is paid more in the second half ({paid[0]:.3f}, {paid[1]:.3f})"
        lines.append(f"{told} and right less often ({right[0]:.3f}, {right[1]:.3f} of validation)")
    return lines


def _halves(rows: Sequence[Mapping[str, Any]], metric: str) -> tuple[float, float] | None:
    """Return a metric's mean in the first and in the second half of its steps; None with fewer than two."""
    values = [row[metric] for row in rows if row.get(metric) is not None]
    middle = len(values) // 2
    return (fmean(values[:middle]), fmean(values[middle:])) if middle else None
