"""How good a judge must be, on pretend runs whose gains and crossings are known."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pretend_judges import (
    ACCURACIES,
    CROSSINGS,
    ITEMS,
    UNTRAINED,
    row_of,
    runs_in,
    write_all,
    write_run,
)
from pytest import approx

from reproduce.analysis import judge_quality
from reproduce.analysis.evidence import RunFolders
from reproduce.analysis.judge_quality import AT_ONCE, NEVER, OWN, SHUFFLED, Arm

CONTROL_OVER_UNTRAINED = 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    write_all(folder)
    return folder


@pytest.fixture(scope="module")
def study(folder: Path) -> judge_quality.Study:
    runs = runs_in(folder)
    return judge_quality.read(RunFolders(folder, runs))


@pytest.fixture(scope="module")
def effects(study: judge_quality.Study) -> pd.DataFrame:
    return judge_quality.effects(study)


@pytest.fixture(scope="module")
def crossings(study: judge_quality.Study) -> pd.DataFrame:
    return judge_quality.crossings(study)


def test_errors_of_another_kind_are_compared_with_random_ones(
    study: judge_quality.Study,
) -> None:
    """At a mean accuracy of 0.7, random errors gain 5 points and those by question lose 5."""
    table = judge_quality.against_random(study)
    row = row_of(table, method="MAE")
    assert row["errors"] == "question"
    assert row["accuracies"] == 5  # of the six, 1.0 has no errors
    assert row["units"] == 5
    assert row["difference"] == approx(-10)
    assert row["difference, low"] < -10 < row["difference, high"]
    assert len(table) == 1, "SAGE has random errors alone"


def test_crossings_are_found_where_they_were_put(crossings: pd.DataFrame) -> None:
    row = row_of(crossings, method="MAE", errors="random")
    assert row == {
        "method": "MAE",
        "errors": "random",
        "accuracy": "0.650",
        "low": "0.630",
        "high": "0.670",
        "confidence, %": 93.8,
        "units": 5,
        "each": "0.630, 0.640, 0.650, 0.660, 0.670",
    }


def test_a_gain_may_never_be_positive_or_at_once(crossings: pd.DataFrame) -> None:
    never = row_of(crossings, method="MAE", errors="question")
    at_once = row_of(crossings, method="SAGE", errors="random")
    for limit in ("accuracy", "low", "high"):
        assert never[limit] == "never"
        assert at_once[limit] == "at once"


@dataclass(frozen=True)
class Curve:
    """Gains at the accuracies 0.5, 0.6 and 0.7, and where they become positive."""

    at_50: float
    at_60: float
    at_70: float
    crossing: float


CURVES = [
    Curve(at_50=-2, at_60=-1, at_70=1, crossing=0.65),
    Curve(at_50=-2, at_60=0, at_70=2, crossing=0.6),  # 0 is no gain
    # The nearest gains that never fall are -1, 1, 1.
    Curve(at_50=-1, at_60=2, at_70=0, crossing=0.55),
    Curve(at_50=1, at_60=2, at_70=3, crossing=AT_ONCE),
    Curve(at_50=3, at_60=-1, at_70=3, crossing=AT_ONCE),
    Curve(at_50=-3, at_60=-2, at_70=0, crossing=NEVER),
    Curve(at_50=4, at_60=-5, at_70=-2, crossing=NEVER),
]


@pytest.mark.parametrize("curve", CURVES)
def test_a_crossing_is_read_off_gains_that_never_fall(curve: Curve) -> None:
    accuracies = [0.5, 0.6, 0.7]
    gains = [curve.at_50, curve.at_60, curve.at_70]
    found = judge_quality.crossing(accuracies, gains)
    assert found == approx(curve.crossing)


def test_the_limits_of_a_median_may_be_infinite() -> None:
    values = [0.6, NEVER, 0.7, AT_ONCE, 0.65]
    five = judge_quality.median(values)
    assert five.low == AT_ONCE
    assert five.value == 0.65
    assert five.high == NEVER
    assert five.confidence == approx(1 - 2 / 2**5)


def test_limits_of_many_units_leave_out_the_extremes() -> None:
    ten = judge_quality.median(range(10))
    assert ten.low == 1
    assert ten.high == 8
    # The median is outside of the second and the ninth in 2 * (1 + 10) of 2**10 cases.
    assert ten.confidence == approx(1 - 22 / 1024)
    one = judge_quality.median([0.6])
    assert one.confidence == 0


def test_gains_are_paired_by_backbone(effects: pd.DataFrame) -> None:
    """The controls are 8 points apart, and the gains of all backbones are equal."""
    row = row_of(effects, method="SAGE", errors="random", asked=0.5)
    assert row["over control"] == approx(5)
    assert row["units"] == 5
    # Only the questions are left to vary.
    low = row["over control, low"]
    assert 0 < low < 5


def test_a_gain_is_also_over_the_untrained_backbone(effects: pd.DataFrame) -> None:
    row = row_of(effects, method="SAGE", errors="random", asked=1.0)
    assert row["gain"] == approx(10 + CONTROL_OVER_UNTRAINED)
    control = row_of(effects, method="SAGE", errors=SHUFFLED)
    assert control["gain"] == approx(CONTROL_OVER_UNTRAINED)
    assert np.isnan(control["over control"])


def test_limits_are_students_over_backbones_and_questions(
    study: judge_quality.Study,
) -> None:
    arm = Arm("MAE", "random", 1.0)
    gain_UI = judge_quality.gain_UI(study, arm, "control")
    gain_U = gain_UI.mean(axis=1)
    expected = 100 - 100 * np.array(CROSSINGS)
    assert gain_U.to_numpy() == approx(expected)
    of_backbones = gain_U.var() / 5
    # The means over backbones hold noise of single answers, which the backbones count already.
    rest_UI = gain_UI.sub(gain_U, axis=0) - gain_UI.mean() + gain_U.mean()
    mean_square = (rest_UI**2).to_numpy().sum() / (4 * (ITEMS - 1))
    of_questions = (gain_UI.mean().var() - mean_square / 5) / ITEMS
    effect = judge_quality.effect(gain_UI)
    assert effect.delta == approx(expected.mean())
    assert effect.standard_error == approx(np.sqrt(of_backbones + of_questions))


def test_seeds_of_a_backbone_are_averaged(effects: pd.DataFrame) -> None:
    own = row_of(effects, method="MAE", errors=OWN)
    assert own["over control"] == approx(4)
    assert own["units"] == 5
    assert own["tokens"] == 1000


def test_with_one_backbone_the_seed_is_the_unit(tmp_path: Path) -> None:
    for seed in range(3):
        points = UNTRAINED + seed
        for run in ("judge_mae-random-0_5", "mae_shuffled"):
            write_run(tmp_path, run, seed, points, {}, model="tiny-small")
    study = judge_quality.read(RunFolders(tmp_path, runs_in(tmp_path)))
    units = set(study.runs["unit"])
    assert units == {"seed 0", "seed 1", "seed 2"}
    effects = judge_quality.effects(study)
    row = row_of(effects, errors="random")
    assert row["over control"] == 0
    assert row["over control, high"] == 0
    assert "Number of seeds: 3" in judge_quality.note(study)


@pytest.fixture(scope="module")
def single(folder: Path) -> judge_quality.Study:
    """One seed of every run."""
    runs = {run: [0] for run in runs_in(folder)}
    return judge_quality.read(RunFolders(folder, runs))


def test_one_backbone_has_no_limits(single: judge_quality.Study) -> None:
    effects = judge_quality.effects(single)
    row = row_of(effects, method="MAE", errors="random", asked=1.0)
    assert row["over control"] == approx(37 - 2), "this seed of the control is better"
    assert np.isnan(row["over control, low"])
    crossings = judge_quality.crossings(single)
    crossing = row_of(crossings, method="MAE", errors="random")
    assert crossing["accuracy"] == "0.650"
    assert crossing["low"] == ""
    assert np.isnan(crossing["confidence, %"])


def test_arms_without_a_common_backbone_are_refused(folder: Path) -> None:
    runs = {"judge_mae-random-0_5": [1], "mae_shuffled": [2]}
    study = judge_quality.read(RunFolders(folder, runs))
    with pytest.raises(ValueError, match="must share backbones and questions"):
        judge_quality.effects(study)


ARMS = {
    "judge_conl-question-0_7": Arm("CoNL", "question", 0.7),
    "judge_mae-level-1_0": Arm("MAE", "level", 1.0),
}


@pytest.mark.parametrize("run", ARMS)
def test_a_run_of_a_grid_is_known_by_its_name(run: str) -> None:
    assert judge_quality.arm_of(run) == ARMS[run]


def test_runs_without_an_oracle_are_known_by_their_names() -> None:
    own = judge_quality.arm_of("ttrl")
    assert own.errors == OWN
    control = judge_quality.arm_of("ttrl_shuffled")
    assert control.errors == SHUFFLED


@pytest.mark.parametrize("run", ["judge_mae", "judge_spice-random-0_7", "spice"])
def test_another_run_is_refused(run: str) -> None:
    with pytest.raises(ValueError, match="run must be judge_METHOD-ERRORS-ACCURACY"):
        judge_quality.arm_of(run)


STEPS = pd.DataFrame({"step": [0, 1, 2]})


def test_the_judges_accuracy_is_a_ratio_of_sums() -> None:
    counted = STEPS.assign(
        tp=[9, 1, 2],
        tn=[9, 1, 0],
        fp=[9, 0, 4],
        fn=[9, 0, 0],
    )
    comas = judge_quality.SUBJECT_OF["CoMAS"]
    accuracy = judge_quality.judge_accuracy(counted, comas)
    assert accuracy == approx(4 / 8), "of steps 1 and 2"


def test_the_judges_accuracy_is_a_mean_of_shares() -> None:
    shared = STEPS.assign(
        critic_question_correct=[np.nan, 0.5, 0.7],
        critic_plan_correct=[np.nan, np.nan, 1.0],
    )
    sage = judge_quality.SUBJECT_OF["SAGE"]
    accuracy = judge_quality.judge_accuracy(shared, sage)
    assert accuracy == approx(0.8)


@pytest.mark.parametrize("subject", judge_quality.SUBJECTS, ids=lambda one: one.name)
def test_without_a_record_the_judges_accuracy_is_unknown(
    subject: judge_quality.Subject,
) -> None:
    accuracy = judge_quality.judge_accuracy(STEPS, subject)
    assert np.isnan(accuracy)


@pytest.fixture(scope="module")
def table(effects: pd.DataFrame) -> pd.DataFrame:
    return judge_quality.main_table(effects)


def test_the_rows_are_in_order(table: pd.DataFrame) -> None:
    methods = ["MAE"] * 14 + ["SAGE"] * 7
    assert table["method"].tolist() == methods
    levels = len(ACCURACIES)
    errors = ["random"] * levels + ["question"] * levels
    errors += [OWN, SHUFFLED]
    errors += ["random"] * levels + [SHUFFLED]
    assert table["errors"].tolist() == errors


def test_a_row_is_in_words(table: pd.DataFrame) -> None:
    first = table.iloc[0]
    assert first["accuracy asked, %"] == "50"
    assert first["accuracy measured, %"] == "49.0"
    gain = first["gain over control, points"]
    assert gain.startswith("-15.0 [")
    assert first["tokens a run"] == "1,000"
    control = table.iloc[-1]
    assert control["accuracy asked, %"] == ""
    assert control["gain over control, points"] == ""
