"""The ledger: each claim of the papers, reproduced, with an interval and a verdict by rule.

`crossed` computes effects and their noise, and `verdicts` has the rules. Loads no torch.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from coevolve.runs import record
from coevolve.training import diagnostics
from reproduce.analysis import (
    conversations,
    crossed,
    crossplay,
    peaks,
    standins,
    tables,
    verdicts,
)
from reproduce.analysis.crossed import Side, difference
from reproduce.analysis.stats import Effect, Estimate

CLAIMS_FILE = Path(__file__).parents[1] / "claims.toml"
REGISTRY = tomllib.loads(CLAIMS_FILE.read_text(encoding="utf-8"))
CLAIMS = REGISTRY["claims"]
HEADLINE = REGISTRY[
    "headline"
]  # paper: its headline claims; and the date of the choice
UNTESTED = {  # field of a claim: its verdict
    "cannot": verdicts.CANNOT,
    "by_construction": verdicts.BY_CONSTRUCTION,
}
AVERAGES = {  # of the papers' tables, by what a claim calls them
    "all": ("Overall Avg.", "O Avg.", "Overall", "Average"),
    "in_distribution": ("ID Avg.",),
    "out_of_distribution": ("OOD Avg.",),
}
PARTS = 5  # a trend compares the last fifth of the steps with the first
Claim = Mapping[str, Any]
Row = dict[str, Any]
NUMBERS = (  # columns that are nan where there is no test
    "effect",
    "standard_error",
    "dof",
    "low",
    "high",
    "p",
)


@dataclass(frozen=True)
class Ledger:
    """Finished runs that claims are tested on."""

    folder: Path
    runs: Mapping[str, Sequence[int]]  # name: its seeds
    crossed: pd.DataFrame | None = (
        None  # of `crossplay.pass_rates`, with the column seed
    )

    def side(self, claim: Claim, run: str, setup: str) -> Side | None:
        """Return a run's values of the claim's metric, in points if they are shares of answers.

        None if the run was not scored in the set-up.
        """
        side = self._values(claim, run, setup)
        if side is None:
            return None
        varies = not self.is_untrained(run) and not claim.get("exact", False)
        return replace(side, is_trained=varies)

    def _values(self, claim: Claim, run: str, setup: str) -> Side | None:
        metric = claim["metric"]
        if metric == "accuracy":
            return self._accuracy(claim, run, setup)
        if metric == "cross_play":
            return self._cross_play(claim, run)
        if metric == "conversations":
            return self._conversations(claim, run)
        return self._metrics(claim, run)

    def units(self, run: str) -> list[str]:
        """Return the unit of replication of each seed of a run."""
        return standins.units(self.folder, run, self.runs[run])

    def summaries(self, run: str) -> list[Row]:
        """Return the summary.json of each seed of a run."""
        return [standins.summary(self.folder, run, seed) for seed in self.runs[run]]

    def is_untrained(self, run: str) -> bool:
        """Whether a run took no steps, so that another seed would be the same."""
        first_seed = self.runs[run][0]
        return standins.summary(self.folder, run, first_seed)["steps"] == 0

    def _metrics(self, claim: Claim, run: str) -> Side:
        values = []
        for seed in self.runs[run]:
            values.append(_course(self._steps(run, seed), claim))
        return crossed.side_of_values(values, self.units(run))

    def _steps(self, run: str, seed: int) -> pd.DataFrame:
        return record.read(self.folder / f"{run}-s{seed}", "metrics")

    def curves(self, claim: Claim, run: str) -> pd.DataFrame:
        """Return a column at the steps at which all seeds measured it, a row per unit."""
        column = claim["column"]
        curves = {}
        for seed in self.runs[run]:
            steps = _measured_steps(self._steps(run, seed), column)
            curves[seed] = _scale(column) * steps.set_index("step")[column]
        by_seed = pd.DataFrame(curves).dropna().T
        return by_seed.groupby(self.units(run)).mean()

    def _cross_play(self, claim: Claim, run: str) -> Side:
        reasoner_is_fixed = claim["setup"] == "fixed_reasoner"
        trained_role = "challenger" if reasoner_is_fixed else "reasoner"
        unit_of = dict(zip(self.runs[run], self.units(run), strict=True))
        rates = self.crossed.assign(unit=self.crossed["seed"].map(unit_of))
        by_unit = crossplay.first_and_last(rates, trained_role)
        change_U = by_unit.iloc[:, -1] - by_unit.iloc[:, 0]
        return crossed.side_of_values(change_U, by_unit.index.astype(str))

    def _conversations(self, claim: Claim, run: str) -> Side:
        column = claim["column"]
        frame = conversations.read(self.folder, self.runs, {run: run}, claim["paper"])
        ratio = conversations.ratio_of(frame, run, column, self._rows(claim))
        scale = 1 if column == "Rank-rho" else 100
        return conversations.side_of(ratio, scale)

    def _accuracy(self, claim: Claim, run: str, setup: str) -> Side | None:
        """Return answers to test questions, one stratum per stand-in.

        Top-ranked answers are those of the examined conversations. These cover a part of the
        questions, so greedy answers are compared on that part.
        """
        paper = claim["paper"]
        scored_strategy = "vanilla" if setup == "greedy" else setup
        frame = standins.scores(self.folder, self.runs, {run: run}, paper)
        frame = frame[frame["strategy"] == scored_strategy]
        if "top_ranked" in claim.get("setup", ()):
            frame = self._examined(claim, run, setup, frame)
        families_of = standins.layout(paper).families
        families = []
        for row in self._rows(claim):
            families += families_of[row]
        frame = frame[frame["family"].isin(families)]
        if frame.empty:
            return None
        stand_ins = sorted(frame["benchmark"].unique())
        return tables.accuracy_side(frame, run, stand_ins)

    def _examined(
        self, claim: Claim, run: str, setup: str, frame: pd.DataFrame
    ) -> pd.DataFrame:
        is_top_ranked = setup == "top_ranked"
        discussing_run = run if is_top_ranked else claim["arms"][0]
        labels = {discussing_run: run}
        talks = conversations.read(self.folder, self.runs, labels, claim["paper"])
        if is_top_ranked:
            frame = talks.assign(correct=talks["pass_1"])
        else:
            is_examined = frame["question"].isin(talks["question"])
            frame = frame[is_examined]
        return frame.assign(item=frame["question"])

    def _rows(self, claim: Claim) -> Sequence[str]:
        rows = claim["rows"]
        if not isinstance(rows, str):
            return rows
        groups = standins.layout(claim["paper"]).groups
        name = next(name for name in AVERAGES[rows] if name in groups)
        return groups[name]


def _column_total(frame: pd.DataFrame, column: str) -> float:
    """Return the mean of a column, or a ratio of sums such as tp / (tp + fp) in percent."""
    numerator, slash, denominator = column.partition(" / ")
    if not slash:
        return float(frame[column].mean())
    top = _sum_of(frame, numerator)
    bottom = _sum_of(frame, denominator)
    if not bottom:
        return np.nan
    return 100 * top / bottom


def _sum_of(frame: pd.DataFrame, columns: str) -> float:
    names = columns.strip("()").split(" + ")
    total = 0
    for name in names:
        total += frame[name].sum()
    return total


def _course(frame: pd.DataFrame, claim: Claim) -> float:
    """Return a column's value at the end of training.

    For a trend: its change from the first to the last fifth of the steps. For a ratio with one
    arm: the last step over the first.
    """
    column = claim["column"]
    kind = claim["kind"]
    frame = _measured_steps(frame, column)
    if kind == "ratio" and len(claim["arms"]) == 1:
        first = _column_total(frame.head(1), column)
        last = _column_total(frame.tail(1), column)
        return last / (first or np.nan)
    parts = _totals_of_parts(frame, column)
    if kind != "trend":
        return _scale(column) * parts[-1]
    return _scale(column) * (parts[-1] - parts[0])


def _scale(column: str) -> int:
    """Return what makes points of a column's shares."""
    return 100 if column == "validation" else 1


def _measured_steps(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return the steps that have values; validation, for one, is measured only now and then."""
    names = re.findall(r"[^() ]+", column)
    measured = [name for name in names if name in frame]
    return frame.dropna(subset=measured)


def _totals_of_parts(frame: pd.DataFrame, column: str) -> list[float]:
    """Return the total of a column in each fifth of the rows, or in each row if they are few."""
    rows = np.arange(len(frame))
    count = max(1, min(PARTS, len(frame)))
    totals = []
    for rows_of_part in np.array_split(rows, count):
        part = frame.iloc[rows_of_part]
        totals.append(_column_total(part, column))
    return totals


def weigh(ledger: Ledger, claims: Mapping[str, Claim] = CLAIMS) -> pd.DataFrame:
    """Return a row per claim: effect, interval, seeds, detectable effect, p and verdict.

    `tests` says whether the claim is among its paper's headline claims or the others.
    """
    rows = []
    for name, claim in claims.items():
        is_headline = name in HEADLINE.get(claim["paper"], ())
        tests = "headline" if is_headline else "other"
        rows.append({"claim": name, "tests": tests, **_row(ledger, claim)})
    return verdicts.corrected(pd.DataFrame(rows))


def _row(ledger: Ledger, claim: Claim) -> Row:
    """Return a claim's row of the ledger.

    The verdict is empty where it follows from the p-values of all claims.
    """
    row = _empty_row(claim)
    for field, verdict in UNTESTED.items():
        if field in claim:
            return _without_test(row, verdict, why=claim[field])
    arms = claim["arms"]
    missing = [run for run in arms if run not in ledger.runs]
    if missing:
        why = f"needs {', '.join(missing)}"
        return _without_test(row, verdicts.NOT_RUN, why)
    units = [sorted(set(ledger.units(run))) for run in arms]
    row["seeds"] = " / ".join(str(len(ledger.runs[run])) for run in arms)
    row["units"] = " / ".join(str(len(names)) for names in units)
    if _is_peak(claim):
        return _peak_row(row, ledger, claim)
    sides = _sides(ledger, claim)
    if sides is None:
        why = f"the runs did not play {claim['setup']}"
        return _without_test(row, verdicts.NOT_RUN, why)
    if claim["kind"] == "ratio":
        return _ratio_row(row, ledger, claim, _ratio(sides))
    effect = _weakest_step(sides)
    if claim.get("direction") == "down":
        effect = replace(effect, delta=-1 * effect.delta)
    p = min(1.0, _steps_tried(claim, effect) * effect.p)
    return _tested_row(row, ledger, claim, effect, p)


def _is_peak(claim: Claim) -> bool:
    return claim["kind"] == "trend" and claim.get("direction") == "peak"


def _peak_row(row: Row, ledger: Ledger, claim: Claim) -> Row:
    """Return the row of a claim that a curve passes a peak, tested by its weaker side."""
    (run,) = claim["arms"]
    curves = ledger.curves(claim, run)
    units, looks = curves.shape
    if looks < peaks.LEAST_LOOKS:
        why = f"a peak cannot be seen in {looks} looks"
        return _without_test(row, verdicts.CANNOT, why)
    if units < 2:
        return _without_test(row, verdicts.ONE_SEED)
    effect = peaks.measure(curves).weaker
    # A curve that only rises or only falls has no peak, which is no opposite of one.
    p = effect.p if effect.delta > 0 else 1.0
    return _tested_row(row, ledger, claim, effect, p)


def _tested_row(
    row: Row, ledger: Ledger, claim: Claim, effect: Effect, p: float
) -> Row:
    estimate = Estimate(effect.delta, *effect.limits)
    row = _row_of_estimate(row, ledger, claim, estimate)
    if row["verdict"]:
        return row
    return row | {"standard_error": effect.standard_error, "dof": effect.dof, "p": p}


def _ratio_row(row: Row, ledger: Ledger, claim: Claim, ratio: Estimate) -> Row:
    row = _row_of_estimate(row, ledger, claim, ratio)
    if row["verdict"]:
        return row
    return row | {"verdict": verdicts.of_ratio(ratio, claim["paper_effect"])}


def _row_of_estimate(row: Row, ledger: Ledger, claim: Claim, estimate: Estimate) -> Row:
    """Return a row with an effect and its limits, and with a verdict if there is no test."""
    row = row | {"effect": estimate.value}
    why_idle = _why_idle(ledger, claim)
    if why_idle:
        return _without_test(row, verdicts.IDLE, why_idle)
    if not np.isfinite(estimate.value):
        why = "its measure is not defined in these runs"
        return _without_test(row, verdicts.NOT_RUN, why)
    if np.isnan(estimate.low):
        return _without_test(row, verdicts.ONE_SEED)
    return row | {"low": estimate.low, "high": estimate.high}


def _empty_row(claim: Claim) -> Row:
    printed = claim.get("paper_effect", np.nan)
    if claim["kind"] == "trend":  # signed in the claimed direction
        printed = abs(printed)
    return {
        "paper": claim["paper"],
        "where": claim.get("where", ""),
        "says": claim.get("says", ""),
        "kind": "peak" if _is_peak(claim) else claim["kind"],
        "paper_effect": printed,
        "margin": verdicts.margin_of(claim),
        "why": "",
        "seeds": "",
        "units": "",
        **dict.fromkeys(NUMBERS, np.nan),
        "verdict": "",
    }


def _without_test(row: Row, verdict: str, why: str = "") -> Row:
    return row | {"verdict": verdict, "why": why}


def _steps_tried(claim: Claim, effect: Effect) -> int:
    """Return the number of tests that Bonferroni's correction counts.

    An ordering is tested by its weakest step, which was chosen after looking. That makes no
    difference where all steps go the claimed way.
    """
    if claim["kind"] != "order" or effect.delta >= 0:
        return 1
    arms = claim["arms"]
    return len(arms) - 1


def _sides(ledger: Ledger, claim: Claim) -> list[Side] | None:
    """Return a claim's arms; None if one was not scored in the claim's set-up."""
    arms = claim["arms"]
    strategies = claim.get("setup", "vanilla")
    if not isinstance(strategies, list):
        strategies = [strategies] * len(arms)
    sides = []
    for run, setup in zip(arms, strategies, strict=True):
        side = ledger.side(claim, run, setup)
        if side is None:
            return None
        sides.append(side)
    return sides


def _weakest_step(sides: Sequence[Side]) -> Effect:
    """Return the difference of neighbouring sides with the weakest evidence, or a lone side."""
    if len(sides) == 1:
        return difference(sides[0])
    steps = [difference(side, following) for side, following in pairwise(sides)]
    return min(steps, key=lambda step: step.evidence)


def _ratio(sides: Sequence[Side]) -> Estimate:
    """Return the ratio of two sides, or of their gains over a third, or a lone side as it is."""
    if len(sides) == 1:
        effect = difference(sides[0])
        return Estimate(effect.delta, *effect.limits)
    return crossed.ratio(*sides)


def _why_idle(ledger: Ledger, claim: Claim) -> str:
    """Return why a claim about a mechanism is void, as it hardly ever acted; else nothing."""
    mechanism = claim.get("mechanism")
    if not mechanism:
        return ""
    run = claim["arms"][0]
    shares = []
    for summary in ledger.summaries(run):
        acted = summary["acted"]
        shares.append(acted.get(mechanism, 0.0))
    share = np.mean(shares)
    if share >= diagnostics.MIN_ACTIVITY:
        return ""
    return f"{mechanism} acted in {share:.0%} of the steps of {run}"


def readable(ledger: pd.DataFrame) -> pd.DataFrame:
    """Return a ledger as a table shows it: effects with intervals, verdicts with reasons."""
    effects = [_effect_in_words(row) for row in ledger.itertuples()]
    verdicts_with_reasons = []
    for row in ledger.itertuples():
        reason = f" ({row.why})" if row.why else ""
        verdicts_with_reasons.append(row.verdict + reason)
    return pd.DataFrame(
        {
            "paper": ledger["paper"],
            "where": ledger["where"],
            "claim": ledger["says"],
            "tests": ledger["tests"],
            "the paper's": ledger["paper_effect"],
            "here, 95 % interval": effects,
            "seeds": ledger["seeds"],
            "units": ledger["units"],
            "p, corrected": ledger["p_corrected"],
            "would be seen": ledger["smallest"],
            "verdict": verdicts_with_reasons,
        }
    )


def _effect_in_words(row: Any) -> str:
    if pd.isna(row.effect):
        return ""
    if pd.isna(row.low):
        return f"{row.effect:+.3g}"
    if np.isinf(row.low):
        return f"{row.effect:+.3g} [no limits]"
    return f"{row.effect:+.3g} [{row.low:+.3g}, {row.high:+.3g}]"
