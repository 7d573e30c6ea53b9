"""Which verdicts differ from those of the earlier set of runs, and why.

The earlier set is that of 25 November 2026 (commit 6ac8ba9a). Its five seeds spoke one backbone,
which had seen the test questions; its units are those seeds; Holm's correction covers all claims of
a paper. `reproduce/earlier_ledger.csv` holds its effects and verdicts.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from reproduce import HOME
from reproduce.analysis import claims, verdicts
from reproduce.analysis.arms import Claim

EARLIER = HOME / "reproduce" / "earlier_ledger.csv"
NEW = "not in the earlier ledger"
BY_RULES = "the new rules say so of the earlier numbers too"
TESTED_NOW = "it can be tested now"
BY_EFFECT = "the effect is another one"
BY_PRECISION = "the interval is ±{now:.3g}, it was ±{before:.3g}"


def read_earlier() -> pd.DataFrame:
    """Return the earlier ledger, by claim."""
    earlier = pd.read_csv(EARLIER, index_col="claim")
    return earlier.fillna({"redefined": ""})


def rejudged(
    earlier: pd.DataFrame, registry: Mapping[str, Claim] = claims.CLAIMS
) -> pd.Series:
    """Return the verdicts that today's rules give the earlier effects, by claim.

    A claim without a test keeps its verdict.
    """
    nan = float("nan")
    rows = []
    for name, row in earlier.iterrows():
        claim = registry[str(name)]
        fields = {
            "paper": claim["paper"],
            "kind": claim["kind"],
            "tests": claims.tests_of(str(name), claim),
            "paper_effect": claim.get("paper_effect", nan),
            "margin": nan if claim["kind"] == "order" else verdicts.margin_of(claim),
        }
        rows.append({"claim": name, **row, **fields})
    return verdicts.corrected(pd.DataFrame(rows)).set_index("claim")["verdict"]


def changed(
    ledger: pd.DataFrame,
    earlier: pd.DataFrame | None = None,
    registry: Mapping[str, Claim] = claims.CLAIMS,
) -> pd.DataFrame:
    """Return a row per claim with another verdict than before.

    Columns: claim, paper, says; verdict, effect, low and high, each also as `earlier_`; reason.
    """
    if earlier is None:
        earlier = read_earlier()
    by_rules = rejudged(earlier, registry)
    rows = []
    for row in ledger.itertuples():
        is_new = row.claim not in earlier.index
        fields = {"claim": row.claim, "paper": row.paper, "says": row.says}
        for name in ("verdict", "effect", "low", "high"):
            fields[f"earlier_{name}"] = None if is_new else earlier.at[row.claim, name]
            fields[name] = getattr(row, name)
        if fields["verdict"] == fields["earlier_verdict"]:
            continue
        if is_new:
            fields["reason"] = NEW
        else:
            fields["reason"] = _reason(row, earlier.loc[row.claim], by_rules[row.claim])
        rows.append(fields)
    return pd.DataFrame(rows)


def _reason(row: Any, earlier: pd.Series, by_rules: str) -> str:
    """Return why a claim's verdict is not the earlier one; the first reason that holds."""
    if verdicts.group_of(row.verdict) == verdicts.NOT_DECIDABLE:
        return str(row.why)
    if earlier["redefined"]:
        return str(earlier["redefined"])
    if by_rules == row.verdict:
        return BY_RULES
    if pd.isna(earlier["low"]):
        return TESTED_NOW
    is_inside = earlier["low"] <= row.effect <= earlier["high"]
    was_inside = row.low <= earlier["effect"] <= row.high
    if not (is_inside or was_inside):
        return BY_EFFECT
    return BY_PRECISION.format(
        now=(row.high - row.low) / 2, before=(earlier["high"] - earlier["low"]) / 2
    )


def counts(ledger: pd.DataFrame, earlier: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return how many claims are in each group of verdicts: a row for earlier and one for now."""
    if earlier is None:
        earlier = read_earlier()
    rows = {
        "earlier": verdicts.counts_of(earlier["verdict"]),
        "now": verdicts.counts_of(ledger["verdict"]),
    }
    return pd.DataFrame(rows).T
