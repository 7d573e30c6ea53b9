"""CoNL's measures (Appendix F, Table 4) by hand, and their tables with intervals."""

import json
from random import Random

import numpy as np
import pandas as pd
import pytest

from coevolve.driver import Batched
from coevolve.papers.conl.method import CoNL
from coevolve.papers.conl.observed import examine, measures, order, pass_at, rank_rho, totals
from coevolve.types import Reply
from reproduce.analysis import conversations as tables


def test_pass_at_follows_the_ranking_and_breaks_ties_by_number() -> None:
    scores, right = [0.4, 0.7, 0.7, 0.2], [True, False, True, False]
    assert order(scores) == [1, 2, 0, 3]
    assert [pass_at(scores, right, k) for k in (1, 2, 3, 4, None)] == [0.0, 1.0, 1.0, 1.0, 1.0]
    assert pass_at(scores, [False] * 4) == 0.0 and pass_at([0.5] * 3, [False, True, True], 1) == 0.0


@pytest.mark.parametrize(
    ("scores", "right", "rho"),
    [
        ([0.9, 0.8, 0.2, 0.1], [True, True, False, False], 0.8944),
        ([0.1, 0.2, 0.8, 0.9], [True, True, False, False], -0.8944),
        ([0.9, 0.5, 0.1], [True, False, False], 0.8660),
        ([0.9, 0.1, 0.9, 0.1], [True, True, False, False], 0.0),
        ([0.6, 0.4], [True, False], 1.0),
        ([0.6, 0.4], [True, True], None),
        ([0.6, 0.4], [False, False], None),
        ([0.5, 0.5], [True, False], None),
    ],
)
def test_rank_rho_is_spearmans(scores: list, right: list, rho: float | None) -> None:
    """By hand: ranks 4 3 2 1 against ties 3.5 3.5 1.5 1.5 give 4 / sqrt(5 x 4) = 0.894."""
    assert rank_rho(scores, right) == (None if rho is None else pytest.approx(rho, abs=1e-4))


def test_measures_and_totals_by_hand() -> None:
    one = measures([0.7, 0.6, 0.3], [False, True, True], [True, True, False])
    assert one == {
        "pass_1": 1.0,
        "pass_k": 1.0,
        "rank_rho": pytest.approx(0.8660, abs=1e-4),
        "wrong_before": 1.0,
        "fixed": 1.0,
        "right_before": 2.0,
        "harmed": 1.0,
    }
    two = measures([0.5, 0.5, 0.5], [False] * 3, [False] * 3)
    assert (two["pass_1"], two["rank_rho"], two["wrong_before"], two["fixed"]) == (0.0, None, 3.0, 0.0)
    both = totals([one, two])
    assert both == {
        "n": 2,
        "pass_1": 0.5,
        "pass_k": 0.5,
        "rank_rho": one["rank_rho"],
        "rho_undefined": 1,
        "correction": 0.25,
        "harm": 0.5,
        "wrong_before": 4.0,
        "fixed": 1.0,
        "right_before": 2.0,
        "harmed": 1.0,
    }
    assert totals([two])["harm"] is None and totals([])["pass_1"] is None
    unknown = measures([0.7, 0.6, 0.3], [False, True, True], [True, None, False])
    assert unknown == dict.fromkeys(one) and totals([one, unknown, two]) == both, "unscored is not wrong"


def test_examine_discusses_test_items_of_the_families_trained_on() -> None:
    conl = CoNL(agents=2)
    rows = examine(conl, Batched(lambda turns: [Reply(turn, "ANSWER: 5") for turn in turns]), 2, (1,))
    assert len(rows) == 24 and {row["family"] for row in rows} == set(conl.families)
    assert [row["item"] for row in rows] == list(range(24)) and json.loads(json.dumps(rows)) == rows
    assert all(row["answers_after"] == ["5", "5"] and row["scores_after"] == [0.5, 0.5] for row in rows)
    assert not {row["question"] for row in rows} & set(conl.questions)


def frame(rows: list[tuple[str, int, int, float, float | None]]) -> pd.DataFrame:
    """Rows of (method, seed, item, pass_1, rank_rho)."""
    made = pd.DataFrame(rows, columns=["method", "seed", "item", "pass_1", "rank_rho"])
    return made.assign(
        benchmark="AIME",
        pass_k=1.0,
        fixed=made["pass_1"],
        wrong_before=2.0,
        harmed=0.0,
        right_before=0.0,
        rho_known=made["rank_rho"].notna().astype(float),
    )


def test_ratios_pool_items_and_leave_out_what_is_undefined() -> None:
    made = frame([("a", 0, 0, 1.0, 0.5), ("a", 0, 1, 0.0, None), ("a", 0, 2, 1.0, 0.1)])
    table = tables.measured(made, {"all": ["AIME"]}).set_index("measure")
    assert table.loc["Pass@1", "value"] == pytest.approx(2 / 3) and table.loc["Pass@1", "n"] == 3
    assert table.loc["Rank-rho", "value"] == pytest.approx(0.3) and table.loc["Rank-rho", "n"] == 2
    assert table.loc["Correction", "value"] == pytest.approx(2 / 6)
    assert np.isnan(table.loc["Harm", "value"])
    assert (table.loc["Pass@1", ["low", "high"]] == [0.0, 1.0]).all()
    assert tables.cell(0.8, 0.7, 0.9, "Pass@1") == "80.0 [70.0, 90.0]"
    assert tables.cell(0.8, 0.7, 0.9, "Rank-rho") == "0.80 [0.70, 0.90]"
    assert tables.cell(float("nan"), 0, 0, "Harm") == "undefined"


def test_gains_are_paired_and_judged() -> None:
    rng = Random(0)
    hard = [rng.random() < 0.5 for _ in range(200)]
    rows = [("base", 0, i, float(not h), None) for i, h in enumerate(hard)]
    rows += [("better", 0, i, float(not h or i % 5 == 0), None) for i, h in enumerate(hard)]
    rows += [("same", 0, i, float(not h), None) for i, h in enumerate(hard)]
    signs = {("better", "all", "Pass@1"): 1, ("same", "all", "Pass@1"): -1}
    table = tables.gains(frame(rows), "base", {"all": ["AIME"]}, ["Pass@1"], signs).set_index("method")
    expected = np.mean([h and i % 5 == 0 for i, h in enumerate(hard)])
    assert table.loc["better", "delta"] == pytest.approx(expected) and table.loc["better", "verdict"] == "agrees"
    assert 0 < table.loc["better", "low"] < expected < table.loc["better", "high"] < 2 * expected
    assert (table.loc["same", ["delta", "low", "high"]] == 0).all() and table.loc["same", "verdict"] == "undecided"
    turned = tables.gains(frame(rows), "better", {"all": ["AIME"]}, ["Pass@1"], {("base", "all", "Pass@1"): 1})
    assert turned.set_index("method").loc["base", "verdict"] == "disagrees"


def test_gains_use_every_seed_of_the_method_and_as_many_of_the_base() -> None:
    """By hand: the seeds' shares are 0.5, 0.7, 0.6, 0.8 and 0.9, their mean 0.7; the base's first seed has 0.5."""
    shares = [0.5, 0.7, 0.6, 0.8, 0.9]
    rows = [("five", s, i, float(i % 10 < 10 * share), None) for s, share in enumerate(shares) for i in range(400)]
    rows += [("one", 0, i, float(i % 10 < 5), None) for i in range(400)]
    rows += [("two", s, i, float(i % 10 < (5, 6)[s]), None) for s in range(2) for i in range(400)]
    made = frame(rows)
    over_one = tables.gains(made, "one", {"all": ["AIME"]}, ["Pass@1"], {}).set_index("method")
    assert over_one["seeds"].to_dict() == {"five": 5, "two": 2}
    assert over_one.loc["five", "delta"] == pytest.approx(0.2) and over_one.loc["two", "delta"] == pytest.approx(0.05)
    reach = 2.77645 * np.std(shares, ddof=1) / 5**0.5  # Student's t, 4 degrees
    assert over_one.loc["five", "high"] == pytest.approx(0.2 + reach, abs=1e-5)
    over_two = tables.gains(made, "two", {"all": ["AIME"]}, ["Pass@1"], {}).set_index("method")
    assert over_two.loc["five", "delta"] == pytest.approx(0.7 - 0.55) and over_two.loc["five", "seeds"] == 5
    over_five = tables.gains(made, "five", {"all": ["AIME"]}, ["Pass@1"], {}).set_index("method")
    assert over_five["seeds"].to_dict() == {"one": 1, "two": 2}
    assert over_five["delta"].to_dict() == pytest.approx({"one": 0.0, "two": 0.55 - 0.6})


def test_a_spread_over_seeds_widens_the_interval() -> None:
    calm = [("a", s, i, float(i % 2), None) for s in range(3) for i in range(400)]
    spread, wild = (
        [("a", s, i, float(i % 10 < 5 + by * (s - 1)), None) for s in range(3) for i in range(400)] for by in (1, 3)
    )
    narrow, wide, whole = (
        tables.measured(frame(rows), {"all": ["AIME"]}, ["Pass@1"]).to_dict("records")[0]
        for rows in (calm, spread, wild)
    )
    assert narrow["value"] == wide["value"] == whole["value"] == 0.5 and narrow["seeds"] == 3
    assert narrow["high"] - narrow["low"] < 0.11
    assert wide["high"] - wide["low"] == pytest.approx(2 * 4.30265 * 0.1 / 3**0.5, abs=1e-5)  # Student's t, 2 degrees
    assert (whole["low"], whole["high"]) == (0.0, 1.0)  # t alone would reach to 1.245


def test_what_can_be_read_of_a_run_by_hand(tmp_path) -> None:
    ranks = "<initial_ranking>Agent 1 > Agent 2\nAgent 2 = Agent 3\nAgent 0 > Agent 1</initial_ranking>"  # of agent 0
    said = [
        {"role": "proposal", "text": "ANSWER: 3"},
        {"role": "review", "text": ranks},
        {"role": "verdict", "text": "<final_ranking>4</critique>"},
    ]
    (tmp_path / "config.json").write_text(json.dumps({"protocol": {"agents": 4, "own_votes": False}}))
    (tmp_path / "episodes.jsonl").write_text(json.dumps({"step": 1, "samples": said}) + "\n")
    steps = [{"step": 0}, {"step": 1, "votes": 1.0, "r_meta": None}, {"step": 2, "votes": 2.0, "r_meta": 0.5}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in steps))
    found = tables.readable(tmp_path)
    assert found["agents"] == 4 and found["replies"] == 2 and found["readable rankings"] == 0.5
    assert found["votes of an order"] == (2 + 0) / 2 / 2  # of three agents that one may judge
    assert (found["votes"], found["r_meta"]) == (1.5, 0.5) and np.isnan(found["critiques"])


def test_missing_items_are_named() -> None:
    made = frame([("a", 0, 0, 1.0, None), ("a", 1, 1, 1.0, None)])
    with pytest.raises(ValueError, match="'a'"):
        tables.measured(made, {"all": ["AIME"]})
    with pytest.raises(ValueError, match="'b'"):
        tables.ratio_of(made, "b", "Pass@1", ["AIME"])
