"""The names of lines, written beside their ends in the place of a legend."""

from itertools import pairwise
from textwrap import fill

import numpy as np
import scipy.optimize
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

NAME_SIZE = 10.5  # points
LINE_HEIGHT = 1.3  # of a line of text, relative to its size
# Names are narrow, so that a panel has most of its column.
LABEL_WIDTH = 13  # characters
LABEL_START = 1.05  # of the width of the panel


def name_ends(ax: Axes) -> None:
    """Write the name of every line beside its end, apart from the other names.

    Limits and scales of the axes have to be final. Lines without a name are left out.
    """
    ax.get_ylim()  # settles the limits, which matplotlib leaves open until they are asked for
    ends = []
    for line in ax.lines:
        name = str(line.get_label())
        if name and not name.startswith("_"):
            end = (line.get_xdata()[-1], line.get_ydata()[-1])
            _, height = ax.transAxes.inverted().transform(ax.transData.transform(end))
            ends.append((height, end, line))
    ends.sort(key=lambda end: end[0])
    names = [_label(line) for _, _, line in ends]
    axes_points = ax.get_window_extent().height * 72 / ax.figure.dpi
    sizes = []
    for name in names:
        lines_of_text = 1 + name.count("\n")
        sizes.append(LINE_HEIGHT * lines_of_text * NAME_SIZE / axes_points)
    gaps = [(below + above) / 2 for below, above in pairwise(sizes)]
    heights = np.array([height for height, _, _ in ends])
    places = apart(heights, gaps) if ends else []
    for name, place, (_, end, line) in zip(names, places, ends, strict=True):
        ax.annotate(
            name,
            end,
            (LABEL_START, place),
            textcoords="axes fraction",
            va="center",
            fontsize=NAME_SIZE,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": line.get_color(),
                "linestyle": line.get_linestyle(),
                "linewidth": 1.8,
                "shrinkA": 1,
                "shrinkB": 0,
            },
        )


def _label(line: Line2D) -> str:
    """Return the name of a line, in lines of text of LABEL_WIDTH."""
    return fill(str(line.get_label()), LABEL_WIDTH, break_on_hyphens=False)


def apart(heights: np.ndarray, gaps: ArrayLike) -> list[float]:
    """Return the nearest heights, in squares, that are at least some gaps apart; both rise.

    `gaps` is one for all neighbours, or has one for each pair of them.
    """
    between = np.broadcast_to(gaps, len(heights) - 1)
    offsets = np.concatenate([[0.0], np.cumsum(between)])
    never_falling = scipy.optimize.isotonic_regression(heights - offsets).x
    return list(never_falling + offsets)
