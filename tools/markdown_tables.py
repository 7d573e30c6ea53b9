"""Tables in Markdown, and a difference in words, for the blocks of numbers in README and docs."""

from collections.abc import Iterable, Sequence

import pandas as pd

RULE = "---"


def markdown(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a table."""
    lines = [
        line(head),
        "|" + f"{RULE}|" * len(head),
    ]
    for row in rows:
        lines.append(line(row))
    return "\n".join(lines)


def line(cells: Iterable[object]) -> str:
    """Return a line of a table."""
    texts = [str(cell) for cell in cells]
    inner = " | ".join(texts)
    return f"| {inner} |"


def points(value: float, low: float, high: float) -> str:
    """Return a difference in points with its limits, if it has any.

    A value of nan gives "not run", and a limit of nan no limits.
    """
    if pd.isna(value):
        return "not run"
    difference = f"{value:+.1f}"
    if pd.isna(low):
        return difference
    return f"{difference} [{low:+.1f}, {high:+.1f}]"
