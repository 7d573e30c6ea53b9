"""Five methods on one budget: tokens, correct rewards and crossed judges, on made-up numbers."""

import numpy as np
import pandas as pd
import pytest
from pytest import approx

from reproduce.analysis import crossed_judges, five_methods

METHODS = ["MAE", "SAGE", "SPICE", "CoMAS", "CoNL"]


@pytest.fixture
def training() -> five_methods.Training:
    """Five methods that write 100 tokens a step for ten steps, MAE twice as many, and a base."""
    frames = []
    for method in METHODS:
        tokens = 200 if method == "MAE" else 100
        steps = pd.DataFrame({"step": range(1, 11)})
        frames.append(
            steps.assign(
                method=method,
                seed=0,
                generated=tokens,
                tokens=tokens * steps["step"],
                accuracy=10.0 * steps["step"],
            )
        )
    base = {
        "step": [0],
        "method": "Untrained",
        "seed": 0,
        "generated": 0,
        "tokens": 0,
        "accuracy": 5.0,
    }
    curves = pd.concat([*frames, pd.DataFrame(base)], ignore_index=True)
    totals = curves.groupby(["method", "seed"], sort=False)["generated"].sum()
    return five_methods.Training(curves, validated=curves, totals=totals)


def test_the_budget_is_the_smallest_total_of_the_methods_that_generate(
    training: five_methods.Training,
) -> None:
    assert list(training.writers) == METHODS
    assert training.budgets == [1000]


def test_accuracy_at_a_budget_is_interpolated(training: five_methods.Training) -> None:
    assert five_methods.accuracy_at(training, 250, "SAGE") == approx([25.0])
    assert five_methods.accuracy_at(training, 500, "MAE") == approx([25.0])


def test_accuracy_beyond_the_end_of_a_run_is_unknown(
    training: five_methods.Training,
) -> None:
    (accuracy,) = five_methods.accuracy_at(training, 1500, "SAGE")
    assert np.isnan(accuracy)


def test_a_method_that_generates_nothing_has_one_accuracy(
    training: five_methods.Training,
) -> None:
    assert five_methods.accuracy_at(training, 1500, "Untrained") == approx([5.0])


@pytest.fixture
def counts() -> pd.DataFrame:
    """Ten steps of MAE's Judge, correct half of the time and then always, and CoMAS's counts."""
    steps = pd.DataFrame({"step": range(1, 11), "seed": 0})
    mae = steps.assign(method="MAE", judge_answer_correct=[0.5] * 5 + [1.0] * 5)
    comas = steps.assign(method="CoMAS", tp=2, tn=1, fp=1, fn=0)
    return five_methods.reward_counts(pd.concat([mae, comas], ignore_index=True))


def test_rewards_are_counted_as_ratios_of_sums(counts: pd.DataFrame) -> None:
    comas = counts[counts["method"] == "CoMAS"]
    assert (comas["correct"] == 3).all()
    assert (comas["total"] == 4).all()
    mae = counts[counts["method"] == "MAE"]
    assert (mae["total"] == 1).all()
    assert mae["share"].tolist() == approx([step / 10 for step in range(1, 11)])


def test_correct_rewards_are_compared_between_first_and_last_fifth(
    counts: pd.DataFrame,
) -> None:
    accuracy = five_methods.reward_accuracy(counts)
    assert accuracy.loc[("MAE", 0), "first fifth"] == approx(50)
    assert accuracy.loc[("MAE", 0), "last fifth"] == approx(100)
    assert accuracy.loc[("CoMAS", 0), "last fifth"] == approx(75)


def test_of_few_steps_the_first_and_the_last_count(counts: pd.DataFrame) -> None:
    ends = counts[counts["share"].isin([0.5, 1.0])]
    accuracy = five_methods.reward_accuracy(ends)
    assert accuracy.loc[("MAE", 0), "first fifth"] == approx(50)
    assert accuracy.loc[("MAE", 0), "last fifth"] == approx(100)


def test_ticks_are_between_one_percent_and_all_of_the_tokens() -> None:
    assert five_methods._token_ticks(5_000) == [0, 100, 300, 1000, 3000]


# Judge, answers: the judge's scores of two wrong answers and a correct one.
SCORES = {
    ("untrained", "untrained"): [0.0, 0.0, 1.0],
    ("trained", "untrained"): [1.0, 0.0, 1.0],
    ("untrained", "trained"): [0.0, 0.0, 1.0],
    ("trained", "trained"): [1.0, 1.0, None],
}


@pytest.fixture
def shares() -> pd.DataFrame:
    frames = []
    for (judge, answers), scores in SCORES.items():
        frame = pd.DataFrame({"pays": pd.Series(scores, dtype=float)})
        frame = frame.assign(
            correct=[False, False, True],
            method="MAE",
            judge=judge,
            answers=answers,
            seed=0,
        )
        frames.append(frame)
    return crossed_judges.beliefs(frames)


def test_beliefs_are_shares_of_the_scores_that_can_be_read(
    shares: pd.DataFrame,
) -> None:
    believed = shares["wrong believed"]
    assert believed["MAE", "untrained", "untrained", 0] == 0
    assert believed["MAE", "trained", "untrained", 0] == 50
    agrees = shares["agrees"]
    assert agrees["MAE", "untrained", "untrained", 0] == 100
    assert agrees["MAE", "trained", "trained", 0] == 0


def test_drift_is_split_into_judge_answers_and_both(shares: pd.DataFrame) -> None:
    drift = crossed_judges.drift_table(shares)
    is_wrong = drift["what"] == "wrong answers judged right, points"
    row = drift[is_wrong].iloc[0]
    assert row["judge alone"] == "+50.0"
    assert row["answers alone"] == "+0.0"
    assert row["together"] == "+50.0"
    assert row["in all"] == "+100.0"


def test_a_mean_over_seeds_has_limits_where_there_are_several() -> None:
    assert crossed_judges.with_limits(np.array([1.0])) == "1.0"
    assert crossed_judges.with_limits(np.array([1.0, np.nan, 1.0])) == "1.0 [1.0, 1.0]"
    assert crossed_judges.with_limits(np.array([np.nan])) == ""
