"""Which mechanisms of a method acted, and what its runs warned of."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from coevolve.training import diagnostics
from reproduce.analysis import standins


def acted_table(
    folder: Path, runs: standins.Runs, names: Sequence[str]
) -> pd.DataFrame:
    """Return, per run and mechanism, how much it acted, averaged over seeds.

    A reward acts on a share of its samples, a filter in a share of the steps (see
    `diagnostics.activity`). A mechanism whose share is below a fifth is idle.
    """
    rows = []
    for run in names:
        for seed in runs[run]:
            acted = standins.summary(folder, run, seed)["acted"]
            for mechanism, share in acted.items():
                rows.append((run, mechanism, diagnostics.unit_of(mechanism), share))
    frame = pd.DataFrame(rows, columns=["run", "mechanism", "share of", "acted"])
    by_mechanism = frame.groupby(["run", "mechanism", "share of"], sort=False)
    table = by_mechanism["acted"].mean().reset_index()
    is_idle = table["acted"] < diagnostics.MIN_ACTIVITY
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
