"""Verdicts that differ from the earlier ledger's, and the reason for each."""

from typing import Any

import pandas as pd
import pytest

from reproduce.analysis import changes, claims, verdicts

CLAIM = "mae_half_over_base"  # of a printed effect of 4.54 points


def earlier(**fields: Any) -> pd.DataFrame:
    """Return an earlier ledger of one claim that was undecided."""
    row = {
        "effect": 3.0,
        "low": -1.0,
        "high": 7.0,
        "standard_error": 2.0,
        "dof": 100.0,
        "p": 0.14,
        "verdict": verdicts.UNDECIDED,
        "redefined": "",
    }
    return pd.DataFrame([row | fields], index=pd.Index([CLAIM], name="claim"))


def now(**fields: Any) -> pd.DataFrame:
    """Return today's ledger of the same claim."""
    row = {
        "claim": CLAIM,
        "paper": "mae",
        "says": "MAE gains.",
        "effect": 3.0,
        "low": 1.0,
        "high": 5.0,
        "verdict": verdicts.FOUND,
        "why": "",
    }
    return pd.DataFrame([row | fields])


def reason(before: pd.DataFrame, after: pd.DataFrame) -> str:
    (row,) = changes.changed(after, before).to_dict("records")
    return str(row["reason"])


def test_a_verdict_that_stayed_is_not_listed():
    assert changes.changed(now(verdict=verdicts.UNDECIDED), earlier()).empty


def test_a_narrower_interval_is_the_reason_where_the_effect_stayed():
    assert reason(earlier(), now()) == "the interval is ±2, it was ±4"


def test_another_effect_is_the_reason_where_each_lies_outside_the_other_interval():
    assert reason(earlier(), now(effect=9.0, low=7.5, high=10.5)) == changes.BY_EFFECT


@pytest.mark.parametrize("effect", [4.0, 6.9])
def test_an_effect_inside_the_other_interval_is_no_other_effect(effect):
    text = reason(earlier(), now(effect=effect, low=effect - 1, high=effect + 1))
    assert text == "the interval is ±1, it was ±4"


def test_another_sign_is_said_before_the_width_of_the_interval():
    row = now(effect=-0.5, low=-2.5, high=1.5, verdict=verdicts.NO_EFFECT)
    text = reason(earlier(), row)
    assert text == f"{changes.BY_SIGN} (the interval is ±2, it was ±4)"


def test_the_rules_are_the_reason_where_they_judge_the_earlier_numbers_alike():
    alike = now(effect=1.0, low=-1.0, high=3.0, verdict=verdicts.NO_EFFECT)
    before = earlier(effect=0.5, low=-1.5, high=2.5, standard_error=1.0, p=0.62)
    assert reason(before, alike) == changes.BY_RULES


def test_another_test_of_a_claim_comes_before_its_numbers():
    text = "growth is now accepted tasks per proposal"
    assert reason(earlier(redefined=text), now()) == text


def test_a_claim_that_is_not_decidable_any_more_says_why():
    row = now(verdict=verdicts.CANNOT, why="the world has no documents")
    assert reason(earlier(), row) == "the world has no documents"


def test_a_claim_that_had_no_test_says_so():
    nan = float("nan")
    numbers = dict.fromkeys(
        ("effect", "low", "high", "standard_error", "dof", "p"), nan
    )
    before = earlier(**numbers, verdict=verdicts.IDLE)
    assert reason(before, now()) == changes.TESTED_NOW


def test_a_new_claim_has_no_earlier_verdict():
    (row,) = changes.changed(now(claim="new"), earlier()).to_dict("records")
    assert row["reason"] == changes.NEW
    assert row["earlier_verdict"] is None


def test_claims_are_counted_before_and_now():
    table = changes.counts(now(), earlier())
    assert table.loc["earlier", "undecided"] == 1
    assert table.loc["now", "found"] == 1
    assert table.to_numpy().sum() == 3


def test_the_earlier_numbers_are_counted_under_todays_rules_too():
    small = earlier(effect=0.5, low=-1.5, high=2.5, standard_error=1.0, p=0.62)
    table = changes.counts(now(), small)
    assert table.loc["earlier", "undecided"] == 1
    assert table.loc[changes.REJUDGED, "no effect, or another size"] == 1


def test_an_earlier_order_has_no_word_that_needs_all_of_its_steps():
    small = earlier(effect=0.5, low=-1.5, high=2.5, standard_error=1.0, p=0.62)
    order = small.set_axis(["mae_reference_order"])
    assert claims.CLAIMS["mae_reference_order"]["kind"] == "order"
    (verdict,) = changes.rejudged(order)
    assert verdict == verdicts.UNDECIDED


def test_every_earlier_claim_is_still_in_the_ledger():
    before = changes.read_earlier()
    assert set(before.index) <= set(claims.CLAIMS)
    assert before.index.is_unique


def test_the_earlier_intervals_follow_from_the_earlier_errors():
    before = changes.read_earlier().dropna(subset=["standard_error"])
    for row in before.itertuples():
        low, high = verdicts.Effect(row.effect, row.standard_error, row.dof).limits
        assert low == pytest.approx(row.low, abs=1e-5)
        assert high == pytest.approx(row.high, abs=1e-5)


def test_todays_rules_only_judge_what_had_a_test():
    before = changes.read_earlier()
    untested = before[before["p"].isna()]
    by_rules = changes.rejudged(before)
    assert list(by_rules[untested.index]) == list(untested["verdict"])
