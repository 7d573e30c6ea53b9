"""Compare two trees of results: every CSV file, cell by cell, within a tolerance.

Knows text and numbers; does not know what the columns mean.
"""

from pathlib import Path

from reproduce import UserError


def trees(first: Path, second: Path, tolerance: float) -> list[str]:
    """List all differences of two folders, one line each; hidden folders are work in progress and left out."""
    old, new = names(first), names(second)
    lost = [f"{name}: only in the {'first' if name in old else 'second'} tree" for name in sorted(old ^ new)]
    pairs = [(name, first / name, second / name) for name in sorted(old & new)]
    return lost + [line for pair in pairs for line in differences(*pair, tolerance)]


def names(folder: Path) -> set[str]:
    """List the CSV files below a folder."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder")
    files = {str(file.relative_to(folder)) for file in folder.rglob("*.csv")}
    return {name for name in files if "/." not in f"/{name}"}


def differences(name: str, first: Path, second: Path, tolerance: float) -> list[str]:
    """List the cells in which two tables differ; numbers are equal within the tolerance, relative or absolute."""
    import numpy as np
    import pandas as pd

    old, new = (pd.read_csv(path, dtype=str, keep_default_na=False) for path in (first, second))
    if [*old] != [*new]:
        return [f"{name}: columns {', '.join(old)} -> {', '.join(new)}"]
    if len(old) != len(new):
        return [f"{name}: {len(old)} -> {len(new)} rows"]
    numbers = (frame.apply(pd.to_numeric, errors="coerce").astype(float) for frame in (old, new))
    differ = (old != new) & ~np.isclose(*numbers, rtol=tolerance, atol=tolerance)
    return [
        f"{name}: row {row + 1} ({old.iat[row, 0]}), {old.columns[column]}: "
        f"{old.iat[row, column]} -> {new.iat[row, column]}"
        for row, column in np.argwhere(differ.to_numpy())
    ]
