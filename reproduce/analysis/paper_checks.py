"""Checks of a paper's printed tables against their own cells; no run is read."""

import pandas as pd

from reproduce.analysis import tables
from reproduce.analysis.scores import Spec

TOLERANCE = (
    0.001  # a printed change that differs by more does not follow from its cells
)


def printed_cells(spec: Spec) -> pd.DataFrame:
    """Return the cells of a paper's table, with those of the table behind it, if any."""
    cells = tables.paper_numbers(spec.table)
    if not spec.behind:
        return cells
    behind = tables.paper_numbers(spec.behind)
    return pd.concat([cells.replace({"method": spec.cells_of}), behind])


def recomputed_averages(spec: Spec) -> pd.DataFrame:
    """Return every printed average beside the mean of its cells, for all backbones."""
    cells = printed_cells(spec)
    order = list(cells["benchmark"].unique())
    columns_of = {}
    for name in spec.shown_averages:
        unmatched = spec.unmatched.get(name, [])
        columns = spec.layout.columns_of(name) + list(unmatched)
        columns_of[name] = sorted(columns, key=order.index)
    if "Overall Avg" in order:  # as SPICE's averages spell it
        columns_of["Overall Avg"] = columns_of.pop("Overall")
    is_percent = cells["metric"].str.contains("_pct")
    return tables.recomputed_averages(cells[is_percent], columns_of)


def recomputed_changes(spec: Spec) -> pd.DataFrame:
    """Return every printed change over the table's first row, beside that of its cells.

    Empty for a paper that prints no changes.
    """
    cells = printed_cells(spec)
    changes = cells[cells["metric"] == "delta_printed"]
    accuracies = cells[cells["metric"] == "accuracy_pct"]
    keys = ["setup", "benchmark"]
    is_first_row = accuracies["method"] == spec.first_label
    start = accuracies[is_first_row]
    frame = changes.merge(
        accuracies,
        on=[*keys, "method"],
        suffixes=("", "_cell"),
    )
    frame = frame.merge(
        start.drop(columns="method"),
        on=keys,
        suffixes=("", "_start"),
    )
    cell = frame["value_cell"].astype(float)
    cell_of_first_row = frame["value_start"].astype(float)
    return pd.DataFrame(
        {
            "setup": frame["setup"],
            "benchmark": frame["benchmark"],
            "method": frame["method"],
            "printed": frame["value"].astype(float),
            "recomputed": (cell - cell_of_first_row).round(2),
        }
    )


def differing(changes: pd.DataFrame) -> pd.DataFrame:
    """Return the recomputed changes that differ from the printed ones."""
    error = changes["recomputed"] - changes["printed"]
    is_different = error.abs() > TOLERANCE
    return changes[is_different]


def oddities(spec: Spec, mismatches: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of mismatches.csv about a table or about the paper's headline."""
    number = spec.table.split("_")[1]
    is_paper = mismatches["paper"] == spec.paper
    is_table = mismatches["where"].str.contains(f"{number}|headline")
    return mismatches[is_paper & is_table].drop(columns="paper")
