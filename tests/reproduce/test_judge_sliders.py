"""Playing with a judge's dial: the curve, the judgements and the sliders."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib import pyplot as plt
from pytest import approx

from reproduce.analysis import judge_sliders
from reproduce.analysis.judge_quality import OWN
from reproduce.analysis.judge_sliders import Choice, Judgement, Witness
from tinyworld import TinyWorld

START = Choice("MAE", 0.75, "random")
GAINS = {0.5: -1.0, 0.7: 3.0, 0.8: 5.0, 1.0: 9.0}


@pytest.fixture
def curves(tmp_path: Path) -> Iterator[Path]:
    """The folder of a committed curve."""
    rows = []
    for asked, gain in GAINS.items():
        row = {"method": "MAE", "errors": "random", "asked": asked}
        rows.append(row | {"over control": gain})
    own = {"method": "MAE", "errors": OWN, "measured": 0.6, "over control": 2.0}
    frame = pd.DataFrame([*rows, own])
    frame["over control, low"] = frame["over control"] - 1
    frame["over control, high"] = frame["over control"] + 1
    frame.to_csv(tmp_path / "curve.csv", index=False)
    with plt.rc_context({"backend": "agg"}):
        yield tmp_path
    plt.close("all")


def test_a_choice_stands_on_its_curve(curves: Path) -> None:
    fig = judge_sliders.draw(curves, START)
    assert fig is not None
    points = {}
    for line in fig.axes[0].lines:
        points[line.get_label()] = line.get_xydata()
    (star,) = points["your choice"]
    assert list(star) == approx([0.75, 4.0])
    (own,) = points["MAE with its own judge"]
    assert list(own) == approx([0.6, 2.0])


def test_without_runs_a_line_says_so(
    curves: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert judge_sliders.draw(curves, Choice("TTRL", 0.75, "level")) is None
    assert judge_sliders.draw(curves / "none", START) is None
    first, second = capsys.readouterr().out.splitlines()
    assert first == "no runs of TTRL with errors 'level'"
    assert second.startswith("no curve yet: ")


WRONG_CHOICES = {
    "method must be one of": ("SPICE", 0.7, "random"),
    "errors must be one of": ("MAE", 0.7, "never"),
    "accuracy must be from 0.5 to 1, got 0.4": ("MAE", 0.4, "random"),
}


@pytest.mark.parametrize("message", WRONG_CHOICES)
def test_a_wrong_choice_is_refused(message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Choice(*WRONG_CHOICES[message])


def test_a_short_run_has_the_chosen_judge(tmp_path: Path) -> None:
    choice = Choice("CoMAS", 0.6, "question")
    run = judge_sliders.short_run(choice, "smoke", 3, 2, str(tmp_path))
    assert run.method_name == "comas"
    assert run.control == "oracle"
    assert run.oracle_accuracy == 0.6
    assert run.oracle_errors == "question"
    assert run.seed == 3


@pytest.mark.parametrize("accuracy", [0.6, 1.0])
def test_a_witness_says_what_the_dial_says_and_knows_better(accuracy: float) -> None:
    witness = Witness(TinyWorld(), accuracy)
    false = 0
    for number in range(200):
        word = witness.answer_is_correct("3+4", "7", (number,))
        assert witness.heard[-1] == Judgement("3+4", "the answer 7", word, True)
        false += not word
    assert false / 200 == approx(1 - accuracy, abs=0.1)
    witness.question_is_well_formed("3+4", (0,))
    assert witness.heard[-1].judged == "the question"
    assert witness.heard[-1].truth


def judgement(question: str, word: bool, truth: bool | None) -> Judgement:
    return Judgement(question, "the answer 1", word, truth)


def test_a_false_word_is_among_those_shown() -> None:
    heard = [Judgement("0", "the question", word=True, truth=True)]
    heard += [judgement("a", word=True, truth=None)]
    heard += [judgement(name, word=True, truth=True) for name in "bbcd"]
    heard += [judgement(name, word=True, truth=False) for name in "ef"]
    shown = judge_sliders.chosen(heard)
    assert [one.question for one in shown] == ["e", "b", "c"]
    only_true = judge_sliders.chosen(heard[:3])
    assert [one.question for one in only_true] == ["b", "0"]


def test_judgements_stand_beside_the_truth() -> None:
    table = judge_sliders.judgement_table([judgement("1+1", word=True, truth=False)])
    assert table.to_dict("records") == [
        {
            "question": "1+1",
            "judged": "the answer 1",
            "the judge says": "right",
            "the oracle knows": "wrong",
        }
    ]


class Calls:
    """What a panel showed and trained."""

    def __init__(self) -> None:
        self.shown: list[Choice] = []
        self.trained: list[Choice] = []

    def panel(self) -> Any:
        """Return a panel that calls this object."""
        return judge_sliders.panel(START, self.shown.append, self.trained.append)


def test_sliders_show_and_the_button_trains() -> None:
    pytest.importorskip("ipywidgets")
    calls = Calls()
    method, accuracy, errors, _, button, _ = calls.panel().children
    assert calls.shown == [START]
    method.value = "CoNL"
    accuracy.value = 0.6
    errors.value = "question"
    assert calls.trained == []
    button.click()
    last = Choice("CoNL", 0.6, "question")
    assert calls.trained == [last]
    assert calls.shown[-1] == last


def test_without_ipywidgets_the_first_choice_is_trained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    calls = Calls()
    assert calls.panel() is None
    assert calls.shown == [START]
    assert calls.trained == [START]
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("ipywidgets is not installed")
