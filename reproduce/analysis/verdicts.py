"""The verdicts of the ledger: their words, and the rules that choose among them.

docs/ledger.md explains the rules in plain English.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from reproduce.analysis import corrections
from reproduce.analysis.stats import Effect, Estimate

MARGIN = 5.0  # points of accuracy that count as no effect
MARGINS = {  # by metric, or by column of a run's metrics; other units have no margin
    "accuracy": MARGIN,
    "cross_play": MARGIN,
    "validation": MARGIN,
}
EQUIVALENCE_LEVEL = 0.90  # of the interval that has to lie inside the margin
# A ratio is found between the printed one divided by this and multiplied by it.
RATIO_FACTOR = 1.5
POWER = 0.8  # of the smallest detectable effect
CORRECTIONS = {  # of the tests of a paper
    "headline": corrections.HOLM,
    "other": corrections.BENJAMINI_HOCHBERG,
}
SIZED = ("greater",)  # kinds of claims whose effect is measured as the printed one is

FOUND = "found"
OPPOSITE = "opposite"
NO_EFFECT = f"no effect beyond {MARGIN:g} points"
SMALLER = "smaller than printed"
AS_SMALL = "as small as printed"
OTHER_SIZE = "other size"
UNDECIDED = "undecided"
IDLE = "idle"
ONE_SEED = "one seed"
NOT_RUN = "not run"
CANNOT = "cannot be tested here"
BY_CONSTRUCTION = "by construction"
MEANINGS = {  # in the order of tables and pages
    FOUND: "significant in the claimed direction after the correction for many tests; or a "
    "ratio known to lie within a factor of 1.5 of the printed one",
    OPPOSITE: "significant in the other direction after the correction",
    NO_EFFECT: "the 90 % interval lies within 5 points of zero, and the 95 % one includes zero",
    SMALLER: "an effect as large as the printed one is excluded, and the sign stays open",
    OTHER_SIZE: "a ratio whose 95 % interval excludes the printed one",
    AS_SMALL: "the 90 % interval lies within 5 points of zero, and the 95 % one includes the "
    "printed effect, which is below 5 points as well: the two agree, and the sign stays open",
    UNDECIDED: "none of these; that does not refute the claim",
    IDLE: "the mechanism that the claim is about had almost no effect in these runs",
    ONE_SEED: "a single trained run, whose noise is unknown",
    NOT_RUN: "its runs are missing",
    CANNOT: "the tiny world lacks what the claim is about",
    BY_CONSTRUCTION: "no run could come out otherwise, so agreement is no evidence",
}
NOT_DECIDABLE = "not decidable here"
GROUPS = {  # where verdicts are counted: a group's name, and the verdicts in it
    "found": (FOUND,),
    "opposite": (OPPOSITE,),
    "no effect, or another size": (NO_EFFECT, SMALLER, OTHER_SIZE),
    "as small as printed": (AS_SMALL,),
    "undecided": (UNDECIDED,),
    NOT_DECIDABLE: (IDLE, ONE_SEED, NOT_RUN, CANNOT, BY_CONSTRUCTION),
}
GROUP_OF = {verdict: name for name, members in GROUPS.items() for verdict in members}


def group_of(verdict: str) -> str:
    """Return the group of a verdict; a word of an older ledger counts as not decidable here."""
    return GROUP_OF.get(verdict, NOT_DECIDABLE)


def counts_of(given: Iterable[str]) -> dict[str, int]:
    """Return how many of some verdicts are in each group, in the order of GROUPS."""
    counter = Counter(map(group_of, given))
    return {group: counter[group] for group in GROUPS}


def explained(words: Iterable[str]) -> str:
    """Return what some verdicts mean, as a list in Markdown."""
    return "\n".join(f"- **{word}**: {MEANINGS[word]}" for word in words)


def counts(ledger: pd.DataFrame) -> pd.DataFrame:
    """Return how often each verdict is given, a row per paper, in the order of MEANINGS."""
    by_paper = ledger.groupby(["paper", "verdict"], sort=False).size()
    table = by_paper.unstack(fill_value=0)
    given = [word for word in MEANINGS if word in table]
    return table[given]


def margin_of(claim: Mapping[str, Any]) -> float:
    """Return how large an effect counts as none, in the claim's unit; nan without a margin.

    A curve that only rises has no peak, however flat it is, so peaks have no margin. Where effects
    are not measured as the printed one is, one of the printed size is not none.
    """
    if claim.get("direction") == "peak":
        return float("nan")
    metric = claim.get("metric")
    name = claim["column"] if metric == "column" else metric
    margin = MARGINS.get(name, float("nan"))
    if claim.get("kind") in SIZED or not claim.get("paper_effect"):
        return margin
    return min(margin, abs(claim["paper_effect"]))


def of_difference(
    effect: Effect, p: float, alpha: float, printed: float, margin: float
) -> str:
    """Judge a difference that is positive where it supports the claim.

    p: of the test that there is no difference. alpha: the level that it has to reach, as the
    correction says. printed: the paper's effect, nan if it does not compare. margin: how large an
    effect counts as none, nan without one.
    """
    if p <= alpha:
        return FOUND if effect.delta > 0 else OPPOSITE
    low, high = effect.limits
    if is_within(effect, margin):
        if low <= printed <= high and abs(printed) < margin:
            return AS_SMALL
        if low <= 0 <= high:
            return NO_EFFECT
    if printed > 0 and high < printed:
        return SMALLER
    return UNDECIDED


def is_within(effect: Effect, margin: float) -> bool:
    """Whether an effect is known to be smaller than a margin: two one-sided tests at 5 %."""
    low, high = effect.interval(EQUIVALENCE_LEVEL)
    return -margin < low and high < margin


def of_ratio(ratio: Estimate, printed: float) -> str:
    """Judge a ratio by its size; `printed` is the paper's."""
    if not ratio.low <= printed <= ratio.high:
        return OTHER_SIZE
    is_near = (
        printed / RATIO_FACTOR <= ratio.low and ratio.high <= RATIO_FACTOR * printed
    )
    return FOUND if is_near else UNDECIDED


def corrected(ledger: pd.DataFrame) -> pd.DataFrame:
    """Return a ledger with what depends on the tests of all claims of a paper.

    alpha: the level that p has to reach, the p-values of the other tests being what they are.
    p_corrected: the adjusted p-value, to compare with 5 %. smallest: the effect that would reach
    alpha four times out of five. The verdicts follow from these.
    """
    parts = []
    for (_, tests), part in ledger.groupby(["paper", "tests"]):
        correction = CORRECTIONS[tests]
        alpha = correction.levels(part["p"])
        p_corrected = correction.adjusted(part["p"])
        parts.append(part.assign(alpha=alpha, p_corrected=p_corrected))
    ledger = pd.concat(parts).loc[ledger.index]
    return ledger.assign(
        smallest=[_smallest(row) for row in ledger.itertuples()],
        verdict=[_verdict(row) for row in ledger.itertuples()],
    )


def _smallest(row: Any) -> float:
    if pd.isna(row.p):
        return np.nan
    return _effect_in(row).detectable(POWER, row.alpha)


def _verdict(row: Any) -> str:
    """Return the verdict of a claim that is tested; any other one keeps its own."""
    if pd.isna(row.p):
        return row.verdict
    return of_difference(
        _effect_in(row),
        p=row.p,
        alpha=row.alpha,
        printed=row.paper_effect if row.kind in SIZED else np.nan,
        margin=row.margin,
    )


def _effect_in(row: Any) -> Effect:
    return Effect(row.effect, row.standard_error, row.dof)
