"""The verdicts of the ledger: their words, and the rules that choose among them.

docs/ledger.md explains the rules in plain English.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
# Kinds of claims whose effect is measured as the printed one is; an order's, step by step.
SIZED = ("greater", "order")

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
    AS_SMALL: "the 90 % interval lies within 5 points of zero and includes the printed effect: "
    "neither contradicts the other, and the sign stays open",
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

    Ratios are judged by their size. A curve that only rises has no peak, however flat it is, so
    peaks have no margin either. A trend is not measured as the printed one is, and one of the
    printed size is not none.
    """
    if claim.get("direction") == "peak" or claim.get("kind") == "ratio":
        return float("nan")
    metric = claim.get("metric")
    name = claim["column"] if metric == "column" else metric
    margin = MARGINS.get(name, float("nan"))
    if claim.get("kind") in SIZED or not claim.get("paper_effect"):
        return margin
    return min(margin, abs(claim["paper_effect"]))


def of_sign(delta: float) -> str:
    """Judge an effect that is significant."""
    return FOUND if delta > 0 else OPPOSITE


@dataclass(frozen=True)
class Step:
    """A difference beside the printed one; an order of several arms has several steps.

    printed: nan if it does not compare. margin: how large an effect counts as none, nan without
    one.
    """

    effect: Effect
    printed: float
    margin: float

    @property
    def is_within(self) -> bool:
        """Whether the effect is known to be below the margin: two one-sided tests at 5 %."""
        low, high = self.effect.interval(EQUIVALENCE_LEVEL)
        return -self.margin < low and high < self.margin

    @property
    def is_as_small(self) -> bool:
        """Whether that holds, and the interval of these tests includes the printed effect."""
        low, high = self.effect.interval(EQUIVALENCE_LEVEL)
        return self.is_within and low <= self.printed <= high

    @property
    def is_none(self) -> bool:
        """Whether the effect is below the margin and may be zero."""
        low, high = self.effect.limits
        return self.is_within and low <= 0 <= high

    @property
    def is_smaller(self) -> bool:
        """Whether an effect as large as the printed one, which is positive, is excluded."""
        _, high = self.effect.limits
        return self.printed > 0 and high < self.printed


SIZES: Mapping[str, Callable[[Step], bool]] = {  # the first one that holds is given
    AS_SMALL: lambda step: step.is_as_small,
    NO_EFFECT: lambda step: step.is_none,
    SMALLER: lambda step: step.is_smaller,
}


def of_size(steps: Sequence[Step]) -> str:
    """Judge a claim whose sign stays open; what is said of an order holds for all its steps."""
    for verdict, holds in SIZES.items():
        if all(map(holds, steps)):
            return verdict
    return UNDECIDED


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
    alpha four times out of five. The verdict of a row with p <= alpha becomes found or opposite;
    any other row keeps the one that it has.
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
    # A row without a test has no p-value, and nan reaches no level.
    return of_sign(row.effect) if row.p <= row.alpha else row.verdict


def _effect_in(row: Any) -> Effect:
    return Effect(row.effect, row.standard_error, row.dof)
