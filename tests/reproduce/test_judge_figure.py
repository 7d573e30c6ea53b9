"""The figure of the judge's quality, and the judges that are marked in it."""

import json
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from pretend_judges import ACCURACIES, runs_in, write_all
from pytest import approx
from seen_colours import CLEARLY_DIFFERENT, seen_by_deuteranopes

from reproduce.analysis import judge_figure, judge_quality
from reproduce.analysis.evidence import RunFolders
from reproduce.analysis.line_names import apart

MAE = judge_figure.LOOKS["MAE"].colour
SAGE = judge_figure.LOOKS["SAGE"].colour


def test_a_judges_accuracy_follows_from_precision_and_recall() -> None:
    tp = 20
    fp = 30
    fn = 10
    tn = 40
    accuracy = judge_figure.accuracy_of(
        precision=tp / (tp + fp),
        recall=tp / (tp + fn),
        share=(tp + fn) / 100,
    )
    assert accuracy == approx((tp + tn) / 100)


# Of step 0: of 100 solutions 30 are correct, 50 called so, and 20 both.
PRINTED = """\
setup,metric,value
step 0,Accuracy,30
step 0,Precision,40
step 0,Recall,66.666666
step 5,Accuracy,100
step 5,Precision,100
step 5,Recall,100
"""


def test_the_papers_judge_is_read_from_its_table(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    file.write_text(PRINTED)
    mark = judge_figure.comas_judge(pd.read_csv(file))
    assert mark.low == approx(0.6)
    assert mark.high == 1
    shipped = judge_figure.comas_judge()
    assert 0.5 < shipped.low < shipped.high < 1


def test_smollm2s_judge_is_read_from_its_card(tmp_path: Path) -> None:
    card = tmp_path / "card.json"
    card.write_text('{"figures": {"judge_answer_sampled": 0.625}}')
    mark = judge_figure.smollm2_judge(card)
    assert mark.low == mark.high == 0.625
    shipped = json.loads(judge_figure.SMOLLM2.read_text())
    accuracy = shipped["figures"]["judge_answer_sampled"]
    assert judge_figure.smollm2_judge().low == accuracy


@pytest.fixture
def axes(tmp_path: Path) -> Iterator[list[Axes]]:
    write_all(tmp_path)
    study = judge_quality.read(RunFolders(tmp_path, runs_in(tmp_path)))
    effects = judge_quality.effects(study)
    mark = judge_figure.Mark("a judge", 0.55, 0.55)
    with plt.rc_context({"backend": "agg"}):
        fig = judge_figure.draw(effects, [mark])
        fig.canvas.draw()
        yield fig.axes
    plt.close("all")


def curves(ax: Axes) -> dict[str, list[float]]:
    """Return the gains of each line over all accuracies, by its colour and dashes."""
    found = {}
    for line in ax.lines:
        heights = list(line.get_ydata())
        if len(heights) == len(ACCURACIES):
            look = line.get_linestyle() + line.get_color()
            found[look] = heights
    return found


def names(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def test_each_panel_has_the_lines_of_its_errors(axes: list[Axes]) -> None:
    left, right = map(curves, axes)
    assert list(left) == [f"-{MAE}", f"-{SAGE}"]
    assert list(right) == [f"--{MAE}"]
    gains = [-15, -5, 5, 15, 25, 35]
    assert left[f"-{MAE}"] == approx(gains)


def test_errors_without_runs_have_no_panel(tmp_path: Path) -> None:
    write_all(tmp_path)
    study = judge_quality.read(RunFolders(tmp_path, runs_in(tmp_path)))
    effects = judge_quality.effects(study)
    at_random = effects[effects["errors"] != "question"]
    with plt.rc_context({"backend": "agg"}):
        fig = judge_figure.draw(at_random, [])
        (ax,) = fig.axes
    plt.close("all")
    assert ax.get_title() == "Errors at random"
    assert len(curves(ax)) == 2


def test_judges_without_an_oracle_are_marked(axes: list[Axes]) -> None:
    left, right = axes
    places = []
    for line in left.lines:
        if line.get_color() == MAE and line.get_markeredgecolor() == "black":
            places.append(list(line.get_xydata()[0]))
    assert places == [approx([0.7, 4])]
    assert names(left) == ["a judge", "SAGE", "MAE"], "from the lowest"
    assert names(right) == ["MAE"]


def test_the_names_of_lines_do_not_overlap(axes: list[Axes]) -> None:
    left, _ = axes
    boxes = []
    for text in left.texts:
        if text.get_text() in judge_figure.LOOKS:
            boxes.append(text.get_window_extent())
    mae, sage = boxes
    assert not mae.overlaps(sage)


def test_crowded_heights_are_pushed_apart() -> None:
    heights = apart(np.array([1, 1.5, 2, 9]), gaps=1)
    assert heights == approx([0.5, 1.5, 2.5, 9])


def test_deuteranopes_can_tell_the_methods_apart() -> None:
    seen = {}
    for name, look in judge_figure.LOOKS.items():
        seen[name] = seen_by_deuteranopes(look.colour)
    assert list(seen) == list(judge_quality.SUBJECT_OF)
    for first, second in combinations(seen, 2):
        difference = seen[first] - seen[second]
        distance = np.linalg.norm(difference)
        assert distance > CLEARLY_DIFFERENT, f"{first} and {second}"


def test_every_method_has_a_marker_of_its_own() -> None:
    markers = {look.marker for look in judge_figure.LOOKS.values()}
    assert len(markers) == len(judge_figure.LOOKS)
