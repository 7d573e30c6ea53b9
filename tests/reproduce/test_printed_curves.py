"""What a paper says about a curve in words becomes points."""

import pandas as pd
import pytest
from pytest import approx

from reproduce.analysis import printed_curves, tables, training_curves

FLAT = [0.0, 1.0]
LEVELS = [  # a text, its places along the axis, and its values
    ("~0.3 flat", FLAT, [0.3, 0.3]),
    ("4000-8000", FLAT, [6000, 6000]),
    ("0.1 -> 0.25", FLAT, [0.1, 0.25]),
    (
        "0.4 -> 0.78 (step 40) -> 0.5-0.6",
        [0, 0.4, 1],
        [0.4, 0.78, 0.55],
    ),
    (
        "0.3 -> ~1.0 after step 50, 0.9-1.1",
        [0, 0.5, 1],
        [0.3, 1.0, 1.0],
    ),
]


def described(*rows: tuple[str, str]) -> pd.DataFrame:
    """A file of paper numbers: the place and the text of each row."""
    frame = pd.DataFrame(rows, columns=["setup", "printed"])
    return frame.assign(table="fig", method="CoNL", benchmark="accuracy")


@pytest.mark.parametrize(("text", "places", "values"), LEVELS)
def test_a_text_becomes_points_along_the_printed_axis(
    text: str, places: list[float], values: list[float]
) -> None:
    numbers = described(("steps 0-100 on the axis", text))
    curve = printed_curves.read(numbers, "fig")
    assert curve["at"].tolist() == approx(places)
    assert curve["value"].tolist() == approx(values)


def test_rows_that_name_steps_are_points_of_one_curve() -> None:
    numbers = described(
        ("step 40", "5"),
        ("start", "1"),
        ("step 60-100", "3"),
        ("end", "2"),
    )
    curve = printed_curves.read(numbers, "fig")
    assert curve["at"].tolist() == [0, 0.5, 1, 1]
    assert curve["value"].tolist() == [1, 5, 3, 2]


def test_the_first_checkpoint_is_the_beginning_of_the_axis() -> None:
    numbers = tables.paper_numbers("spice_figures")
    curve = printed_curves.read(numbers, "spice_fig3a")
    assert curve["at"].tolist() == [0, 1]


def test_a_quantity_of_a_figure_is_chosen_by_its_name() -> None:
    numbers = tables.paper_numbers("sage_fig3")
    pool = printed_curves.read(numbers, "sage_fig3", "question pool")
    accuracy = printed_curves.read(numbers, "sage_fig3", "validation accuracy")
    assert len(pool) == 2
    assert len(accuracy) == 4


def test_points_are_stretched_to_our_steps_and_carry_our_names() -> None:
    points = pd.DataFrame({"method": ["SRT-M"], "at": [0.5], "value": [1.0]})
    placed = printed_curves.on_axis(points, {"SRT": "SRT-M"}, 20, 40)
    assert placed["step"].tolist() == [30]
    assert placed["method"].tolist() == ["SRT"]


def panel(apart: bool) -> dict:
    numbers = {"numbers": "conl_fig3", "table": "conl_fig3_right", "apart": apart}
    return {
        "title": "Accuracy",
        "ylabel": "share",
        "lines": {"accuracy": "accuracy"},
        "paper": numbers,
    }


def ours() -> pd.DataFrame:
    frame = pd.DataFrame({"step": [0, 40], "value": [0.4, 0.5]})
    return frame.assign(method="CoNL", seed=0, line="CoNL")


def test_a_papers_curve_is_drawn_over_ours() -> None:
    fig = training_curves.draw([panel(apart=False)], [ours()])
    (ax,) = fig.axes
    names = {text.get_text() for text in ax.texts}
    assert names == {"CoNL", "CoNL in the\npaper"}
    assert list(ax.lines[-1].get_ydata()) == [0.4, 0.85]


def test_a_papers_curve_has_a_panel_of_its_own_if_scales_differ() -> None:
    fig = training_curves.draw([panel(apart=True)], [ours()])
    first, second = fig.axes
    assert len(first.lines) == 1
    assert list(second.lines[0].get_xdata()) == [0, 40]
