"""Tables in Markdown, and a difference in words, for the blocks of numbers in README and docs."""

from collections.abc import Iterable, Sequence

import pandas as pd


def markdown(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a table."""
    rule = "|---" * len(head) + "|"
    return "\n".join([line(head), rule, *map(line, rows)])


def line(cells: Iterable[object]) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(map(str, cells))} |"


def points(value: float, low: float, high: float) -> str:
    """Return a difference in points with its limits, if it has any; "not run" for nan."""
    if pd.isna(value):
        return "not run"
    if pd.isna(low):
        return f"{value:+.1f}"
    return f"{value:+.1f} [{low:+.1f}, {high:+.1f}]"
