"""Which mechanisms of a method acted, and what its runs warned of."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from coevolve.training import diagnostics
from reproduce.analysis import standins


def acted_table(
    folder: Path, runs: standins.Runs, names: Sequence[str]
) -> pd.DataFrame:
    """Return, per run and mechanism, the share of steps in which it acted, averaged over seeds.

    A mechanism that acts in less than a fifth of the steps is idle.
    """
    rows = []
    for run in names:
        for seed in runs[run]:
            acted = standins.summary(folder, run, seed)["acted"]
            for mechanism, share in acted.items():
                rows.append((run, mechanism, share))
    frame = pd.DataFrame(rows, columns=["run", "mechanism", "share of steps"])
    by_mechanism = frame.groupby(["run", "mechanism"], sort=False)
    table = by_mechanism["share of steps"].mean().reset_index()
    is_idle = table["share of steps"] < diagnostics.MIN_ACTIVITY
    return table.assign(verdict=is_idle.map({True: "idle", False: "acts"}))


def warning_table(
    folder: Path, runs: standins.Runs, names: Sequence[str]
) -> pd.DataFrame:
    """Return the warnings of some runs, a row per line."""
    rows = []
    for run in names:
        for seed in runs[run]:
            warnings = standins.summary(folder, run, seed)["warnings"]
            rows += [(run, seed, line) for line in warnings]
    return pd.DataFrame(rows, columns=["run", "seed", "warning"])
