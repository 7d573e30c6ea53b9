"""Which mechanisms of a method acted."""

from collections.abc import Sequence

import pandas as pd

from coevolve.training import diagnostics
from reproduce.analysis.evidence import Evidence

KEYS = ["run", "mechanism", "share of"]
WORDS = {  # by whether a mechanism is idle
    True: "idle",
    False: "acts",
}


def acted_table(evidence: Evidence, runs: Sequence[str]) -> pd.DataFrame:
    """Return, per run and mechanism, how much it acted, averaged over seeds.

    A reward acts on a share of its samples, a filter in a share of the steps (see
    `diagnostics.activity`). A mechanism whose share is below a fifth is idle.
    """
    rows = []
    for run in runs:
        for summary in evidence.summaries(run):
            for mechanism, share in summary.acted.items():
                unit = diagnostics.unit_of(mechanism)
                rows.append((run, mechanism, unit, share))
    frame = pd.DataFrame(rows, columns=[*KEYS, "acted"])
    by_mechanism = frame.groupby(KEYS, sort=False)
    means = by_mechanism["acted"].mean()
    table = means.reset_index()
    is_idle = table["acted"] < diagnostics.MIN_ACTIVITY
    verdict = is_idle.map(WORDS)
    return table.assign(verdict=verdict)
