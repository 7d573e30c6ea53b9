"""Training curves: running means, levels at start and end, faults, on small made-up metrics."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pytest import approx

from coevolve.runs.record import Recorder
from reproduce.analysis import training_curves

STEPS = 10


def curves_of(*slopes: float) -> pd.DataFrame:
    """A reward that grows by its own slope for each seed of one method."""
    rows = []
    for seed, slope in enumerate(slopes):
        for step in range(STEPS + 1):
            row = {
                "method": "Good",
                "seed": seed,
                "step": step,
                "reward": slope * step,
                "validation": 0.5 if step == 5 else np.nan,
            }
            rows.append(row)
    return pd.DataFrame(rows)


def test_a_panel_shows_running_means() -> None:
    panel = {"lines": {"reward": "mean reward"}}
    values = training_curves.panel_data(curves_of(1.0), panel, smooth=3)
    assert values["value"].tolist()[:4] == approx([0, 0.5, 1, 2])
    assert set(values["what"]) == {"mean reward"}


def test_a_panel_has_its_own_window() -> None:
    panel = {"lines": {"reward": "mean reward"}, "smooth": 1}
    values = training_curves.panel_data(curves_of(1.0), panel, smooth=3)
    assert values["value"].tolist() == list(range(STEPS + 1))


def test_validation_is_not_smoothed() -> None:
    panel = {"lines": {"validation": "accuracy"}}
    values = training_curves.panel_data(curves_of(1.0), panel, smooth=3)
    assert values["step"].tolist() == [5]
    assert values["value"].tolist() == [0.5]


def test_a_line_is_named_by_what_varies() -> None:
    curves = curves_of(1.0)
    curves = pd.concat([curves, curves.assign(method="Bad")])
    panel = {"lines": {"reward": "mean reward", "absent": "no metric"}}
    values = training_curves.panel_data(curves, panel, smooth=1)
    assert set(values["line"]) == {"Good", "Bad"}
    panel = {"lines": {"reward": "mean reward", "validation": "accuracy"}}
    values = training_curves.panel_data(curves, panel, smooth=1)
    assert "accuracy, Bad" in set(values["line"])


def level_changes(*slopes: float) -> pd.Series:
    changes = training_curves.level_changes(
        curves_of(*slopes),
        {"good": "Good", "idle": "Idle"},
        levels={"reward": "mean reward"},
        claims={"Good": {"reward": -1}},
        last_step=STEPS,
    )
    assert len(changes) == 1, "a method without steps has no row"
    return changes.iloc[0]


def test_a_level_changes_from_the_first_to_the_last_fifth() -> None:
    row = level_changes(1.0, 1.1)
    assert row["first fifth"] == approx(1.05 * (1 + 2) / 2)
    assert row["last fifth"] == approx(1.05 * (9 + 10) / 2)
    assert row["change"] == approx(1.05 * 8)
    assert row["low"] < row["change"] < row["high"]
    assert row["paper's direction"] == "against print"


def test_a_change_of_one_seed_has_no_limits() -> None:
    row = level_changes(1.0)
    assert np.isnan(row["low"])
    assert row["paper's direction"] == "one seed"


def test_the_paper_s_description_stands_beside_its_level() -> None:
    changes = pd.DataFrame({"variant": ["Good", "Good"], "share": ["reward", "length"]})
    printed = pd.DataFrame(
        {
            "table": ["fig_1", "fig_1", "fig_2"],
            "method": ["Good", "Good", "Good"],
            "printed": ["it", "rises", "it falls"],
        }
    )
    table = training_curves.with_printed_levels(changes, printed, "fig_1", "reward")
    assert table["paper"].tolist() == ["it rises", ""]


def test_the_best_evaluation_stands_beside_the_last() -> None:
    curves = curves_of(1.0)
    curves["validation"] = [0.1, 0.9, 0.3] + [np.nan] * 8
    row = training_curves.best_and_last(curves).iloc[0]
    assert row["step best"] == 1
    assert row["validation best"] == 0.9
    assert row["step last"] == 2
    assert row["validation last"] == 0.3


def test_halves_split_training_in_the_middle() -> None:
    curves = curves_of(1.0)
    panel = {"lines": {"reward": "mean reward"}}
    drawn = training_curves.panel_data(curves, panel, smooth=1)
    table = training_curves.halves(curves, drawn, "reward", "mean reward")
    row = table.loc["Good"]
    assert row["start"] == 0
    assert row["first half"] == approx(np.mean(range(6)))
    assert row["last half"] == approx(np.mean(range(6, 11)))
    assert row["spread, last half"] == approx(np.std(range(6, 11), ddof=1))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A run of MAE with metrics and four recorded episodes."""
    recorder = Recorder(tmp_path / "good-s0")
    (recorder.out / "config.json").write_text(json.dumps({"batch_size": 8}))
    metrics = []
    for step in (1, 2):
        row = {
            "step": step,
            "validation": 0.25,
            "accepted": 0.5,
            "parsed": 0.75,
            "answered": 1.0,
            "pool_ill_formed": 0.1,
            "pool/questions": 20,
        }
        metrics.append(row)
    recorder.rows("metrics", metrics)
    facts = [
        {"proposal": None, "valid": None, "quality": None},
        {"proposal": "2+?", "valid": False, "quality": 0.4},
        {"proposal": "2+2", "valid": True, "quality": 0.9},
    ]
    episodes = []
    for number, fact in enumerate(facts):
        samples = [
            {"role": "proposer", "text": f"proposal {number}"},
            {"role": "solver", "text": "answer"},
        ]
        episodes.append({"step": 1, "facts": fact, "samples": samples})
    recorder.rows("episodes", episodes)
    return tmp_path


def test_mae_s_rejections_add_up_over_training(runs: Path) -> None:
    curves = training_curves.read(runs, {"good": [0]}, {"good": "Good"})
    assert curves["accuracy"].tolist() == [25, 25]
    assert curves["rejected"].tolist() == [4, 8]
    last = curves.iloc[-1]
    assert last["ill-formed"] == 2
    assert last["unparsed"] == 0.25
    assert last["unanswered"] == 0


def test_faults_are_the_replies_that_do_not_parse_or_are_ill_formed(
    runs: Path,
) -> None:
    faults = training_curves.faults(runs, {"good": [0]}, {"good": "Good"}, "proposer")
    assert faults["proposal"].tolist() == ["proposal 0", "proposal 1"]
    assert faults["fault"].tolist() == ["does not parse", "ill-formed"]
