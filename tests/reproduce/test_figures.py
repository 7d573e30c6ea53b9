"""Figures: views of their frames, byte-stable files, text drawn literally."""

import re
import runpy
from collections.abc import Callable, Iterator
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from pytest import approx
from seen_colours import (
    CLEARLY_DIFFERENT,
    TO_XYZ,
    linear,
    seen_by_deuteranopes,
    seen_by_most,
)

from coevolve.methods.comas import CoMAS
from reproduce import HOME, registry
from reproduce.analysis import figures
from reproduce.analysis.line_names import apart
from reproduce.notebooks import code_cells

PAGE_PIXELS = 736
SMALLEST_PIXELS = 9
_, ENTRIES = registry.read(HOME, "quick")
ARTEFACTS = ENTRIES.artefacts


def diagram_cells() -> dict[str, str]:
    """The cell that draws a diagram, by artefact."""
    cells = {}
    for id, artefact in ARTEFACTS.items():
        if artefact.notebook:
            for text, _ in code_cells(HOME / artefact.notebook):
                if any(call in text for call in DRAWS):
                    cells[id] = text
    return cells


DRAWS = ("figures.diagram(", "role_diagrams.draw(")
DIAGRAMS = diagram_cells()
assert DIAGRAMS


@pytest.fixture(autouse=True)
def house_style() -> Iterator[None]:
    with plt.rc_context({"backend": "agg"}):
        figures.style()
        yield
    plt.close("all")


def rewards_of(*methods: str) -> pd.DataFrame:
    """Two seeds of three steps per method; the reward is step plus seed."""
    rows = []
    for method in methods:
        for seed in (0, 2):
            for step in range(3):
                row = {
                    "method": method,
                    "seed": seed,
                    "step": step,
                    "reward": step + seed,
                }
                rows.append(row)
    return pd.DataFrame(rows)


def test_a_curve_is_the_mean_of_the_seeds_with_a_band_from_lowest_to_highest() -> None:
    ax = figures.curve(rewards_of("MAE"), "step", "reward")
    line = ax.lines[0]
    assert line.get_ydata().tolist() == [1, 2, 3]
    assert line.get_color() == figures.METHOD_COLOURS["mae"]
    band = ax.collections[0].get_paths()[0]
    heights = band.vertices[:, 1]
    assert heights.min() == 0
    assert heights.max() == 4


def test_a_title_with_dollars_is_drawn_literally() -> None:
    ax = figures.curve(rewards_of("MAE"), "step", "reward", title="costs $5 to $6")
    assert ax.get_title(loc="left") == r"costs \$5 to \$6"
    assert ax.get_xlabel() == "step"
    assert ax.get_ylabel() == "reward"


def test_names_of_methods_are_no_mathematics(tmp_path: Path) -> None:
    ax = figures.curve(rewards_of("pay $x", "\x1bup_{$}"), "step", "reward")
    names = {text.get_text() for text in ax.texts}
    assert names == {r"pay \$x", r"\x1bup_{\$}"}
    # An unpaired brace in mathematics would raise.
    figures.save_figure(ax.figure, tmp_path)


def test_a_frame_without_values_is_refused() -> None:
    frame = rewards_of("MAE").assign(reward=None)
    with pytest.raises(ValueError, match="no values of 'reward'"):
        figures.curve(frame, "step", "reward")


def test_colours_belong_to_methods() -> None:
    colours = figures.METHOD_COLOURS
    assert len(colours) == 15
    assert len(set(colours.values())) == 15
    names = ["no judge", "SAGE (Ours)", "Untrained", "SAGE (small)"]
    palette = figures.palette(names)
    assert len(set(palette.values())) == 4
    assert palette["SAGE (Ours)"] == colours["sage"]
    assert palette["Untrained"] == colours["base"]


SEEN = {  # places in CAM02-UCS, as the package colorspacious computes them
    seen_by_most: {
        "#808080": [56.23, -1.26, -0.76],
        "#ff0000": [60.05, 38.69, 24.32],
        "#0077aa": [47.96, -14.88, -21.75],
    },
    seen_by_deuteranopes: {
        "#ff0000": [62.75, -3.77, 28.22],
        "#0077aa": [46.51, -5.65, -23.72],
    },
}


@pytest.mark.parametrize("seen", SEEN)
def test_colours_have_their_places_in_cam02_ucs(seen: Callable) -> None:
    for colour, place in SEEN[seen].items():
        assert seen(colour) == approx(place, abs=0.02), colour


def test_all_colours_are_told_apart_by_everybody() -> None:
    for first, second in combinations(figures.COLOURS, 2):
        for seen in (seen_by_deuteranopes, seen_by_most):
            distance = np.linalg.norm(seen(first) - seen(second))
            assert distance > CLEARLY_DIFFERENT, f"{first} and {second}"


def contrast(colour: str, ground: str) -> float:
    """Return the ratio of light of a colour and its ground, as WCAG has it."""
    lights = [linear(each) @ TO_XYZ[1] + 0.05 for each in (colour, ground)]
    return max(lights) / min(lights)


def test_all_colours_show_on_light_and_on_dark_pages() -> None:
    _, light, dark = figures.PAPER
    for colour in figures.COLOURS:
        assert contrast(colour, light) > 2, colour
        assert contrast(colour, dark) > 3, colour


def test_a_curve_of_few_looks_shows_them() -> None:
    ax = figures.curve(rewards_of("MAE"), "step", "reward")
    assert ax.lines[0].get_marker() == "o"
    many = pd.DataFrame({"step": range(50), "reward": range(50)})
    ax = figures.curve(many, "step", "reward", hue=None)
    assert not ax.lines[0].get_marker()


def test_names_of_equal_curves_do_not_overlap() -> None:
    ax = figures.curve(rewards_of("MAE", "SAGE", "SPICE"), "step", "reward")
    ax.figure.canvas.draw()
    boxes = [Text.get_window_extent(name) for name in ax.texts]  # without lines
    assert len(boxes) == 3
    for first, second in combinations(boxes, 2):
        assert not first.overlaps(second)


LONG_NAMES = ("MAE (half reference)", "no quality filtering", "SRT (multi-agent)")


def test_a_panel_has_most_of_its_column_beside_the_names_of_its_lines() -> None:
    fig, axes = figures.panels(2)
    for ax in axes:
        figures.curve(rewards_of(*LONG_NAMES), "step", "reward", ax=ax)
    fig.canvas.draw()
    for ax in axes:
        assert ax.get_position().width > 0.6 / len(axes)
    names = {text.get_text() for text in axes[0].texts}
    assert "SRT\n(multi-agent)" in names, "words stay whole"


def test_neighbours_are_pushed_apart_by_their_own_sizes() -> None:
    heights = apart(np.array([1.0, 1, 1]), gaps=[2, 1])
    assert np.diff(heights) == approx([2, 1])
    assert np.mean(heights) == approx(1)


def panels_of_registry() -> list[tuple[str, str]]:
    """The artefact of each panel of curves, and the label of its y axis."""
    labels = []
    for id, artefact in ARTEFACTS.items():
        if artefact.notebook.endswith("curves.ipynb"):
            for panel in artefact.parameters["panels"]:
                labels.append((id, panel["ylabel"]))
    return labels


@pytest.mark.parametrize(("id", "label"), panels_of_registry())
def test_an_axis_says_of_what_it_shows_a_share(id: str, label: str) -> None:
    if label.startswith(("share", "%", "mean of")):
        assert re.match(r"(share|%) of [a-z]", label), id


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_numbers_at_the_axes_can_be_read_at_the_width_of_a_page(count: int) -> None:
    fig, axes = figures.panels(count)
    pixels_per_point = PAGE_PIXELS / (72 * fig.get_figwidth())
    for ax in axes:
        for tick in ax.get_xticklabels():
            assert tick.get_fontsize() * pixels_per_point >= SMALLEST_PIXELS
    left_edges = {ax.get_subplotspec().colspan.start for ax in axes}
    assert len(left_edges) <= 2


def test_panels_have_letters() -> None:
    _, axes = figures.panels(2)
    axes[1].set_title("Pass rate")
    figures.letter(axes)
    assert axes[1].get_title(loc="left") == "b   Pass rate"


def test_an_svg_follows_the_theme_of_its_page(tmp_path: Path) -> None:
    ax = figures.curve(rewards_of("MAE"), "step", "reward")
    figures.save_figure(ax.figure, tmp_path)
    svg = (tmp_path / "figure.svg").read_text()
    assert "prefers-color-scheme:dark" in svg
    assert "fill: var(--ink)" in svg
    assert "fill: #262626" not in svg
    first = (tmp_path / "figure.svg").read_bytes()
    figures.save_figure(ax.figure, tmp_path)
    assert first == (tmp_path / "figure.svg").read_bytes()


def test_dots_show_value_limits_and_what_the_paper_prints() -> None:
    table = pd.DataFrame(
        {
            "method": ["mae", "a$b$"],
            "accuracy": [50.0, 40],
            "low": [45.0, 38],
            "high": [58.0, 44],
            "paper": [60.0, float("nan")],
        }
    )
    _, ax = plt.subplots()
    figures.dots(table, ax)
    ours, *_ = ax.lines
    assert list(ours.get_xdata()) == [50, 40]
    limits = []
    for segment in ax.collections[0].get_segments():
        limits.append(segment[:, 0].tolist())
    assert limits == [[45, 58], [38, 44]]
    diamonds = ax.lines[-1]
    assert diamonds.get_xdata()[0] == 60
    names = [tick.get_text() for tick in ax.get_yticklabels()]
    assert names == ["mae", r"a\$b\$"]


def draw_diagram(id: str, folder: Path, **changed: Any) -> Axes:
    """Draw a diagram as its notebook does, with the parameters of the registry."""
    script = folder / "cell.py"
    script.write_text(DIAGRAMS[id], "utf-8")
    variables = {
        "out": folder,
        "Path": Path,
        "method": CoMAS(),
        **ARTEFACTS[id].parameters,
        **changed,
    }
    fig = runpy.run_path(str(script), variables)["fig"]
    return fig.axes[0]


def faults(ax: Axes) -> list[object]:
    """Parts that touch what is not theirs, slanted lines, and parts that leave the canvas."""
    owned = []  # what owns a part, and where the part is
    slanted = []
    for box in ax.artists:
        inside = box.get_window_extent().padded(-1)  # a line touches its two boxes
        owned.append((box, inside))
    for arrow, label in zip(ax.patches, ax.texts, strict=True):
        owned.append((arrow, label.get_window_extent()))
        for line in lines_of(ax, arrow):
            owned.append((arrow, line))
            if min(abs(line.size)) > 1:
                slanted.append(line)
    touching = []
    for (owner, part), (other_owner, other) in combinations(owned, 2):
        if owner is not other_owner and part.overlaps(other):
            touching.append((part, other))
    outside = [part for _, part in owned if not is_inside(part, ax.bbox)]
    return [*slanted, *touching, *outside]


def lines_of(ax: Axes, arrow: Any) -> list[Bbox]:
    path = arrow.get_path()
    corners = path.to_polygons(ax.transData, closed_only=False)[0]
    return [Bbox(ends) for ends in pairwise(corners)]


def is_inside(part: Bbox, canvas: Bbox) -> bool:
    return Bbox.union([part, canvas]).bounds == canvas.bounds


@pytest.mark.parametrize("id", DIAGRAMS)
def test_no_diagram_has_parts_that_touch_or_are_cut_off(
    id: str, tmp_path: Path
) -> None:
    ax = draw_diagram(id, tmp_path)
    assert not faults(ax)
    width = ax.figure.get_tightbbox().width  # with title, caption and key
    assert width < ax.figure.get_figwidth() + 0.01


@pytest.mark.parametrize("id", DIAGRAMS)
def test_a_box_on_another_is_a_fault(id: str, tmp_path: Path) -> None:
    ax = draw_diagram(id, tmp_path)
    first, second, *_ = ax.artists
    first.xybox = second.xybox
    assert faults(ax)


def test_a_diagram_shows_what_its_roles_read(tmp_path: Path) -> None:
    ax = draw_diagram("mae_fig1", tmp_path, edges=[["Judge", "Solver", "costs $1"]])
    judge = ax.artists[2].offsetbox
    lines = [part.get_text() for part in judge.get_children()]
    assert lines == ["Judge", "reads answer,", "question"]
    labels = [text.get_text() for text in ax.texts]
    assert labels == [r"costs \$1"]


def test_arrows_that_carry_rewards_have_a_colour_of_their_own(tmp_path: Path) -> None:
    ax = draw_diagram("mae_fig1", tmp_path)
    rewards = set()
    for label in ax.texts:
        if label.get_color() == figures.REWARD:
            rewards.add(label.get_text())
    assert rewards == {"quality,\ndifficulty", "score"}


# Two boxes and the ends of the line between them; a pair of lines shares the overlap.
LEFT = Bbox([[0, 0], [2, 4]])
RIGHT = Bbox([[6, 2], [8, 6]])
LINES = [
    (LEFT, RIGHT, False, [[2, 3], [6, 3]]),
    (RIGHT, LEFT, False, [[6, 3], [2, 3]]),
    (LEFT, RIGHT, True, [[2, 3.5], [6, 3.5]]),
    (RIGHT, LEFT, True, [[6, 2.5], [2, 2.5]]),
]


@pytest.mark.parametrize(("start", "end", "is_paired", "points"), LINES)
def test_a_line_runs_where_two_boxes_overlap(
    start: Bbox, end: Bbox, is_paired: bool, points: list
) -> None:
    line = figures._line(start, end, is_paired)
    assert [point.tolist() for point in line] == points
