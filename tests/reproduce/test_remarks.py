"""Remarks beside claims: gates that a backbone misses, and backbones of the wrong strength."""

from pathlib import Path
from typing import Any

import pytest
from ledger_rows import ledger_row

from coevolve.runs.record import Recorder, write_json
from reproduce.analysis import claims, remarks
from reproduce.analysis.evidence import RunFolders
from tinyworld.gates import GATES

FIGURES = {
    "solve_greedy": 0.40,
    "ranking": 0.56,
    "judge_question": 0.80,
    "format": {"conl/verdict": 0.80, "conl/review": 0.90},
}
CARDS = {
    "tiny": FIGURES,
    "tiny-1": FIGURES | {"ranking": 0.60},
    "tiny-large": FIGURES | {"solve_greedy": 0.41, "ranking": 0.70},
    "tiny-huge": FIGURES | {"solve_greedy": 0.60},
}


def test_gates_that_are_missed_are_named_with_figures_and_what_was_wanted() -> None:
    names = ["ranking", "judge_question", "conl/verdict", "conl/review"]
    text = remarks.missed_gates(names, [CARDS["tiny"], CARDS["tiny-1"]])
    gate = GATES["ranking"]
    assert text == (
        f"the backbones miss: ranking 0.560 to 0.600, wanted {gate.low:g} to {gate.high:g}; "
        "format of conl/verdict 0.800, wanted 0.88 to 0.95"
    )


def test_a_gate_that_some_backbones_miss_says_how_many() -> None:
    low = GATES["ranking"].low
    cards = [{"ranking": low - 0.1}, {"ranking": low}, {"ranking": low - 0.2}]
    text = remarks.missed_gates(["ranking"], cards)
    assert f"ranking {low - 0.2:.3f} to {low - 0.1:.3f} (2 of 3), wanted" in text


def test_a_figure_just_below_its_gate_is_not_rounded_up_to_it() -> None:
    low = GATES["ranking"].low
    text = remarks.missed_gates(["ranking"], [{"ranking": low - 0.003}])
    assert f"ranking {low - 0.003:.3f}, wanted {low:g} to" in text


def test_gates_that_are_passed_and_models_without_a_card_need_no_remark() -> None:
    assert remarks.missed_gates(["ranking"], [CARDS["tiny-large"], {}]) == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"verdict": "undecided"}, "the interval is above zero, but the test is not"),
        (
            {"kind": "order", "verdict": "undecided"},
            "the interval is above zero, but the test c",
        ),
        ({"verdict": "undecided", "low": -3.0, "high": -1.0}, "the interval is below"),
        ({"verdict": "undecided", "low": -1.0}, ""),
        ({"verdict": "undecided", "low": float("nan"), "high": float("nan")}, ""),
        ({"verdict": "found"}, ""),
        ({"verdict": "other size", "kind": "ratio"}, ""),
    ],
)
def test_an_interval_beside_zero_is_named_if_the_verdict_has_no_sign(
    changes: dict[str, Any], words: str
) -> None:
    text = remarks.limits(ledger_row(**changes))
    assert text.startswith(words)
    assert bool(text) == bool(words)


@pytest.mark.parametrize(
    ("size", "model", "is_named"),
    [
        ("larger", "tiny-large", True),
        ("larger", "tiny-huge", False),
        ("smaller", "tiny-large", True),
        ("", "tiny-large", False),
    ],
)
def test_a_backbone_that_is_large_by_name_only_is_named(
    size: str, model: str, is_named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remarks, "card", CARDS.__getitem__)
    text = remarks.wrong_strength(size, {model: CARDS[model]})
    assert bool(text) == is_named
    if is_named:
        assert "41% of the questions before training and tiny 40%" in text


def test_remarks_are_those_of_the_arms_backbones(tmp_path: Path) -> None:
    runs = {"first": [0], "base": [0]}
    for run, models in {"first": ["tiny", "tiny-small"], "base": "tiny"}.items():
        recorder = Recorder(tmp_path / f"{run}-s0")
        config = {"method": "base", "model": models}
        write_json(recorder.out / "config.json", config)
        write_json(recorder.out / "summary.json", {"steps": 0, "acted": {}})
    claim = {"arms": ["first", "base"], "metric": "accuracy", "gates": ["ranking"]}
    of_claims = {"a": claim, "b": claim | {"arms": ["never"]}, "c": {"cannot": "no"}}
    replies = {"first": "5", "base": "0"}
    table = remarks.table(RunFolders(tmp_path, runs), replies, of_claims)
    (row,) = table.to_dict("records")
    assert row["replies"] == "5 / 0"
    cards = [remarks.card("tiny"), remarks.card("tiny-small")]
    assert row["backbone"] == remarks.missed_gates(["ranking"], cards)


@pytest.mark.parametrize("name", claims.CLAIMS)
def test_claims_name_gates_and_sizes_that_exist(name: str) -> None:
    claim = claims.CLAIMS[name]
    figures = remarks.card("tiny")
    for gate in claim.get("gates", ()):
        assert remarks.gate_of(gate)
        assert gate in figures["format"] or gate in figures
    assert claim.get("size", "larger") in remarks.SIZES
