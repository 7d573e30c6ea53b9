"""Figures in the house style, saved as PNG and as SVG whose bytes repeat.

Knows colours, curves, bars and role diagrams. A figure is a view of a frame; where the frame's numbers come
from is not known here.
"""

from collections.abc import Iterable, Mapping, Sequence
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

# The colour-blind palette of seaborn, then five of Paul Tol's; dashes tell curves apart where colours do not.
COLOURS = [*sns.color_palette("colorblind").as_hex(), "#332288", "#882255", "#999933", "#117733", "#44aa99"]
METHODS = "mae sage comas conl spice r-zero azr base sft ttrl strong_challenger srlm srt maporl verifier".split()
METHOD_COLOURS = dict(zip(METHODS, COLOURS, strict=True))
ALIASES = {"untrained": "base", "base model": "base", "absolute zero": "azr"}  # what the papers call them
SOLID = {"facecolor": "#edf3f9", "edgecolor": COLOURS[0], "linewidth": 1.5}
DASHED = {"facecolor": "white", "edgecolor": "0.45", "linewidth": 1.5, "linestyle": "--"}


def style() -> None:
    """Set the house style for every figure drawn from now on."""
    sns.set_theme(style="whitegrid", palette="colorblind", font="DejaVu Sans")
    plt.style.use(Path(__file__).with_suffix(".mplstyle"))


def plain(text: object) -> str:
    """Return text that matplotlib draws literally: no mathematics between dollar signs, nothing hidden."""
    return visible(str(text)).replace("$", r"\$")


def palette(names: Iterable[str]) -> dict[str, str]:
    """Give every name its colour: a method always its own, any other name the next one that is free.

    What stands in brackets, such as "(Ours)", or on a second line does not count. Of several variants of a method the
    first has its colour. The colours of the five papers are given away last.
    """
    chosen: dict[str, str] = {}
    for name in names:
        method = name.lower().partition("\n")[0].partition(" (")[0]
        colour = METHOD_COLOURS.get(ALIASES.get(method, method))
        if colour and colour not in chosen.values():
            chosen[name] = colour
    free = [colour for colour in reversed(COLOURS) if colour not in chosen.values()] or COLOURS
    others = [name for name in dict.fromkeys(names) if name not in chosen]
    return chosen | {name: free[i % len(free)] for i, name in enumerate(others)}


def curve(
    frame: pd.DataFrame, x: str, y: str, hue: str | None = "method", ax: Axes | None = None, **labels: str
) -> Axes:
    """Draw the mean of `y` over `x`, a line per `hue`, with a band from the lowest to the highest seed.

    Rows with equal x and hue are seeds; rows without a y are left out. `labels` are title, xlabel and ylabel.
    """
    drawn = frame.dropna(subset=[y])
    if drawn.empty:
        raise ValueError(f"y: the frame has no values of {y!r} to draw")
    ax = ax or plt.subplots()[1]
    look: dict[str, object] = {"color": COLOURS[0]}
    if hue is not None:
        drawn = drawn.assign(**{hue: drawn[hue].map(plain)})
        names = drawn[hue].unique()
        look = {"hue": hue, "style": hue, "palette": palette(names)}
    sns.lineplot(drawn, x=x, y=y, errorbar=("pi", 100), ax=ax, **look)
    if hue is not None:  # many curves leave no room for their names among them
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "ncols": 2}
        ax.legend(title=None, **(below if len(names) > 3 else {}))
    return _labelled(ax, {"xlabel": x, "ylabel": y} | labels)


def bars(table: pd.DataFrame, ax: Axes, **labels: str) -> Axes:
    """Draw a level bar per method: its accuracy with the limits low and high, as `accuracy_table` gives them.

    A diamond marks what the paper prints (column `paper`), if it prints anything.
    """
    names = [plain(name) for name in table["method"]]
    reach = table[["low", "high"]].sub(table["accuracy"], axis=0).abs().to_numpy().T
    ax.barh(names, table["accuracy"], xerr=reach, capsize=4, height=0.7, color=list(map(palette(names).get, names)))
    ax.plot(table["paper"], names, "D", color="black", markersize=6, label="printed by the paper")
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(visible=False, axis="y")
    return _labelled(ax, {"xlabel": "accuracy, %", "ylabel": ""} | labels)


def _labelled(ax: Axes, labels: dict[str, str]) -> Axes:
    ax.set(**{name: plain(label) for name, label in labels.items()})
    return ax


def save_figure(fig: Figure, out: Path) -> None:
    """Write figure.png (150 dpi) and figure.svg to the folder `out`; equal figures give equal bytes."""
    out.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "coevolve"}):
        fig.savefig(out / "figure.png", dpi=150, bbox_inches="tight", metadata={"Software": None})
        fig.savefig(out / "figure.svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})


def diagram(title: str, caption: str, places: Mapping, roles: Mapping[str, Role], edges: Sequence) -> Figure:
    """Draw who passes what to whom, large enough to be read in a column of 8 cm.

    `places` are the boxes' centres (x, y) in hundredths of the width, from the lower left. The box of a name in `roles`
    shows what that role's prompt reads; every other box, such as a pool or a verifier, is dashed.

    An edge is (from, to, label), and perhaps {"bend": corners, "at": place of the label}. Its arrow goes level or
    upright from box to corner to box, wherever these face each other. The label is at the middle of the first line: on
    an upright one, above a level one. Where two boxes exchange something, each arrow has a line of its own, with the
    label below a level one to the left, and on an upright one nearer to who sends.
    """
    height = max(y for _, y in places.values()) + 12
    fig = plt.figure(figsize=(6.1, 0.061 * height))
    ax = fig.add_axes((0, 0, 1, 1), xlim=(0, 100), ylim=(0, height))
    ax.axis("off")
    boxes = {name: _box(ax, at, name, roles.get(name)) for name, at in places.items()}
    ways = {(source, target) for source, target, *_ in edges}
    for source, target, label, *more in edges:
        _arrow(ax, boxes[source], boxes[target], label, (target, source) in ways, **dict(*more))  # bend and at, if any
    ax.set_title(plain(title), loc="left", weight="bold")
    key = [Patch(**SOLID, label="role, and what it reads"), Patch(**DASHED, label="data or a rule")]
    below = {"loc": "upper left", "bbox_to_anchor": (0, -0.02), "alignment": "left", "borderpad": 0, "borderaxespad": 0}
    ax.legend(handles=key, ncols=2, title=fill(plain(caption), 66), **below)
    return fig


def _box(ax: Axes, at: Sequence[float], name: str, role: Role | None) -> Bbox:
    """Draw a box and return its limits."""
    text = [TextArea(plain(name), textprops={"weight": "bold" if role else "normal", "multialignment": "center"})]
    if role is not None:
        text += [TextArea(plain(line)) for line in wrap(f"reads {', '.join(sorted(role.fields))}", 13)]
    look = {"boxstyle": "round,pad=0.4", **(SOLID if role else DASHED)}
    box = ax.add_artist(AnnotationBbox(VPacker(children=text, align="center", sep=2), at, bboxprops=look))
    return box.get_window_extent().transformed(ax.transData.inverted())


def _arrow(ax: Axes, start: Bbox, end: Bbox, label: str, paired: bool, bend: Sequence = (), at: Sequence = ()) -> None:
    stops = [start, *(Bbox([corner, corner]) for corner in bend), end]
    lines = [_line(*pair, paired) for pair in pairwise(stops)]
    path = mpl.path.Path([lines[0][0], *(last for _, last in lines)])
    ax.add_patch(FancyArrowPatch(path=path, arrowstyle="-|>", mutation_scale=12, color="0.3", linewidth=1.2))
    first, last = lines[0]
    way = int(np.sign(last[0] - first[0]))  # 1: to the right, -1: to the left, 0: upright
    side = way if paired else abs(way)
    at = at or first + (0.35 if paired and not way else 0.5) * (last - first) + (0, side)
    paper = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"}
    ax.text(*at, plain(label), ha="center", va=("center", "bottom", "top")[side], bbox=paper)


def _line(start: Bbox, end: Bbox, paired: bool) -> tuple:
    """Return the ends of the line between two boxes; a pair shares the width in which the boxes face each other."""
    low, high = np.maximum(start.min, end.min), np.minimum(start.max, end.max)  # facing: where both are, else the gap
    forward, facing = end.max > start.max, low <= high
    shared = low + (high - low) * (np.where(forward[::-1], 0.75, 0.25) if paired else 0.5)
    return tuple(np.where(facing, shared, np.where(ahead, high, low)) for ahead in (forward, ~forward))
