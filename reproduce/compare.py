"""Compare two trees of results: every CSV file, cell by cell, within a tolerance.

Knows text and numbers; does not know what the columns mean.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from reproduce import UserError

if TYPE_CHECKING:
    import pandas as pd


def compare_trees(first: Path, second: Path, tolerance: float) -> list[str]:
    """List all differences of two folders, one line each.

    Hidden folders are left out: they hold unfinished work. Raises UserError if either path is not
    a folder.
    """
    old_names = csv_files(first)
    new_names = csv_files(second)
    lines = []
    for name in sorted(old_names ^ new_names):
        side = "first" if name in old_names else "second"
        lines.append(f"{name}: only in the {side} tree")
    for name in sorted(old_names & new_names):
        lines += compare_tables(name, first / name, second / name, tolerance)
    return lines


def csv_files(folder: Path) -> set[str]:
    """List the CSV files below a folder, hidden folders left out, as paths relative to it."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder")
    names = set()
    for file in folder.rglob("*.csv"):
        path = file.relative_to(folder)
        is_hidden = any(part.startswith(".") for part in path.parts)
        if not is_hidden:
            names.add(str(path))
    return names


def compare_tables(name: str, first: Path, second: Path, tolerance: float) -> list[str]:
    """List the cells in which two tables differ; `name` begins each line.

    Numbers are equal if they differ by at most the tolerance, relative or absolute.
    """
    import numpy as np

    old = _read_as_text(first)
    new = _read_as_text(second)
    if list(old.columns) != list(new.columns):
        old_columns = ", ".join(old.columns)
        new_columns = ", ".join(new.columns)
        return [f"{name}: columns {old_columns} -> {new_columns}"]
    old_rows = len(old)
    new_rows = len(new)
    if old_rows != new_rows:
        return [f"{name}: {old_rows} -> {new_rows} rows"]
    is_close = np.isclose(
        _as_numbers(old),
        _as_numbers(new),
        rtol=tolerance,
        atol=tolerance,
    )
    has_changed = (old != new) & ~is_close
    lines = []
    for row, column in np.argwhere(has_changed.to_numpy()):
        label = old.iat[row, 0]
        column_name = old.columns[column]
        before = old.iat[row, column]
        after = new.iat[row, column]
        lines.append(
            f"{name}: row {row + 1} ({label}), {column_name}: {before} -> {after}"
        )
    return lines


def _read_as_text(path: Path) -> "pd.DataFrame":
    import pandas as pd

    return pd.read_csv(path, dtype=str, keep_default_na=False)


def _as_numbers(table: "pd.DataFrame") -> "pd.DataFrame":
    """Convert every cell to a float; text becomes NaN, which is close to nothing."""
    import pandas as pd

    return table.apply(pd.to_numeric, errors="coerce").astype(float)
