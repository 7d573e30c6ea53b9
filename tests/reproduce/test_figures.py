"""Figures: views of their frames, byte-stable files, text drawn literally."""

import runpy
from itertools import combinations, pairwise
from pathlib import Path

import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.transforms import Bbox

from coevolve.methods.comas import CoMAS
from reproduce import HOME, registry
from reproduce.analysis import figures
from reproduce.notebooks import code_cells

FOUND = registry.read(HOME, "quick")[1].artefacts
CELLS = [(id, text) for id, one in FOUND.items() if one.notebook for text, _ in code_cells(HOME / one.notebook)]
DIAGRAMS = {id: text for id, text in CELLS if "figures.diagram(" in text}


@pytest.fixture(autouse=True)
def house_style():
    with plt.rc_context({"backend": "agg"}):
        figures.style()
        yield
    plt.close("all")


def runs(*methods: str) -> pd.DataFrame:
    rows = [(m, seed, step, step + seed) for m in methods for seed in (0, 2) for step in range(3)]
    return pd.DataFrame(rows, columns=["method", "seed", "step", "reward"])


def test_curve_draws_the_mean_and_the_band_of_seeds() -> None:
    ax = figures.curve(runs("MAE"), "step", "reward", title="costs $5 to $6")
    assert ax.lines[0].get_ydata().tolist() == [1, 2, 3]
    assert ax.lines[0].get_color() == figures.METHOD_COLOURS["mae"]
    band = ax.collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (0, 4)
    assert (ax.get_title(), ax.get_xlabel(), ax.get_ylabel()) == (r"costs \$5 to \$6", "step", "reward")


def test_labels_from_text_are_no_mathematics(tmp_path: Path) -> None:
    ax = figures.curve(runs("pay $x", "\x1bup_{$}"), "step", "reward")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [r"pay \$x", r"\x1bup_{\$}"]
    figures.save_figure(ax.figure, tmp_path)  # an unpaired brace inside mathematics would raise here
    with pytest.raises(ValueError, match="no values of 'reward'"):
        figures.curve(runs("MAE").assign(reward=None), "step", "reward")


def test_colours_belong_to_methods() -> None:
    own, chosen = figures.METHOD_COLOURS, figures.palette(["no judge", "SAGE (Ours)", "Untrained", "SAGE (small)"])
    assert len(set(own.values())) == len(own) == 15 and len({*chosen.values()}) == 4
    assert (chosen["SAGE (Ours)"], chosen["Untrained"]) == (own["sage"], own["base"])


def test_bars_show_value_limits_and_what_the_paper_prints() -> None:
    table = pd.DataFrame({"method": ["mae", "a$b$"], "accuracy": [50.0, 40], "low": [45.0, 38], "high": [58.0, 44]})
    ax = figures.bars(table.assign(paper=[60.0, float("nan")]), plt.subplots()[1])
    assert [bar.get_width() for bar in ax.patches] == [50, 40]
    segments = [segment[:, 0].tolist() for segment in ax.collections[0].get_segments()]
    assert segments == [[45, 58], [38, 44]] and ax.lines[-1].get_xdata()[0] == 60
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["mae", r"a\$b\$"]


def drawn(id: str, folder: Path, **changed: object):
    """A diagram as its notebook draws it, with what the registry says."""
    (folder / "cell.py").write_text(DIAGRAMS[id], "utf-8")
    given = {"out": folder, "Path": Path, "protocol": CoMAS(), **FOUND[id].parameters, **changed}
    return runpy.run_path(str(folder / "cell.py"), given)["fig"].axes[0]


def faults(ax) -> list[object]:
    """Boxes, labels and lines that touch what is not theirs, lines that are slanted, and what leaves the canvas."""
    found: list[object] = []
    parts = [(box, box.get_window_extent().padded(-1)) for box in ax.artists]  # a line touches its two boxes
    for arrow, label in zip(ax.patches, ax.texts, strict=True):
        corners = arrow.get_path().to_polygons(ax.transData, closed_only=False)[0]
        lines = [Bbox(ends) for ends in pairwise(corners)]
        parts += [(arrow, part) for part in (label.get_window_extent(), *lines)]
        found += [line for line in lines if min(abs(line.size)) > 1]
    found += [(a, b) for (owner, a), (other, b) in combinations(parts, 2) if owner is not other and a.overlaps(b)]
    found += [part for _, part in parts if Bbox.union([part, ax.bbox]).bounds != ax.bbox.bounds]
    return found


@pytest.mark.parametrize("id", DIAGRAMS)
def test_no_diagram_has_parts_that_touch_or_are_cut_off(id: str, tmp_path: Path) -> None:
    ax = drawn(id, tmp_path)
    # the title, the caption and the key are no wider than the canvas
    assert not faults(ax) and ax.figure.get_tightbbox().width < ax.figure.get_figwidth() + 0.01
    ax.artists[0].xybox = ax.artists[1].xybox
    assert faults(ax), "of a box that was moved"


def test_a_diagram_shows_what_its_roles_read(tmp_path: Path) -> None:
    ax = drawn("mae_fig1", tmp_path, edges=[["Judge", "Solver", "costs $1"]])
    judge = [part.get_text() for part in ax.artists[2].offsetbox.get_children()]
    assert judge == ["Judge", "reads answer,", "question"]
    assert [text.get_text() for text in ax.texts] == [r"costs \$1"]
