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
BY_SIGN = "the effect changed its sign"
BY_PRECISION = "the interval is ±{now:.3g}, it was ±{before:.3g}"
REJUDGED = "earlier numbers, today's rules"  # a row of the counts


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
    rows = []
    for name, row in earlier.iterrows():
        claim = registry[str(name)]
        fields = {
            "paper": claim["paper"],
            "tests": claims.tests_of(str(name), claim),
        }
        if not pd.isna(row["p"]):
            fields["verdict"] = _by_size(row, claim)
        rows.append({"claim": name, **row, **fields})
    return verdicts.corrected(pd.DataFrame(rows)).set_index("claim")["verdict"]


def _by_size(row: pd.Series, claim: Claim) -> str:
    """Return the verdict on an earlier effect whose sign stays open.

    Of an order the earlier ledger has the weakest step alone, so what has to hold for all steps
    is not known.
    """
    if claim["kind"] == "order":
        return verdicts.UNDECIDED
    is_sized = claim["kind"] in verdicts.SIZED
    printed = claim.get("paper_effect", float("nan"))
    step = verdicts.Step(
        verdicts.Effect(row["effect"], row["standard_error"], row["dof"]),
        printed=printed if is_sized else float("nan"),
        margin=verdicts.margin_of(claim),
    )
    return verdicts.of_size([step])


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
    precision = BY_PRECISION.format(
        now=(row.high - row.low) / 2, before=(earlier["high"] - earlier["low"]) / 2
    )
    if row.effect * earlier["effect"] < 0:
        return f"{BY_SIGN} ({precision})"
    return precision


def counts(ledger: pd.DataFrame, earlier: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return how many claims are in each group of verdicts.

    A row for the earlier ledger, one for its numbers as today's rules judge them, and one for now.
    """
    if earlier is None:
        earlier = read_earlier()
    rows = {
        "earlier": verdicts.counts_of(earlier["verdict"]),
        REJUDGED: verdicts.counts_of(rejudged(earlier)),
        "now": verdicts.counts_of(ledger["verdict"]),
    }
    return pd.DataFrame(rows).T
