"""Tables of conversations: ratios with intervals, paired gains, and what can be read of a run."""

from random import Random

import numpy as np
import pandas as pd
import pytest
from pytest import approx

from reproduce.analysis import conversations

GROUP = {"all": ["AIME"]}


def frame(rows: list[tuple[str, int, int, float, float | None]]) -> pd.DataFrame:
    """Rows of (method, seed, item, pass_1, rank_rho)."""
    made = pd.DataFrame(rows, columns=["method", "seed", "item", "pass_1", "rank_rho"])
    fixed = {
        "benchmark": "AIME",
        "pass_k": 1.0,
        "wrong_before": 2.0,
        "harmed": 0.0,
        "right_before": 0.0,
        "trained": True,
    }
    return made.assign(**fixed, fixed=made["pass_1"], rho_known=made["rank_rho"].notna().astype(float))


def shares(method: str, *seeds: float) -> list[tuple]:
    """400 items a seed, of which that share passes."""
    return [(method, s, i, float(i % 10 < 10 * share), None) for s, share in enumerate(seeds) for i in range(400)]


def test_ratios_pool_items_and_leave_out_what_is_undefined() -> None:
    made = frame([("a", 0, 0, 1.0, 0.5), ("a", 0, 1, 0.0, None), ("a", 0, 2, 1.0, 0.1)])
    table = conversations.measured(made, GROUP).set_index("measure")
    values = {"Pass@1": 2 / 3, "Pass@K": 1, "Rank-rho": 0.3, "Correction": 2 / 6, "Harm": float("nan")}
    assert table["value"].to_dict() == approx(values, nan_ok=True)
    assert table["n"].to_dict() == {"Pass@1": 3, "Pass@K": 3, "Rank-rho": 2, "Correction": 6, "Harm": 0}
    assert (table.loc["Pass@1", ["low", "high"]] == [0.0, 1.0]).all()
    assert conversations.cell(0.8, 0.7, 0.9, "Pass@1") == "80.0 [70.0, 90.0]"
    assert conversations.cell(float("nan"), 0, 0, "Harm") == "undefined"


def test_gains_are_paired_and_judged() -> None:
    rng = Random(0)
    hard = [rng.random() < 0.5 for _ in range(200)]
    rows = [(name, s, i, float(not h), None) for i, h in enumerate(hard) for name in ("base", "same") for s in (0, 1)]
    more = [("better", 0), ("better", 1), ("lone", 0)]
    rows += [(name, s, i, float(not h or i % 5 == 0), None) for i, h in enumerate(hard) for name, s in more]
    signs = {("better", "all", "Pass@1"): 1, ("same", "all", "Pass@1"): -1, ("lone", "all", "Pass@1"): 1}
    table = conversations.gains(frame(rows), "base", GROUP, ["Pass@1"], signs).set_index("method")
    expected = np.mean([h and i % 5 == 0 for i, h in enumerate(hard)])
    assert table["delta"].to_dict() == approx({"same": 0, "better": expected, "lone": expected})
    assert table["verdict"].to_dict() == {"same": "undecided", "better": "same sign", "lone": "one seed"}
    assert 0 < table.loc["better", "low"] < expected < table.loc["better", "high"] < 2 * expected
    turned = conversations.gains(frame(rows), "better", GROUP, ["Pass@1"], {("base", "all", "Pass@1"): 1})
    assert turned.set_index("method").loc["base", "verdict"] == "other sign"


def test_gains_compare_conversations_that_define_the_measure_for_both() -> None:
    # of "base", items 0 and 1 have a Rank-rho; of "ours", items 1 and 2 with seed 0, items 0 and 1 with seed 1
    rhos = {("base", 0): (0.9, 0.1, None), ("ours", 0): (None, 0.3, -0.8), ("ours", 1): (0.7, 0.5, None)}
    rows = [(method, seed, i, 1.0, rho) for (method, seed), said in rhos.items() for i, rho in enumerate(said)]
    table = conversations.gains(frame(rows), "base", GROUP, ["Rank-rho", "Harm", "Pass@1"], {}).set_index("measure")
    assert table["conversations"].to_dict() == {"Rank-rho": 3, "Harm": 0, "Pass@1": 6}
    assert table.loc["Rank-rho", "delta"] == approx((0.3 + 0.7 + 0.5) / 3 - (0.1 + 0.9 + 0.1) / 3)
    assert np.isnan(table.loc["Harm", "delta"])


def test_gains_use_every_seed_of_the_method_and_as_many_of_the_base() -> None:
    five = [0.5, 0.7, 0.6, 0.8, 0.9]  # their mean is 0.7
    made = frame(shares("five", *five) + shares("one", 0.5) + shares("two", 0.5, 0.6))
    # the base's seeds in order, its last one again where it has fewer: 0.5 or 0.58 of "two", 0.5 or 0.6 of "five"
    bases = {"one": {"five": 0.2, "two": 0.05}, "two": {"five": 0.12, "one": 0}, "five": {"one": 0, "two": -0.05}}
    for base, gains in bases.items():
        table = conversations.gains(made, base, GROUP, ["Pass@1"], {}).set_index("method")
        assert table["delta"].to_dict() == approx(gains)
        assert table["seeds"].to_dict() == {name: {"one": 1, "two": 2, "five": 5}[name] for name in gains}
        if base == "one":
            reach = 2.77645 * np.std(five, ddof=1) / 5**0.5  # Student's t, 4 degrees; the items add a little
            assert 0.9 * reach < table.loc["five", "high"] - 0.2 < 1.1 * reach


def test_a_spread_over_seeds_widens_the_interval() -> None:
    calm, mild, wild = (0.5, 0.5, 0.5), (0.4, 0.5, 0.6), (0.2, 0.5, 0.8)
    tabled = (conversations.measured(frame(shares("a", *seeds)), GROUP, ["Pass@1"]) for seeds in (calm, mild, wild))
    narrow, wide, whole = (table.to_dict("records")[0] for table in tabled)
    assert narrow["value"] == wide["value"] == whole["value"] == 0.5 and narrow["seeds"] == 3
    assert narrow["high"] - narrow["low"] < 0.11
    assert 0.8 < (wide["high"] - wide["low"]) / (2 * 4.30265 * 0.1 / 3**0.5) < 1  # Student's t, a little over 2 degrees
    assert (whole["low"], whole["high"]) == (0.0, 1.0)  # t alone would reach to 1.245


def test_a_method_without_conversations_or_with_gaps_is_refused() -> None:
    made = frame([("a", 0, 0, 1.0, None), ("a", 1, 1, 1.0, None)])
    for method in ("a", "b"):
        with pytest.raises(ValueError, match=f"'{method}'"):
            conversations.ratio_of(made, method, "Pass@1", ["AIME"])
