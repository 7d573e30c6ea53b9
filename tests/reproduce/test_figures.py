"""Figures: views of their frames, byte-stable files, text drawn literally."""

from pathlib import Path

import pandas as pd
import pytest
from matplotlib import pyplot as plt

from coevolve.types import Role
from reproduce.analysis import figures


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
    assert ax.get_title() == r"costs \$5 to \$6"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("step", "reward")


def test_labels_from_text_are_no_mathematics(tmp_path: Path) -> None:
    ax = figures.curve(runs("pay $x", "\x1bup_{$}"), "step", "reward")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [r"pay \$x", r"\x1bup_{\$}"]
    figures.save_figure(ax.figure, tmp_path)  # an unpaired brace inside mathematics would raise here
    with pytest.raises(ValueError, match="no values of 'reward'"):
        figures.curve(runs("MAE").assign(reward=None), "step", "reward")


def test_bars_show_value_and_limits() -> None:
    table = pd.DataFrame({"method": ["mae", "a$b$"], "accuracy": [50.0, 40], "low": [45.0, 38], "high": [58.0, 44]})
    ax = figures.bars(table, ylabel="accuracy, %")
    assert [bar.get_height() for bar in ax.patches] == [50, 40]
    segments = [segment[:, 1].tolist() for segment in ax.collections[0].get_segments()]
    assert segments == [[45, 58], [38, 44]]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["mae", r"a\$b\$"]


def test_files_repeat_byte_for_byte(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        figures.save_figure(figures.curve(runs("MAE", "SAGE"), "step", "reward").figure, tmp_path / folder)
    for name in ("figure.png", "figure.svg"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert b"<dc:date>" not in (tmp_path / "a" / "figure.svg").read_bytes()


def test_a_diagram_shows_what_its_roles_read(tmp_path: Path) -> None:
    roles = [Role("proposer", "write like {reference}"), Role("judge", "grade {answer} to {question}", "judge")]
    edges = [("pool", "proposer", "reference"), ("proposer", "judge", "question $1")]
    places = {"pool": (-1, 1), "proposer": (0, 0), "judge": (1, -1)}
    fig = figures.diagram(roles, edges, tmp_path, places)
    texts = {text.get_text() for text in fig.axes[0].texts}
    roles = {"proposer\npolicy shared\nreads reference", "judge\npolicy judge\nreads answer, question"}
    assert texts == roles | {"pool", "reference", r"question \$1"}
    assert len(fig.axes[0].patches) == 2
    assert (tmp_path / "figure.png").exists() and (tmp_path / "figure.svg").exists()
