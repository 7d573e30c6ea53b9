"""Tables of conversations: ratios with intervals, paired gains, and errors for missing data."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import pandas as pd
import pytest
from pytest import approx

from reproduce.analysis import conversations

GROUP = {"all": ["AIME"]}
ITEMS = 400
# Degrees of freedom: Student's 97.5 % quantile.
T_QUANTILE = {
    2: 4.30265,
    4: 2.77645,
}


@dataclass(frozen=True)
class Talk:
    """One conversation about an item."""

    method: str
    seed: int
    item: int
    pass_1: float = 1.0
    rank_rho: float | None = None


def frame_of(talks: Sequence[Talk]) -> pd.DataFrame:
    """Conversations with two wrong solutions each, of which `pass_1` are corrected."""
    frame = pd.DataFrame(talks)
    return frame.assign(
        benchmark="AIME",
        pass_k=1.0,
        fixed=frame["pass_1"],
        wrong_before=2.0,
        harmed=0.0,
        correct_before=0.0,
        rho_known=frame["rank_rho"].notna().astype(float),
        trained=True,
    )


def passing(method: str, shares: Sequence[float]) -> list[Talk]:
    """400 conversations per seed, of which the given share passes."""
    talks = []
    for seed, share in enumerate(shares):
        for item in range(ITEMS):
            passes = item % 10 < 10 * share
            talks.append(Talk(method, seed, item, float(passes)))
    return talks


def measured(talks: Sequence[Talk]) -> pd.DataFrame:
    table = conversations.measured(frame_of(talks), GROUP)
    return table.set_index("measure")


def pass_1_gains(
    talks: Sequence[Talk], base: str, signs: dict | None = None
) -> pd.DataFrame:
    frame = frame_of(talks)
    table = conversations.gains(frame, base, GROUP, ["Pass@1"], signs or {})
    return table.set_index("method")


@pytest.fixture
def three_items() -> pd.DataFrame:
    talks = [
        Talk("a", 0, 0, pass_1=1.0, rank_rho=0.5),
        Talk("a", 0, 1, pass_1=0.0),
        Talk("a", 0, 2, pass_1=1.0, rank_rho=0.1),
    ]
    return measured(talks)


def test_a_ratio_pools_items(three_items: pd.DataFrame) -> None:
    values = three_items["value"]
    assert values["Pass@1"] == approx(2 / 3)
    assert values["Pass@K"] == 1
    assert values["Correction"] == approx(2 / 6)
    assert values["Rank-rho"] == approx(0.3)
    assert np.isnan(values["Harm"])


def test_the_denominator_leaves_out_what_is_undefined(
    three_items: pd.DataFrame,
) -> None:
    counts = three_items["n"]
    assert counts["Pass@1"] == 3
    assert counts["Pass@K"] == 3
    assert counts["Rank-rho"] == 2
    assert counts["Correction"] == 6
    assert counts["Harm"] == 0


def test_limits_end_where_a_share_ends(three_items: pd.DataFrame) -> None:
    pass_1 = three_items.loc["Pass@1"]
    assert pass_1["low"] == 0.0
    assert pass_1["high"] == 1.0


def test_a_cell_is_in_percent_or_undefined() -> None:
    assert conversations.cell(0.8, 0.7, 0.9, "Pass@1") == "80.0 [70.0, 90.0]"
    assert conversations.cell(float("nan"), 0, 0, "Harm") == "undefined"


@pytest.fixture
def paired_talks() -> tuple[list[Talk], float]:
    """A base, a method that equals it, and a better one, also with one seed; and the true gain."""
    rng = Random(0)
    hard = [rng.random() < 0.5 for _ in range(200)]
    talks = []
    improved = []
    for item, is_hard in enumerate(hard):
        solved_by_better = not is_hard or item % 5 == 0
        improved.append(is_hard and item % 5 == 0)
        for seed in (0, 1):
            talks.append(Talk("base", seed, item, float(not is_hard)))
            talks.append(Talk("same", seed, item, float(not is_hard)))
            talks.append(Talk("better", seed, item, float(solved_by_better)))
        talks.append(Talk("lone", 0, item, float(solved_by_better)))
    return talks, np.mean(improved)


def test_gains_are_paired_and_judged(
    paired_talks: tuple[list[Talk], float],
) -> None:
    talks, true_gain = paired_talks
    signs = {
        ("better", "all", "Pass@1"): 1,
        ("same", "all", "Pass@1"): -1,
        ("lone", "all", "Pass@1"): 1,
    }
    gains = pass_1_gains(talks, "base", signs)
    same = gains.loc["same"]
    better = gains.loc["better"]
    lone = gains.loc["lone"]
    assert same["delta"] == approx(0)
    assert same["verdict"] == "undecided"
    assert better["delta"] == approx(true_gain)
    assert better["verdict"] == "as printed"
    assert lone["delta"] == approx(true_gain)
    assert lone["verdict"] == "one seed"
    assert 0 < better["low"] < true_gain < better["high"] < 2 * true_gain


def test_a_loss_where_a_gain_is_claimed_has_the_other_sign(
    paired_talks: tuple[list[Talk], float],
) -> None:
    talks, _ = paired_talks
    gains = pass_1_gains(talks, "better", {("base", "all", "Pass@1"): 1})
    assert gains.loc["base", "verdict"] == "against print"


def test_gains_compare_conversations_that_define_the_measure_for_both() -> None:
    talks = [
        Talk("base", 0, 0, rank_rho=0.9),
        Talk("base", 0, 1, rank_rho=0.1),
        Talk("base", 0, 2),
        Talk("ours", 0, 0),
        Talk("ours", 0, 1, rank_rho=0.3),
        Talk("ours", 0, 2, rank_rho=-0.8),
        Talk("ours", 1, 0, rank_rho=0.7),
        Talk("ours", 1, 1, rank_rho=0.5),
        Talk("ours", 1, 2),
    ]
    measures = ["Rank-rho", "Harm", "Pass@1"]
    table = conversations.gains(frame_of(talks), "base", GROUP, measures, {})
    gains = table.set_index("measure")
    counts = gains["conversations"]
    assert counts["Rank-rho"] == 3
    assert counts["Harm"] == 0
    assert counts["Pass@1"] == 6
    ours = (0.3 + 0.7 + 0.5) / 3
    base = (0.1 + 0.9 + 0.1) / 3
    assert gains.loc["Rank-rho", "delta"] == approx(ours - base)
    assert np.isnan(gains.loc["Harm", "delta"])


# Seeds pair in order, and the base's last one stands for those it lacks: the base "two" has 0.5
# and then 0.6 beside the five seeds of "five", 0.58 on average.
GAINS_OVER = {
    "one": {"five": 0.2, "two": 0.05},
    "two": {"five": 0.12, "one": 0},
    "five": {"one": 0, "two": -0.05},
}
SEEDS = {"one": 1, "two": 2, "five": 5}
SHARES_OF_FIVE = [0.5, 0.7, 0.6, 0.8, 0.9]  # their mean is 0.7


@pytest.fixture
def talks_of_unequal_seeds() -> list[Talk]:
    five = passing("five", SHARES_OF_FIVE)
    one = passing("one", [0.5])
    two = passing("two", [0.5, 0.6])
    return five + one + two


@pytest.mark.parametrize("base", GAINS_OVER)
def test_gains_use_every_seed_of_the_method(
    base: str, talks_of_unequal_seeds: list[Talk]
) -> None:
    gains = pass_1_gains(talks_of_unequal_seeds, base)
    assert gains["delta"].to_dict() == approx(GAINS_OVER[base])
    for method in GAINS_OVER[base]:
        assert gains.loc[method, "seeds"] == SEEDS[method]


def test_the_noise_of_a_gain_over_one_seed_is_that_of_the_method_s_seeds(
    talks_of_unequal_seeds: list[Talk],
) -> None:
    gains = pass_1_gains(talks_of_unequal_seeds, "one")
    standard_error = np.std(SHARES_OF_FIVE, ddof=1) / 5**0.5
    half_width = T_QUANTILE[4] * standard_error  # the items add a little
    assert gains.loc["five", "high"] - 0.2 == approx(half_width, rel=0.1)


def interval_of(*shares: float) -> pd.Series:
    return measured(passing("a", shares)).loc["Pass@1"]


def test_a_spread_over_seeds_widens_the_interval() -> None:
    calm = interval_of(0.5, 0.5, 0.5)
    mild = interval_of(0.4, 0.5, 0.6)
    wild = interval_of(0.2, 0.5, 0.8)
    assert calm["value"] == mild["value"] == wild["value"] == 0.5
    assert calm["seeds"] == 3
    assert calm["high"] - calm["low"] < 0.11
    seed_width = 2 * T_QUANTILE[2] * 0.1 / 3**0.5
    assert 0.8 < (mild["high"] - mild["low"]) / seed_width < 1, (
        "a little over two degrees"
    )
    assert wild["low"] == 0.0
    assert wild["high"] == 1.0, "Student's t alone would reach to 1.245"


@pytest.mark.parametrize("method", ["a", "absent"])
def test_a_method_without_conversations_or_with_gaps_is_refused(
    method: str,
) -> None:
    frame = frame_of([Talk("a", 0, 0), Talk("a", 1, 1)])
    with pytest.raises(ValueError, match=f"'{method}'"):
        conversations.ratio_of(frame, method, "Pass@1", ["AIME"])
