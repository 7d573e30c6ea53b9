"""Figures in the house style, saved as PNG and as SVG whose bytes repeat.

Knows colours, curves, bars and role diagrams. A figure is a view of a frame; where the frame's numbers come
from is not known here.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import wrap

import matplotlib as mpl
import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from coevolve.show import visible
from coevolve.types import Role

# The colour-blind palette of seaborn, then five of Paul Tol's; dashes tell curves apart where colours do not.
COLOURS = [*sns.color_palette("colorblind").as_hex(), "#332288", "#882255", "#999933", "#117733", "#44aa99"]
METHODS = """mae sage comas conl spice r-zero azr base sft ttrl
    strong_challenger srlm srt maporl verifier""".split()
METHOD_COLOURS = dict(zip(METHODS, COLOURS, strict=True))
ALIASES = {"untrained": "base", "base model": "base", "absolute zero": "azr"}  # what the papers call them
Point = tuple[float, float]


def style() -> None:
    """Set the house style for every figure drawn from now on."""
    fixed = {
        "figure.facecolor": "white",
        "savefig.facecolor": "white",
        "figure.figsize": (6.4, 4.0),
        "axes.titlesize": "medium",
        "legend.frameon": False,
    }
    sns.set_theme(style="whitegrid", palette="colorblind", font="DejaVu Sans", rc=fixed)


def plain(text: object) -> str:
    """Return text that matplotlib draws literally: no mathematics between dollar signs, nothing hidden."""
    return visible(str(text)).replace("$", r"\$")


def palette(names: Iterable[str]) -> dict[str, str]:
    """Give every name its colour: a method always its own, any other name the next one that is free.

    What stands in brackets, such as "(Ours)", does not count; of several variants of a method the first has its colour.
    The colours of the five papers are given away last.
    """
    chosen: dict[str, str] = {}
    for name in names:
        method = name.lower().split(" (")[0]
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


def bars(table: pd.DataFrame, x: str = "method", y: str = "accuracy", ax: Axes | None = None, **labels: str) -> Axes:
    """Draw a bar per row with the limits in its columns low and high, as `accuracy_table` gives them."""
    ax = ax or plt.subplots()[1]
    names = [plain(name) for name in table[x]]
    colours = palette(names)
    reach = [(table[y] - table["low"]).clip(lower=0), (table["high"] - table[y]).clip(lower=0)]
    ax.bar(names, table[y], yerr=reach, capsize=4, width=0.7, color=[colours[name] for name in names])
    ax.grid(visible=False, axis="x")
    return _labelled(ax, {"xlabel": "", "ylabel": y} | labels)


def _labelled(ax: Axes, labels: dict[str, str]) -> Axes:
    ax.set(**{name: plain(label) for name, label in labels.items()})
    return ax


def save_figure(fig: Figure, out: Path) -> None:
    """Write figure.png (150 dpi) and figure.svg to the folder `out`; equal figures give equal bytes."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "coevolve"}):
        fig.savefig(out / "figure.png", dpi=150, bbox_inches="tight", metadata={"Software": None})
        fig.savefig(out / "figure.svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})


def diagram(
    roles: Sequence[Role], edges: Sequence[tuple[str, str, str]], out: Path, places: Mapping[str, Point]
) -> Figure:
    """Draw who passes what to whom and save it to `out`.

    `places` are the boxes' centres within -1.6..1.6 by -1.3..1.3. The box of a role shows its policy and the fields
    that its prompt reads; the box of another name, such as a pool or a verifier, is dashed. An edge is
    (from, to, label), between two different boxes.
    """
    fig, ax = plt.subplots(figsize=(8.0, 6.4))
    ax.set(xlim=(-1.6, 1.6), ylim=(-1.3, 1.3), aspect="equal")
    ax.axis("off")
    known = {role.name: role for role in roles}
    boxes = {name: _box(ax, at, name, known.get(name)) for name, at in places.items()}
    for source, target, label in edges:
        _arrow(ax, (boxes[source], boxes[target]), places[source], places[target], label)
    save_figure(fig, out)
    return fig


def _box(ax: Axes, at: Point, name: str, role: Role | None) -> FancyBboxPatch:
    lines = [plain(name)]
    if role is not None:
        lines += [plain(f"policy {role.policy}")]
        lines += wrap(plain(f"reads {', '.join(sorted(role.fields))}"), 28) if role.fields else []
    shape = {"boxstyle": "round,pad=0.5", "facecolor": "white", "edgecolor": COLOURS[0], "linewidth": 1.6}
    if role is None:
        shape |= {"edgecolor": "0.45", "linestyle": "--"}
    return ax.text(*at, "\n".join(lines), ha="center", va="center", fontsize=9, bbox=shape).get_bbox_patch()


def _arrow(ax: Axes, boxes: tuple[FancyBboxPatch, FancyBboxPatch], start: Point, end: Point, label: str) -> None:
    bend, near = 0.15, 0.45  # a label sits nearer to the sender: a pair of opposite arrows stays readable
    ends = {"patchA": boxes[0], "patchB": boxes[1]}
    # Arrows lie above the boxes: where a box ends is known only once its text is drawn.
    look = {"arrowstyle": "-|>", "mutation_scale": 14, "color": "0.3", "linewidth": 1.2, "zorder": 4}
    ax.add_patch(FancyArrowPatch(start, end, connectionstyle=f"arc3,rad={bend}", **ends, **look))
    paper = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
    at = _on_arc(start, end, bend, near)
    ax.text(*at, plain(label), fontsize=8, ha="center", va="center", zorder=5, bbox=paper)


def _on_arc(start: Point, end: Point, bend: float, share: float) -> Point:
    """The point at a share of matplotlib's arc3: a quadratic curve, its control point off by the bend."""
    (x0, y0), (x1, y1) = start, end
    control = ((x0 + x1) / 2 + bend * (y1 - y0), (y0 + y1) / 2 - bend * (x1 - x0))
    weights = (1 - share) ** 2, 2 * share * (1 - share), share**2
    return tuple(sum(w * p[i] for w, p in zip(weights, (start, control, end), strict=True)) for i in (0, 1))
