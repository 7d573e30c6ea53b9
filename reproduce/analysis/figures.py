"""Figures in the house style, saved as PNG and as SVG whose bytes repeat.

Draws curves, bars and role diagrams. A figure is a view of a frame; this module does not know
where the frame's numbers come from.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from textwrap import fill, wrap

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.offsetbox import AnnotationBbox, TextArea, VPacker
from matplotlib.patches import FancyArrowPatch, Patch
from matplotlib.transforms import Bbox

from coevolve.runs.show import visible
from coevolve.types import Role

# Seaborn's colour-blind palette, then five of Paul Tol's colours. Dashes tell curves apart where
# colours do not.
SEABORN = sns.color_palette("colorblind").as_hex()
TOL = ["#332288", "#882255", "#999933", "#117733", "#44aa99"]
COLOURS = [*SEABORN, *TOL]
METHODS = [
    "mae",
    "sage",
    "comas",
    "conl",
    "spice",
    "r-zero",
    "azr",
    "base",
    "sft",
    "ttrl",
    "strong_challenger",
    "srlm",
    "srt",
    "maporl",
    "verifier",
]
METHOD_COLOURS = dict(zip(METHODS, COLOURS, strict=True))
ALIASES = {  # what the papers call a method: its key in METHOD_COLOURS
    "untrained": "base",
    "base model": "base",
    "absolute zero": "azr",
}
SOLID = {"facecolor": "#edf3f9", "edgecolor": COLOURS[0], "linewidth": 1.5}
DASHED = {
    "facecolor": "white",
    "edgecolor": "0.45",
    "linewidth": 1.5,
    "linestyle": "--",
}
BELOW_AXES = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "ncols": 2}
MAX_NAMES_INSIDE = 3  # with more curves, the legend goes below the axes
Point = Sequence[float]  # x and y


def style() -> None:
    """Set the house style for every figure drawn from now on."""
    sns.set_theme(style="whitegrid", palette="colorblind", font="DejaVu Sans")
    plt.style.use(Path(__file__).with_suffix(".mplstyle"))


def plain(text: object) -> str:
    """Return text that matplotlib draws literally, with no mathematics and nothing hidden."""
    return visible(str(text)).replace("$", r"\$")


def palette(names: Iterable[str]) -> dict[str, str]:
    """Map every name to a colour: a method to its own, any other name to the next free one.

    Text in brackets, such as "(Ours)", and a second line do not count. The first of several
    variants of a method has the method's colour. The colours of the five papers are used last.
    """
    names = list(dict.fromkeys(names))
    chosen: dict[str, str] = {}
    for name in names:
        colour = METHOD_COLOURS.get(_method_key(name))
        if colour and colour not in chosen.values():
            chosen[name] = colour
    free = [colour for colour in reversed(COLOURS) if colour not in chosen.values()]
    free = free or COLOURS
    others = [name for name in names if name not in chosen]
    for number, name in enumerate(others):
        chosen[name] = free[number % len(free)]
    return chosen


def _method_key(name: str) -> str:
    first_line, *_ = name.lower().split("\n")
    method = first_line.partition(" (")[0]
    return ALIASES.get(method, method)


def curve(
    frame: pd.DataFrame,
    x: str,
    y: str,
    hue: str | None = "method",
    ax: Axes | None = None,
    **labels: str,
) -> Axes:
    """Draw the mean of `y` over `x`, a line per `hue`, with a band from lowest to highest seed.

    Rows with equal x and hue are seeds; rows without a y are left out. `labels` are title, xlabel
    and ylabel. Raises ValueError if no row has a y.
    """
    frame = frame.dropna(subset=[y])
    if frame.empty:
        raise ValueError(f"y: the frame has no values of {y!r} to draw")
    if ax is None:
        _, ax = plt.subplots()
    look: dict[str, object] = {"color": COLOURS[0]}
    names: Sequence[str] = ()
    if hue is not None:
        frame = frame.assign(**{hue: frame[hue].map(plain)})
        names = frame[hue].unique()
        look = {"hue": hue, "style": hue, "palette": palette(names)}
    sns.lineplot(frame, x=x, y=y, errorbar=("pi", 100), ax=ax, **look)
    if hue is not None:
        place = BELOW_AXES if len(names) > MAX_NAMES_INSIDE else {}
        ax.legend(title=None, **place)
    return _labelled(ax, {"xlabel": x, "ylabel": y} | labels)


def bars(table: pd.DataFrame, ax: Axes, **labels: str) -> Axes:
    """Draw a horizontal bar per method: its accuracy with limits, as `accuracy_table` has them.

    A diamond marks what the paper prints (column `paper`), if it prints anything.
    """
    names = [plain(name) for name in table["method"]]
    colours = palette(names)
    accuracy = table["accuracy"]
    limits = table[["low", "high"]]
    distances = limits.sub(accuracy, axis=0).abs()
    ax.barh(
        names,
        accuracy,
        xerr=distances.to_numpy().T,
        capsize=4,
        height=0.7,
        color=[colours[name] for name in names],
    )
    ax.plot(
        table["paper"],
        names,
        "D",
        color="black",
        markersize=6,
        label="printed by the paper",
    )
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(visible=False, axis="y")
    return _labelled(ax, {"xlabel": "accuracy, %", "ylabel": ""} | labels)


def _labelled(ax: Axes, labels: dict[str, str]) -> Axes:
    ax.set(**{name: plain(label) for name, label in labels.items()})
    return ax


def save_figure(fig: Figure, out: Path) -> None:
    """Write figure.png (150 dpi) and figure.svg to the folder `out`.

    Equal figures give equal bytes.
    """
    out.mkdir(parents=True, exist_ok=True)
    undated = {"Date": None, "Creator": None}
    with mpl.rc_context({"svg.hashsalt": "coevolve"}):
        fig.savefig(
            out / "figure.png",
            dpi=150,
            bbox_inches="tight",
            metadata={"Software": None},
        )
        fig.savefig(out / "figure.svg", bbox_inches="tight", metadata=undated)


@dataclass(frozen=True)
class Edge:
    """An arrow of a diagram, from one box to another, with what it passes.

    `bend` are the corners that it goes by, `at` is the place of the label, where it is not the
    usual one. Both are in hundredths of the width.
    """

    source: str
    target: str
    label: str
    bend: Sequence[Point] = ()
    at: Point = ()


def diagram(
    title: str,
    caption: str,
    places: Mapping[str, Point],
    roles: Mapping[str, Role],
    edges: Sequence[Edge],
) -> Figure:
    """Draw who passes what to whom, large enough to be read in a column of 8 cm.

    `places` are the boxes' centres (x, y) in hundredths of the width, from the lower left. The box
    of a name in `roles` shows what that role's prompt reads; every other box, such as a pool or a
    verifier, is dashed.

    An arrow goes level or upright from box to corner to box, wherever these face each other. The
    label is at the middle of the first line: on an upright one, above a level one. Where two boxes
    exchange something, each arrow has a line of its own, with the label below a level one to the
    left, and on an upright one nearer to the sender.
    """
    height = max(y for _, y in places.values()) + 12
    fig = plt.figure(figsize=(6.1, 0.061 * height))
    ax = fig.add_axes((0, 0, 1, 1), xlim=(0, 100), ylim=(0, height))
    ax.axis("off")
    boxes = {}
    for name, centre in places.items():
        boxes[name] = _draw_box(ax, centre, name, roles.get(name))
    directions = {(edge.source, edge.target) for edge in edges}
    for edge in edges:
        is_paired = (edge.target, edge.source) in directions
        _draw_arrow(ax, boxes, edge, is_paired)
    ax.set_title(plain(title), loc="left", weight="bold")
    _draw_key(ax, caption)
    return fig


def _draw_key(ax: Axes, caption: str) -> None:
    role = Patch(**SOLID, label="role, and what it reads")
    data = Patch(**DASHED, label="data or a rule")
    ax.legend(
        handles=[role, data],
        ncols=2,
        title=fill(plain(caption), 66),
        loc="upper left",
        bbox_to_anchor=(0, -0.02),
        alignment="left",
        borderpad=0,
        borderaxespad=0,
    )


def _draw_box(ax: Axes, centre: Point, name: str, role: Role | None) -> Bbox:
    """Draw a box and return its limits."""
    heading = {"weight": "bold" if role else "normal", "multialignment": "center"}
    lines = [TextArea(plain(name), textprops=heading)]
    if role is not None:
        fields = ", ".join(sorted(role.fields))
        lines += [TextArea(plain(line)) for line in wrap(f"reads {fields}", 13)]
    text = VPacker(children=lines, align="center", sep=2)
    frame = SOLID if role else DASHED
    look = {"boxstyle": "round,pad=0.4", **frame}
    box = ax.add_artist(AnnotationBbox(text, centre, bboxprops=look))
    to_data = ax.transData.inverted()
    return box.get_window_extent().transformed(to_data)


def _draw_arrow(
    ax: Axes, boxes: Mapping[str, Bbox], edge: Edge, is_paired: bool
) -> None:
    corners = [Bbox([corner, corner]) for corner in edge.bend]
    stops = [boxes[edge.source], *corners, boxes[edge.target]]
    lines = [_line(start, end, is_paired) for start, end in pairwise(stops)]
    first_point, second_point = lines[0]
    points = [first_point]
    points += [end for _, end in lines]
    arrow = FancyArrowPatch(
        path=mpl.path.Path(points),
        arrowstyle="-|>",
        mutation_scale=12,
        color="0.3",
        linewidth=1.2,
    )
    ax.add_patch(arrow)
    x_direction = int(np.sign(second_point[0] - first_point[0]))  # 0 if upright
    # 1: label above, -1: below, 0: on it.
    side = x_direction if is_paired else abs(x_direction)
    at = edge.at
    if not at:
        fraction = 0.35 if is_paired and x_direction == 0 else 0.5
        at = first_point + fraction * (second_point - first_point) + (0, side)
    alignment = {0: "center", 1: "bottom", -1: "top"}
    ax.text(
        *at,
        plain(edge.label),
        ha="center",
        va=alignment[side],
        bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"},
    )


def _line(start: Bbox, end: Bbox, is_paired: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return both ends of the level or upright line between two boxes.

    Along the axis on which the boxes overlap, the line runs in the middle of the overlap, or at a
    quarter of it if two opposite lines share it. Along the other axis it spans the gap.
    """
    low = np.maximum(start.min, end.min)
    high = np.minimum(start.max, end.max)
    overlaps = low <= high  # along x, along y
    is_forward = end.max > start.max
    fraction = 0.5
    if is_paired:  # the direction along one axis decides the place along the other
        fraction = np.where(is_forward[::-1], 0.75, 0.25)
    lane = low + (high - low) * fraction
    near_edge = np.where(is_forward, high, low)
    far_edge = np.where(is_forward, low, high)
    return np.where(overlaps, lane, near_edge), np.where(overlaps, lane, far_edge)
