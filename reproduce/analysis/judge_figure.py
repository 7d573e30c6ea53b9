"""The figure of the judge's quality, and where judges outside of its runs stand.

See `judge_quality` for the runs and their gains.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from reproduce import HOME
from reproduce.analysis import figures, tables
from reproduce.analysis.judge_quality import OWN
from reproduce.analysis.line_names import apart

SMOLLM2 = HOME / "src" / "published" / "smollm2-roles" / "card.json"
PANELS = {
    "Errors at random": ("random",),
    "Errors about the same questions, or hard ones": ("question", "level"),
}
DASHES = {"random": "-", "question": "--", "level": ":"}
OWN_JUDGE = {"markersize": 12, "markeredgecolor": "black", "linestyle": "none"}
MARK_GAP = 0.05  # between judges on the lower edge, as a share of the height
LABEL_GAP = 0.055  # between the names of two lines, as a share of the height


@dataclass(frozen=True)
class Look:
    """How a method is drawn."""

    colour: str
    marker: str


# The house's colours, but for CoNL: its vermilion and SAGE's orange are one colour to some eyes.
LOOKS = {
    "MAE": Look(figures.METHOD_COLOURS["mae"], "o"),
    "SAGE": Look(figures.METHOD_COLOURS["sage"], "s"),
    "CoMAS": Look(figures.METHOD_COLOURS["comas"], "^"),
    "CoNL": Look("#222222", "D"),
    "TTRL": Look(figures.METHOD_COLOURS["ttrl"], "v"),
}


# Judges outside of the runs.


@dataclass(frozen=True)
class Mark:
    """Accuracies, 0 to 1, at which a judge stands; no gain is known for it."""

    label: str
    low: float
    high: float


def smollm2_judge(card: Path = SMOLLM2) -> Mark:
    """Return how often SmolLM2, warmed on its roles, judges an answer of the tiny world rightly."""
    figures_of_card = json.loads(card.read_bytes())["figures"]
    accuracy = figures_of_card["judge_answer_sampled"]
    return Mark("SmolLM2-135M, warmed", accuracy, accuracy)


def accuracy_of(precision: float, recall: float, share: float) -> float:
    """Return how often a judge is right, by its precision, its recall and the share of the correct.

    All are from 0 to 1; the precision is above 0. Of all answers, share * recall are correct and
    called so, and for each of these, (1 - precision) / precision are wrong and called correct.
    """
    true_positives = share * recall
    false_positives = true_positives * (1 - precision) / precision
    true_negatives = 1 - share - false_positives
    return true_positives + true_negatives


def comas_judge(printed: pd.DataFrame | None = None) -> Mark:
    """Return where CoMAS's scorer stands by the paper's Table 6, over its training steps.

    The table prints precision, recall and the accuracy of the solutions on a validation set; the
    judge's accuracy follows if the judged solutions are correct as often.
    """
    cells = tables.paper_numbers("comas_table6") if printed is None else printed
    by_step = cells.pivot(index="setup", columns="metric", values="value") / 100
    accuracies = []
    for _, step in by_step.iterrows():
        accuracies.append(
            accuracy_of(step["Precision"], step["Recall"], step["Accuracy"])
        )
    return Mark("CoMAS, the paper's Table 6", min(accuracies), max(accuracies))


# The figure.


def draw(effects: pd.DataFrame, marks: Sequence[Mark]) -> Figure:
    """Draw the gain over the control against the judge's accuracy, a panel per kind of errors.

    A kind without runs has no panel. The left panel also has each method's own judge, and on its
    lower edge the `marks`.
    """
    panels = _panels(effects)
    width = 6 * len(panels) - 1
    fig, (axes,) = plt.subplots(
        1,
        len(panels),
        figsize=(width, 4.6),
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    for ax, (title, kinds) in zip(axes, panels.items(), strict=True):
        shown = effects[effects["errors"].isin(kinds)]
        for (method, errors), line in shown.groupby(["method", "errors"], sort=False):
            _draw_line(ax, line, LOOKS[method], DASHES[errors])
        ax.axhline(0, color="0.3", linewidth=1)
        ax.set(title=title, xlabel="accuracy of the judge")
    axes[0].set_ylabel("gain over shuffled rewards, points")
    own = effects[effects["errors"] == OWN]
    _draw_own(axes[0], own)
    lowest, highest = axes[0].get_ylim()
    room_for_marks = MARK_GAP * (len(marks) + 1) * (highest - lowest)
    axes[0].set_ylim(lowest - room_for_marks, highest)
    _draw_marks(axes[0], marks)
    for ax, kinds in zip(axes, panels.values(), strict=True):
        _name_lines(ax, effects[effects["errors"].isin(kinds)])
    fig.subplots_adjust(wspace=0.22)
    return fig


def _panels(effects: pd.DataFrame) -> dict[str, tuple[str, ...]]:
    """Return the panels of PANELS for which there are runs."""
    run = set(effects["errors"])
    return {title: kinds for title, kinds in PANELS.items() if run & set(kinds)}


def _draw_line(ax: Axes, line: pd.DataFrame, look: Look, dashes: str) -> None:
    ax.plot(
        line["asked"],
        line["over control"],
        color=look.colour,
        linestyle=dashes,
        marker=look.marker,
        markersize=5,
    )
    ax.fill_between(
        line["asked"],
        line["over control, low"],
        line["over control, high"],
        color=look.colour,
        alpha=0.1,
        linewidth=0,
    )


def _draw_own(ax: Axes, own: pd.DataFrame) -> None:
    """Draw each method's own judge, where it is known how often that is right."""
    for row in own.dropna(subset=["measured"]).to_dict("records"):
        look = LOOKS[row["method"]]
        ax.plot(
            row["measured"],
            row["over control"],
            color=look.colour,
            marker=look.marker,
            zorder=5,
            **OWN_JUDGE,
        )
    key = Line2D([], [], color="white", marker="o", **OWN_JUDGE)
    ax.legend([key], ["a method's own judge"], loc="upper left")


def _draw_marks(ax: Axes, marks: Sequence[Mark]) -> None:
    """Draw judges without runs as bars above the lower edge, one above the other."""
    to_edge = ax.get_xaxis_transform()
    for number, mark in enumerate(marks):
        height = MARK_GAP * (number + 0.75)
        ax.plot(
            [mark.low, mark.high],
            [height, height],
            color="black",
            linewidth=4,
            solid_capstyle="butt",
            marker="|",
            markersize=10,
            markeredgewidth=3,
            transform=to_edge,
        )
        ax.annotate(
            mark.label,
            (mark.high, height),
            xycoords=to_edge,
            xytext=(7, 0),
            textcoords="offset points",
            va="center",
            fontsize="small",
        )


def _name_lines(ax: Axes, shown: pd.DataFrame) -> None:
    """Write the name of each line beside its end, apart from the names of other lines."""
    ends = shown.groupby(["method", "errors"], sort=False).last().reset_index()
    ends = ends.sort_values("over control", ignore_index=True)
    lowest, highest = ax.get_ylim()
    places = apart(ends["over control"].to_numpy(), LABEL_GAP * (highest - lowest))
    for end, place in zip(ends.to_dict("records"), places, strict=True):
        is_level = end["errors"] == "level"
        ax.annotate(
            end["method"] + (", on hard levels" if is_level else ""),
            (end["asked"], place),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            color=LOOKS[end["method"]].colour,
            weight="bold",
            annotation_clip=False,
        )
