"""Control arms of a method, on made-up answers and training curves."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pretend_runs
import pytest
from pandas.testing import assert_frame_equal
from pytest import approx

from coevolve.runs.record import Recorder
from reproduce import registry
from reproduce.analysis import controls, five_methods, records
from reproduce.analysis.controls import Arm, Evidence
from reproduce.analysis.evidence import TOKENS, VALIDATION, RunFolders

ROOT = Path(__file__).parents[2]
OWN_RUNS = {"MAE": "mae_half", "CoNL": "conl"}
ARMS = controls.arms_of(OWN_RUNS, ["random", "oracle"])
CORRECT = {  # of 20 test questions after training, by seed; 4 before it
    "MAE": [15, 16, 14],
    "MAE, random": [9, 10, 8],
    "MAE, oracle": [17, 18, 16],
    "CoNL": [12, 11, 13],
    "CoNL, random": [12, 11, 13],
    "CoNL, oracle": [19, 18, 20],
}
TOKENS_PER_STEP = {"MAE, oracle": 50}  # 100 for all others
QUESTIONS = 20
STEPS = 10


def answers_of(label: str, seed: int, correct: int, trained: bool) -> pd.DataFrame:
    frame = pd.DataFrame({"item": range(QUESTIONS)})
    is_correct = frame["item"] < correct
    return frame.assign(
        method=label,
        seed=seed,
        benchmark="test",
        question=frame["item"],
        correct=is_correct,
        trained=trained,
    )


def curve_of(label: str, seed: int) -> pd.DataFrame:
    """A validation accuracy that rises by five points a step, by six in arm MAE."""
    is_mae = label == "MAE"
    slope = 6 if is_mae else 5
    start = 20 + seed if is_mae else 20
    tokens = TOKENS_PER_STEP.get(label, 100)
    frame = pd.DataFrame({"step": range(STEPS + 1)})
    step = frame["step"]
    return frame.assign(
        method=label,
        seed=seed,
        generated=tokens,
        tokens=tokens * step,
        accuracy=start + slope * step,
    )


@pytest.fixture
def evidence() -> Evidence:
    answers = []
    curves = []
    for label, correct_by_seed in CORRECT.items():
        for seed, correct in enumerate(correct_by_seed):
            answers.append(answers_of(label, seed, 4, trained=False))
            answers.append(answers_of(label, seed, correct, trained=True))
            curves.append(curve_of(label, seed))
    curve = pd.concat(curves, ignore_index=True)
    played = curve[curve["step"] > 0]
    totals = played.groupby(["method", "seed"], sort=False)["generated"].sum()
    training = five_methods.Training(curve, validated=curve, totals=totals)
    return Evidence(pd.concat(answers, ignore_index=True), training)


def arm(label: str) -> Arm:
    return next(one for one in ARMS if one.label == label)


def test_arms_are_named_by_method_and_control() -> None:
    runs = [one.run for one in ARMS]
    assert runs == [
        "mae_random",
        "mae_oracle",
        "mae_half",
        "conl_random",
        "conl_oracle",
        "conl",
    ]


def test_every_arm_of_the_table_has_a_run() -> None:
    more = ROOT / "reproduce/extra/controls.toml"
    _, entries = registry.read(ROOT, "quick", more)
    own_runs = {
        "SAGE": "sage",
        "SPICE": "spice",
        "CoMAS": "comas",
        **OWN_RUNS,
    }
    arms = controls.arms_of(own_runs, list(controls.CONTROLS))
    runs = [one.run for one in arms]
    assert set(runs) == set(entries.artefacts["control_records"].runs)
    for one in arms:
        control = entries.runs[one.run].overrides.get("control", "")
        assert control == ("" if one.name == controls.OWN else one.name)


@pytest.fixture
def folders(tmp_path: Path) -> RunFolders:
    """Pretend runs of all arms, a seed for each of two backbones."""
    runs = {one.run: pretend_runs.SEEDS for one in ARMS}
    for run, seeds in runs.items():
        for seed in seeds:
            recorder = Recorder(tmp_path / f"{run}-s{seed}")
            pretend_runs.write(recorder, run, seed)
    return RunFolders(tmp_path, runs)


def test_arms_are_read_from_their_runs_as_the_five_methods_are(
    folders: RunFolders,
) -> None:
    labels = controls.labels_of(ARMS)
    found = controls.read(folders, ARMS)
    answers = five_methods.read_answers(folders.folder, folders.runs, labels)
    keys = ["method", "trained", "seed", "item", "unit", "correct"]
    order = keys[:4]
    assert_frame_equal(
        found.answers[keys].sort_values(order, ignore_index=True),
        answers[keys].sort_values(order, ignore_index=True),
        check_dtype=False,
    )
    training = five_methods.read_training(folders.folder, folders.runs, labels)
    pd.testing.assert_series_equal(found.training.totals, training.totals)
    looks = ["method", "seed", "unit", "step", "tokens", "accuracy"]
    assert_frame_equal(
        found.training.validated[looks].reset_index(drop=True),
        training.validated[looks].reset_index(drop=True),
    )


def test_committed_records_give_the_same_table(folders: RunFolders) -> None:
    home = folders.folder / "records"
    records.pack(folders, home, [TOKENS, VALIDATION])
    from_folders = controls.weigh(controls.read(folders, ARMS), ARMS)
    from_records = controls.weigh(controls.read(records.Records(home), ARMS), ARMS)
    assert_frame_equal(from_folders, from_records, rtol=1e-4)
    assert (
        from_folders["over"].notna().sum() == 6
    )  # of two methods over three arms each


def test_arms_with_as_many_tokens_are_compared_on_test_questions(
    evidence: Evidence,
) -> None:
    gain = controls.gain_over_control(evidence, arm("MAE"), arm("MAE, random"))
    assert gain.budget is None
    assert gain.points == approx(100 * (15 - 9) / QUESTIONS)
    assert gain.low < gain.points < gain.high


def test_an_arm_that_writes_less_is_compared_where_it_ends(evidence: Evidence) -> None:
    gain = controls.gain_over_control(evidence, arm("MAE"), arm("MAE, oracle"))
    assert gain.budget == 500  # 10 steps of the oracle's arm, 5 of the method
    method_of_middle_seed = 20 + 1 + 6 * 5
    oracle = 20 + 5 * 10
    assert gain.points == approx(method_of_middle_seed - oracle)
    # The pairs' standard deviation is 1; Student's t of 2 degrees of freedom is 4.303.
    half_width = 4.303 / np.sqrt(3)
    assert gain.high == approx(gain.points + half_width, abs=0.001)
    assert gain.place == "validation, at 500 tokens"


def test_the_smaller_total_counts_whichever_arm_has_it(evidence: Evidence) -> None:
    mae = arm("MAE")
    oracle = arm("MAE, oracle")
    there = controls.gain_over_control(evidence, mae, oracle)
    back = controls.gain_over_control(evidence, oracle, mae)
    assert there.budget == back.budget
    assert there.points == approx(-back.points)


def test_the_table_has_a_row_per_arm_and_one_for_the_untrained_model(
    evidence: Evidence,
) -> None:
    weighed = controls.weigh(evidence, ARMS)
    mae = weighed[weighed["method"] == "MAE"].set_index("arm")
    assert list(mae.index) == ["untrained", "random", "oracle", controls.OWN]
    untrained = mae.loc["untrained"]
    random = mae.loc["random"]
    own = mae.loc[controls.OWN]
    assert untrained["accuracy"] == approx(20)
    assert random["gain"] == approx(100 * (9 - 4) / QUESTIONS)
    # Over the untrained model, the method gains the same in either column.
    assert untrained["over"] == own["gain"]
    assert np.isnan(own["over"])
    # The oracle's arm writes less, and is compared twice.
    oracle = mae.loc["oracle"]
    assert oracle["over"] == approx(100 * (15 - 17) / QUESTIONS)
    assert oracle["budget"] == 500
    assert oracle["equal"] == approx(20 + 1 + 6 * 5 - (20 + 5 * 10))
    assert np.isnan(random["budget"])

    table = controls.readable(weighed)
    assert table.notna().all(axis=None)
    assert "1 of 4 comparisons" in controls.note(evidence, weighed)


def test_comparisons_with_floors_are_corrected_for_their_number(
    evidence: Evidence,
) -> None:
    """CoNL is no better than its floor, so that MAE's p-value alone is doubled."""
    weighed = controls.weigh(evidence, ARMS).set_index(["method", "arm"])
    corrected = weighed["p_holm"].dropna()
    assert list(corrected.index) == [("MAE", "random"), ("CoNL", "random")]
    p = weighed.loc[("MAE", "random"), "p"]
    assert 0 < p < 0.5
    assert corrected["MAE", "random"] == approx(2 * p)
    assert corrected["CoNL", "random"] == 1


def test_gains_in_words_name_another_place(evidence: Evidence) -> None:
    words = controls.gains_in_words(evidence, ARMS, "oracle")
    assert words["MAE"].endswith("(validation, at 500 tokens)")
    assert words["CoNL"].startswith("-35.0 [")


@pytest.mark.parametrize(
    ("seeds_of_oracle", "words"),
    [([0], "1 to 3 seeds each"), ([0, 1, 2], "3 seeds each")],
)
def test_the_caption_counts_seeds(seeds_of_oracle: list[int], words: str) -> None:
    runs = {one.run: [0, 1, 2] for one in ARMS}
    runs["conl_oracle"] = seeds_of_oracle
    assert controls.seeds(runs, ARMS) == words


def test_the_figure_has_a_dot_per_trained_arm(evidence: Evidence) -> None:
    weighed = controls.weigh(evidence, ARMS)
    gains_of = weighed.dropna(subset="gain").groupby("method")["gain"]
    fig = controls.draw(weighed)
    for ax, method in zip(fig.axes, OWN_RUNS, strict=True):
        names = [label.get_text() for label in ax.get_yticklabels()]
        assert names == ["random", "oracle", controls.OWN]
        dots = []
        for line in ax.lines:
            if line.get_marker() != "None":
                dots.append(line.get_xdata()[0])
        gains = gains_of.get_group(method)
        assert dots == approx(list(gains))
    plt.close(fig)
