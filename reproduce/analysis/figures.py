"""Figures in the house style, saved as PNG and as SVG whose bytes repeat.

Draws curves, dots and role diagrams. A figure is a view of a frame; this module does not know
where the frame's numbers come from.
"""

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from string import ascii_lowercase
from textwrap import fill, wrap
from typing import Any

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
from reproduce.analysis.line_names import name_ends as name_ends

# Any two are told apart by normal and by colour-blind (deuteranope) eyes, at a distance of 12 or
# more in CAM02-UCS. All show on a light and on a dark page. The first five belong to the papers;
# variants take theirs from the end.
COLOURS = [
    "#0077aa",
    "#ff9900",
    "#886600",
    "#ff66bb",
    "#22aaff",
    "#ee99aa",
    "#aa7755",
    "#117777",
    "#ee88ee",
    "#ee8866",
    "#3399aa",
    "#aa7788",
    "#4477ff",
    "#447755",
    "#ff0000",
]
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
# Colours of the ground and of text, which an SVG changes on a dark page: name, on white, on black.
INK = ("ink", "#262626", "#e6eaf0")
SOFT = ("soft", "#737373", "#a2adbc")
GRID = ("grid", "#cccccc", "#3d4757")
PAPER = ("paper", "#ffffff", "#1b212b")
BOX = ("box", "#edf3f9", "#22344a")
THEME = (INK, SOFT, GRID, PAPER, BOX)
REWARD = "#d55e00"  # arrows that carry rewards
SOLID = {"facecolor": BOX[1], "edgecolor": COLOURS[0], "linewidth": 1.5}
DASHED = {
    "facecolor": PAPER[1],
    "edgecolor": SOFT[1],
    "linewidth": 1.5,
    "linestyle": "--",
}
BELOW_AXES = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "ncols": 2}
PANELS_PER_ROW = 2
PAGE_WIDTH = 10.0  # inches of a full row; a page shows it at 736 pixels or more
PANEL_WIDTH = 6.8  # inches of a figure of one panel
FEW_LOOKS = 12  # a curve of so few points shows each of them
DASHES = [
    (0, ()),
    (0, (5, 1.5)),
    (0, (1.5, 1.2)),
    (0, (5, 1.5, 1, 1.5)),
    (0, (3, 1, 1, 1, 1, 1)),
    (0, (8, 2)),
]
PRINTED = {  # the look of what a paper prints
    "marker": "D",
    "markersize": 6,
    "markerfacecolor": "none",
    "markeredgewidth": 1.5,
    "linestyle": ":",
    "linewidth": 1.2,
}
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


def panels(count: int, height: float = 3.4) -> tuple[Figure, list[Axes]]:
    """Return a figure with axes for some panels, at most two in a row.

    `height` is that of a row, in inches.
    """
    columns = min(count, PANELS_PER_ROW)
    rows = math.ceil(count / PANELS_PER_ROW)
    width = PANEL_WIDTH if count == 1 else PAGE_WIDTH
    fig, grid = plt.subplots(
        rows,
        columns,
        figsize=(width, height * rows),
        squeeze=False,
        layout="constrained",
    )
    axes = list(grid.flat)
    for unused in axes[count:]:
        unused.set_axis_off()
    return fig, axes[:count]


def letter(axes: Sequence[Axes]) -> None:
    """Put a, b, c, ... before the titles of several panels."""
    if len(axes) < 2:
        return
    for name, ax in zip(ascii_lowercase, axes, strict=False):
        title = ax.get_title(loc="left")
        ax.set_title(f"{name}   {title}", loc="left")


def curve(
    frame: pd.DataFrame,
    x: str,
    y: str,
    hue: str | None = "method",
    ax: Axes | None = None,
    ylim: tuple[float, float] | None = None,
    **labels: str,
) -> Axes:
    """Draw the mean of `y` over `x`, a line per `hue`, with a band from lowest to highest seed.

    Rows with equal x and hue are seeds; rows without a y are left out. Each of several lines has
    its name at its end. Curves of few points show them. `labels` are title, xlabel and ylabel.
    Raises ValueError if no row has a y.
    """
    frame = frame.dropna(subset=[y])
    if frame.empty:
        raise ValueError(f"y: the frame has no values of {y!r} to draw")
    if ax is None:
        _, ax = plt.subplots(layout="constrained")
    parts = {"": frame}
    if hue is not None:
        named = frame[hue].map(plain)
        parts = {name: frame[named == name] for name in named.unique()}
    colours = palette(parts)
    for number, (name, part) in enumerate(parts.items()):
        look = {
            "color": colours[name] if hue else COLOURS[0],
            "linestyle": DASHES[number % len(DASHES)],
            "label": name,
        }
        _draw_band(ax, part.groupby(x)[y], look)
    if ylim is not None:
        ax.set_ylim(*ylim)
    _labelled(ax, {"xlabel": x, "ylabel": y} | labels)
    if len(parts) > 1:
        name_ends(ax)
    return ax


def _draw_band(ax: Axes, values: Any, look: dict[str, Any]) -> None:
    """Draw the mean of values that are grouped by x, with a band from lowest to highest."""
    mean = values.mean()
    marker = "o" if len(mean) <= FEW_LOOKS else ""
    ax.plot(mean.index, mean, marker=marker, markersize=5, linewidth=1.8, **look)
    ax.fill_between(
        mean.index,
        values.min(),
        values.max(),
        color=look["color"],
        alpha=0.16,
        linewidth=0,
    )


def dots(table: pd.DataFrame, ax: Axes, **labels: str) -> Axes:
    """Draw a dot per method: its accuracy with limits, as `accuracy_table` has them.

    A diamond marks what the paper prints (column `paper`), if it prints anything. The axis shows
    the part of the scale where the numbers are.
    """
    names = [plain(name) for name in table["method"]]
    accuracy = table["accuracy"]
    limits = table[["low", "high"]]
    distances = limits.sub(accuracy, axis=0).abs()
    ax.errorbar(
        accuracy,
        names,
        xerr=distances.to_numpy().T,
        fmt="o",
        markersize=7,
        capsize=4,
        color=COLOURS[0],
        label="here, 95 % interval",
    )
    look = {**PRINTED, "linestyle": "", "color": INK[1]}
    ax.plot(table["paper"], names, **look, label="the paper")
    ax.set_ylim(len(names) - 0.5, -0.5)
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
    svg = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "coevolve"}):
        fig.savefig(
            out / "figure.png",
            dpi=150,
            bbox_inches="tight",
            metadata={"Software": None},
        )
        fig.savefig(
            svg,
            format="svg",
            bbox_inches="tight",
            transparent=True,
            metadata=undated,
        )
    (out / "figure.svg").write_text(with_themes(svg.getvalue()), "utf-8")


def with_themes(svg: str) -> str:
    """Return an SVG whose ground, grid and text follow the reader's light or dark theme."""
    light = []
    dark = []
    for name, on_white, on_black in THEME:
        svg = svg.replace(on_white, f"var(--{name})")
        light.append(f"--{name}:{on_white}")
        dark.append(f"--{name}:{on_black}")
    style = (
        f"<style>:root{{{';'.join(light)}}}"
        f"@media(prefers-color-scheme:dark){{:root{{{';'.join(dark)}}}}}</style>"
    )
    head, tag, rest = svg.partition(" <defs>")
    return f"{head} {style}\n{tag}{rest}"


@dataclass(frozen=True)
class Edge:
    """An arrow of a diagram, from one box to another, with what it passes.

    `bend` are the corners that it goes by, `at` is the place of the label, where it is not the
    usual one. Both are in hundredths of the width. `pays`: it passes a reward.
    """

    source: str
    target: str
    label: str
    bend: Sequence[Point] = ()
    at: Point = ()
    pays: bool = False


def diagram(
    title: str,
    caption: str,
    places: Mapping[str, Point],
    roles: Mapping[str, Role],
    edges: Sequence[Edge],
) -> Figure:
    """Draw who passes what to whom, large enough to be read in a column of 8 cm.

    Arrows that carry rewards have a colour of their own. Title and caption may be empty.

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
    _draw_key(ax, caption, has_rewards=any(edge.pays for edge in edges))
    return fig


def _draw_key(ax: Axes, caption: str, has_rewards: bool) -> None:
    handles = [
        Patch(**SOLID, label="role, and what it reads"),
        Patch(**DASHED, label="data or a rule"),
    ]
    if has_rewards:
        handles.append(Patch(color=REWARD, label="reward"))
    ax.legend(
        handles=handles,
        ncols=len(handles),
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
        color=REWARD if edge.pays else SOFT[1],
        linewidth=2 if edge.pays else 1.2,
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
        color=REWARD if edge.pays else INK[1],
        bbox={
            "boxstyle": "square,pad=0.1",
            "facecolor": PAPER[1],
            "edgecolor": "none",
        },
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
