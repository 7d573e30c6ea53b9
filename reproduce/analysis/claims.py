"""The ledger: each claim of the papers, reproduced, with an interval and a verdict by rule.

A side of a claim is a list of strata, S seeds x I items each, see `stats.difference`. What the
claims are tested on is read by `evidence`. Loads no torch.
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

from coevolve.training import diagnostics
from reproduce.analysis import (
    conversations,
    crossplay,
    standins,
    stats,
    tables,
)
from reproduce.analysis.evidence import Evidence, Runs, Summary
from reproduce.analysis.stats import Array, Effect, Side, difference

CLAIMS_FILE = Path(__file__).parents[1] / "claims.toml"
CLAIMS = tomllib.loads(CLAIMS_FILE.read_text(encoding="utf-8"))["claims"]
UNTESTED = {  # field of a claim: its verdict
    "cannot": "cannot be tested here",
    "by_construction": "by construction",
}
AVERAGES = {  # of the papers' tables, by what a claim calls them
    "all": ("Overall Avg.", "O Avg.", "Overall", "Average"),
    "in_distribution": ("ID Avg.",),
    "out_of_distribution": ("OOD Avg.",),
}
OPERATORS = {"+", "/"}  # of columns such as tp / (tp + fp)
PARTS = 5  # a trend compares the last fifth of the steps with the first
POWER = 0.8  # of the smallest detectable effect
Claim = Mapping[str, Any]
Row = dict[str, Any]
OVER_CONTROL = ("over_control", "over_control_low", "over_control_high")
NUMBERS = (  # columns that are nan where there is no test
    "effect",
    "low",
    "high",
    "smallest",
    "p",
)


@dataclass(frozen=True)
class Ledger:
    """The evidence that claims are tested on."""

    evidence: Evidence

    @property
    def runs(self) -> Runs:
        """The seeds of every run."""
        return self.evidence.runs

    def side(self, claim: Claim, run: str, setup: str) -> Side:
        """Return a run's values of the claim's metric, in points if they are shares of answers."""
        metric = claim["metric"]
        if metric == "accuracy":
            return self._accuracy(claim, run, setup)
        if metric == "cross_play":
            return self._cross_play(claim)
        if metric == "conversations":
            return self._conversations(claim, run)
        return self._metrics(claim, run)

    def summaries(self, run: str) -> list[Summary]:
        """Return the summary of each seed of a run."""
        return self.evidence.summaries(run)

    def is_untrained(self, run: str) -> bool:
        """Whether a run took no steps, so that another seed would be the same."""
        first_summary = self.summaries(run)[0]
        return first_summary.steps == 0

    def _metrics(self, claim: Claim, run: str) -> Side:
        metrics = self.evidence.step_metrics(run)
        by_seed = metrics.groupby("seed", sort=False)
        values = [_course(of_seed, claim) for _, of_seed in by_seed]
        return [_as_column(values)]

    def _cross_play(self, claim: Claim) -> Side:
        reasoner_is_fixed = claim["setup"] == "fixed_reasoner"
        trained_role = "challenger" if reasoner_is_fixed else "reasoner"
        rates = crossplay.first_and_last(self.evidence.cross_play(), trained_role)
        first = rates.iloc[:, 0]
        last = rates.iloc[:, 1]
        return [_as_column(last - first)]

    def _conversations(self, claim: Claim, run: str) -> Side:
        """Return a measure of conversations: of two arms, over those that define it for both."""
        arms = claim["arms"]
        ratios = {arm: self._ratio(claim, arm) for arm in arms}
        if len(arms) == 2:
            first, second = arms
            of_second, of_first = conversations.shared(ratios[second], ratios[first])
            ratios = {first: of_first, second: of_second}
        scale = 1 if claim["column"] == "Rank-rho" else 100
        return [conversations.linear(ratios[run]) * scale]

    def _ratio(self, claim: Claim, run: str) -> conversations.Ratio:
        talks = conversations.described(
            self.evidence.conversations(run), claim["paper"]
        )
        rows = self._rows(claim)
        return conversations.ratio_of(
            talks.assign(method=run), run, claim["column"], rows
        )

    def _accuracy(self, claim: Claim, run: str, setup: str) -> Side:
        """Return answers to test questions, one stratum per stand-in.

        Top-ranked answers are those of the examined conversations. These cover a part of the
        questions, so greedy answers are compared on that part.
        """
        paper = claim["paper"]
        frame = standins.with_stand_ins(self._answers(claim, run, setup), paper)
        families_of = standins.layout(paper).families
        families = []
        for row in self._rows(claim):
            families += families_of[row]
        frame = frame[frame["family"].isin(families)]
        if frame.empty:
            return []
        matrices = tables.accuracy_matrix(frame.assign(method=run), run)
        names = sorted(matrices)
        return [100 * matrices[name].to_numpy() for name in names]

    def _answers(self, claim: Claim, run: str, setup: str) -> pd.DataFrame:
        """Return a row per seed and item, with ANSWER_COLUMNS among its columns."""
        if setup == "top_ranked":
            talks = self.evidence.conversations(run)
            return talks.assign(correct=talks["pass_1"], item=talks["question"])
        strategy = "vanilla" if setup == "greedy" else setup
        answers = self.evidence.answers(run, strategy)
        if "top_ranked" not in claim.get("setup", ()):
            return answers
        discussing_run = claim["arms"][0]
        talks = self.evidence.conversations(discussing_run)
        is_examined = answers["question"].isin(talks["question"])
        examined = answers[is_examined]
        return examined.assign(item=examined["question"])

    def _rows(self, claim: Claim) -> Sequence[str]:
        rows = claim["rows"]
        if not isinstance(rows, str):
            return rows
        groups = standins.layout(claim["paper"]).groups
        name = next(name for name in AVERAGES[rows] if name in groups)
        return groups[name]


def _as_column(values: Sequence[float]) -> Array:
    """Return one value per seed as S seeds x 1 item."""
    return np.asarray(values, dtype=float)[:, None]


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

    For a trend: its change from the first to the last fifth of the steps. For a peak: how far
    the middle fifth is above both. For a ratio with one arm: a share's mean over all steps, in
    percent.
    """
    column = claim["column"]
    kind = claim["kind"]
    frame = _measured_steps(frame, column)
    if kind == "ratio" and len(claim["arms"]) == 1:
        return 100 * _column_total(frame, column)
    scale = 100 if column == "validation" else 1
    parts = _totals_of_parts(frame, column)
    if kind != "trend":
        return scale * parts[-1]
    if claim["direction"] != "peak":
        return scale * (parts[-1] - parts[0])
    middle = parts[len(parts) // 2]
    rise = middle - parts[0]
    fall = middle - parts[-1]
    return scale * min(rise, fall)


def _measured_steps(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return the steps that have values; validation, for one, is measured only now and then."""
    measured = [name for name in _names_in(column) if name in frame]
    return frame.dropna(subset=measured)


def step_columns(claims: Mapping[str, Claim] = CLAIMS) -> list[str]:
    """Return the columns of the step metrics that these claims use, sorted."""
    names = set()
    for claim in claims.values():
        if claim.get("metric") == "column":
            names.update(_names_in(claim["column"]))
    return sorted(names - OPERATORS)


def _names_in(column: str) -> list[str]:
    """Return the words of a claim's column, such as tp, /, tp, +, fp in "tp / (tp + fp)"."""
    return re.findall(r"[^() ]+", column)


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
    """Return a row per claim: effect, interval, seeds, detectable effect, p and verdict."""
    rows = []
    for name, claim in claims.items():
        row = _row(ledger, claim)
        rows.append({"claim": name, **row, **_over_control(ledger, claim)})
    return corrected(pd.DataFrame(rows))


def corrected(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a ledger with Holm's correction within each paper, and the verdicts from it."""
    by_paper = frame.groupby("paper")
    p_holm = by_paper["p"].transform(lambda p: stats.holm(p))
    is_positive = frame["effect"] > 0
    is_significant = p_holm < 1 - stats.LEVEL
    direction = np.where(is_positive, "found", "opposite")
    tested = np.where(is_significant, direction, "undecided")
    is_tested = frame["p"].notna()
    verdict = frame["verdict"].mask(is_tested, tested)
    return frame.assign(p_holm=p_holm, verdict=verdict)


def _row(ledger: Ledger, claim: Claim) -> Row:
    """Return a claim's row of the ledger.

    The verdict is empty where it follows from the p-values of all claims, see `corrected`.
    """
    row = _empty_row(claim)
    for field, verdict in UNTESTED.items():
        if field in claim:
            return _without_test(row, verdict, why=claim[field])
    arms = claim["arms"]
    missing = [run for run in arms if run not in ledger.runs]
    if missing:
        return _without_test(row, "not run", why=f"needs {', '.join(missing)}")
    seed_counts = [len(ledger.runs[run]) for run in arms]
    row["seeds"] = " / ".join(map(str, seed_counts))
    effect = _effect(ledger, claim)
    if effect is None:
        return _without_test(
            row,
            "not run",
            why=f"the runs did not play {claim['setup']}",
        )
    row["effect"] = effect.delta
    why_idle = _why_idle(ledger, claim)
    if why_idle:
        return _without_test(row, "idle", why=why_idle)
    if not np.isfinite(effect.delta):
        why = "its measure is not defined in these runs"
        return _without_test(row, "not run", why=why)
    if np.isnan(effect.standard_error):
        return _without_test(row, "one seed")
    row["low"], row["high"] = effect.limits
    if claim["kind"] == "ratio":
        row["verdict"] = _verdict_on_size(effect, claim["paper_effect"])
        return row
    row["smallest"] = effect.detectable(POWER)
    row["p"] = min(1.0, _steps_tried(claim, effect) * effect.p)
    return row


def _empty_row(claim: Claim) -> Row:
    printed = claim.get("paper_effect", np.nan)
    if claim["kind"] == "trend":  # signed in the claimed direction
        printed = abs(printed)
    return {
        "paper": claim["paper"],
        "where": claim.get("where", ""),
        "says": claim.get("says", ""),
        "kind": claim["kind"],
        "paper_effect": printed,
        "why": claim.get("note", ""),
        "seeds": "",
        **dict.fromkeys(NUMBERS, np.nan),
        "verdict": "",
    }


def _without_test(row: Row, verdict: str, why: str = "") -> Row:
    return row | {"verdict": verdict, "why": why or row["why"]}


def _verdict_on_size(effect: Effect, printed: float) -> str:
    """Judge a ratio: found if its interval holds the printed one, undecided if it holds 0."""
    low, high = effect.limits
    if low <= 0 <= high:
        return "undecided"
    return "found" if low <= printed <= high else "other size"


def _steps_tried(claim: Claim, effect: Effect) -> int:
    """Return the number of tests that Bonferroni's correction counts.

    An ordering is tested by its weakest step, which was chosen after looking. That makes no
    difference where all steps go the claimed way.
    """
    if claim["kind"] != "order" or effect.delta >= 0:
        return 1
    arms = claim["arms"]
    return len(arms) - 1


def _effect(ledger: Ledger, claim: Claim) -> Effect | None:
    """Return a claim's effect, positive where the paper's is; for an order that of one step.

    That step is the one with the weakest evidence. Returns None if an arm was not scored in the
    claim's set-up.
    """
    arms = claim["arms"]
    is_ratio = claim["kind"] == "ratio"
    strategies = claim.get("setup", "vanilla")
    if not isinstance(strategies, list):
        strategies = [strategies] * len(arms)
    sides = []
    for run, setup in zip(arms, strategies, strict=True):
        sides.append(ledger.side(claim, run, setup))
    if not all(sides):
        return None
    fixed = [ledger.is_untrained(run) for run in arms]
    if is_ratio and len(sides) > 1:
        return ratio_of_effects(sides, fixed)
    effect = _weakest_step(sides, fixed)
    if claim.get("direction") == "down" and not is_ratio:
        return replace(effect, delta=-1 * effect.delta)
    return effect


def _weakest_step(sides: Sequence[Side], fixed: Sequence[bool]) -> Effect:
    """Return the difference of neighbouring sides that is smallest in standard errors."""
    if len(sides) == 1:
        return difference(sides[0])
    neighbours = zip(pairwise(sides), pairwise(fixed), strict=True)
    steps = []
    for (side, following), fixed_pair in neighbours:
        steps.append(difference(side, following, fixed_pair))
    return min(steps, key=_evidence)


def _evidence(step: Effect) -> float:
    """Return an effect in standard errors, minus infinity where these are unknown."""
    unit = step.standard_error or 1e-9
    in_units = step.delta / unit
    return -np.inf if np.isnan(in_units) else in_units


def ratio_of_effects(sides: Sequence[Side], fixed: Sequence[bool]) -> Effect:
    """Return the ratio of two sides, or of their gains over a third side.

    Its standard error is the delta method's for independent numerator and denominator. The
    ratio is nan where the denominator is 0.
    """
    numerator_side, denominator_side, *base = sides
    numerator = difference(numerator_side, *base, fixed=(fixed[0], True))
    denominator = difference(denominator_side, *base, fixed=(fixed[1], True))
    divisor = denominator.delta or np.nan
    ratio = numerator.delta / divisor
    error_from_denominator = ratio * denominator.standard_error
    error = np.hypot(numerator.standard_error, error_from_denominator) / abs(divisor)
    dof = min(numerator.dof, denominator.dof)
    return Effect(ratio, float(error), dof)


def _why_idle(ledger: Ledger, claim: Claim) -> str:
    """Return why a claim about a mechanism is void, as it hardly ever acted; else nothing."""
    mechanism = claim.get("mechanism")
    if not mechanism:
        return ""
    run = claim["arms"][0]
    shares = []
    for summary in ledger.summaries(run):
        shares.append(summary.acted.get(mechanism, 0.0))
    share = np.mean(shares)
    if share >= diagnostics.MIN_ACTIVITY:
        return ""
    return f"{diagnostics.described(mechanism, share)} of {run}"


def _over_control(ledger: Ledger, claim: Claim) -> Row:
    """Return what a claim's first arm gains over its control arm, with limits; else nan.

    Both are asked as the first arm of the claim is.
    """
    if "control" not in claim:
        return dict.fromkeys(OVER_CONTROL, np.nan)
    method, _ = claim["arms"]
    setup = claim.get("setup", "vanilla")
    if isinstance(setup, list):
        setup = setup[0]
    arms = [method, claim["control"]]
    row = _row(ledger, {**claim, "arms": arms, "setup": setup})
    numbers = [row["effect"], row["low"], row["high"]]
    return dict(zip(OVER_CONTROL, numbers, strict=True))


def readable(ledger: pd.DataFrame) -> pd.DataFrame:
    """Return a ledger as a table shows it: effects with intervals, verdicts with reasons."""
    effects = [_effect_in_words(row) for row in ledger.itertuples()]
    of_controls = ledger[list(OVER_CONTROL)].set_axis(["effect", "low", "high"], axis=1)
    verdicts = []
    for row in ledger.itertuples():
        reason = f" ({row.why})" if row.why else ""
        verdicts.append(row.verdict + reason)
    return pd.DataFrame(
        {
            "paper": ledger["paper"],
            "where": ledger["where"],
            "claim": ledger["says"],
            "the paper's": ledger["paper_effect"],
            "here, 95 % interval": effects,
            "over its control": [
                _effect_in_words(row) for row in of_controls.itertuples()
            ],
            "seeds": ledger["seeds"],
            "p (Holm)": ledger["p_holm"],
            "would be seen": ledger["smallest"],
            "verdict": verdicts,
        }
    )


def _effect_in_words(row: Any) -> str:
    if pd.isna(row.effect):
        return ""
    if pd.isna(row.low):
        return f"{row.effect:+.3g}"
    return f"{row.effect:+.3g} [{row.low:+.3g}, {row.high:+.3g}]"
