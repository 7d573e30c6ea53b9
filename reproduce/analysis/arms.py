"""What an arm of a claim scored: its answers, metrics, conversations or cross play, as a side.

`evidence` reads it, and `crossed` compares sides. Loads no torch.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from reproduce.analysis import conversations, crossed, crossplay, standins, tables
from reproduce.analysis.crossed import Side
from reproduce.analysis.evidence import Evidence, Runs, Summary

AVERAGES = {  # of the papers' tables, by what a claim calls them
    "all": ("Overall Avg.", "O Avg.", "Overall", "Average"),
    "in_distribution": ("ID Avg.",),
    "out_of_distribution": ("OOD Avg.",),
}
PARTS = 5  # a trend compares the last fifth of the steps with the first
Claim = Mapping[str, Any]


@dataclass(frozen=True)
class Ledger:
    """The evidence that claims are tested on."""

    evidence: Evidence

    @property
    def runs(self) -> Runs:
        """The seeds of every run."""
        return self.evidence.runs

    def side(self, claim: Claim, run: str, setup: str) -> Side | None:
        """Return a run's values of the claim's metric, in points if they are shares of answers.

        None if the run was not scored in the set-up.
        """
        side = self._values(claim, run, setup)
        if side is None:
            return None
        return replace(side, is_trained=not self.is_untrained(run))

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
        backbones = [summary.backbone for summary in self.summaries(run)]
        return crossed.units_of(backbones, self.runs[run])

    def speaks_several(self, run: str) -> bool:
        """Whether the seeds of a run start from several backbones."""
        return len({summary.backbone for summary in self.summaries(run)}) > 1

    def unit_of(self, run: str) -> dict[int, str]:
        """Return the unit of replication by seed."""
        seeds = self.runs[run]
        units = self.units(run)
        return dict(zip(seeds, units, strict=True))

    def summaries(self, run: str) -> list[Summary]:
        """Return the summary of each seed of a run."""
        return self.evidence.summaries(run)

    def is_untrained(self, run: str) -> bool:
        """Whether a run took no steps, so that another seed would be the same."""
        first_summary = self.summaries(run)[0]
        return first_summary.steps == 0

    def _metrics(self, claim: Claim, run: str) -> Side:
        values = []
        for _, of_seed in self._steps_by_seed(run):
            value = _course(of_seed, claim)
            values.append(value)
        units = self.units(run)
        return crossed.side_of_values(values, units)

    def _steps_by_seed(self, run: str) -> Iterable[tuple[int, pd.DataFrame]]:
        steps = self.evidence.step_metrics(run)
        return steps.groupby("seed", sort=False)

    def curves(self, claim: Claim, run: str) -> pd.DataFrame:
        """Return a column at the steps at which all seeds measured it, a row per unit."""
        column = claim["column"]
        curves = {}
        for seed, of_seed in self._steps_by_seed(run):
            steps = _measured_steps(of_seed, column).set_index("step")
            curves[seed] = _scale(column) * steps[column]
        by_step = pd.DataFrame(curves).dropna()
        units = self.units(run)
        by_unit = by_step.T.groupby(units)
        return by_unit.mean()

    def _cross_play(self, claim: Claim, run: str) -> Side:
        reasoner_is_fixed = claim["setup"] == "fixed_reasoner"
        trained_role = "challenger" if reasoner_is_fixed else "reasoner"
        rates = self.evidence.cross_play()
        rates = self._with_units(rates, run)
        by_unit = crossplay.first_and_last(rates, trained_role)
        first_U = by_unit.iloc[:, 0]
        last_U = by_unit.iloc[:, -1]
        units = by_unit.index.astype(str)
        return crossed.side_of_values(last_U - first_U, units)

    def _conversations(self, claim: Claim, run: str) -> Side:
        """Return a measure of conversations: of two arms, over those that define it for both."""
        arms = claim["arms"]
        ratios = {arm: self._ratio(claim, arm) for arm in arms}
        if len(arms) == 2:
            first, second = arms
            of_second, of_first = conversations.shared(ratios[second], ratios[first])
            ratios = {first: of_first, second: of_second}
        is_correlation = claim["column"] == "Rank-rho"
        scale = 1 if is_correlation else 100
        ratio = ratios[run]
        return conversations.side_of(ratio, scale)

    def _ratio(self, claim: Claim, run: str) -> conversations.Ratio:
        talks = self.evidence.conversations(run)
        talks = self._with_units(talks, run)
        talks = conversations.described(talks, claim["paper"])
        rows = self._rows(claim)
        return conversations.ratio_of(talks, run, claim["column"], rows)

    def _with_units(self, frame: pd.DataFrame, run: str) -> pd.DataFrame:
        """Return a run's evidence with the columns method (the run) and unit (of its seed)."""
        unit = frame["seed"].map(self.unit_of(run))
        return frame.assign(method=run, unit=unit)

    def _accuracy(self, claim: Claim, run: str, setup: str) -> Side | None:
        """Return answers to test questions, one stratum per stand-in.

        Top-ranked answers are those of the examined conversations. These cover a part of the
        questions, so greedy answers are compared on that part.
        """
        paper = claim["paper"]
        answers = self._answers(claim, run, setup)
        answers = self._with_units(answers, run)
        frame = standins.with_stand_ins(answers, paper)
        families_of = standins.layout(paper).families
        families = []
        for row in self._rows(claim):
            families += families_of[row]
        is_asked = frame["family"].isin(families)
        frame = frame[is_asked]
        if frame.empty:
            return None
        stand_ins = sorted(frame["benchmark"].unique())
        return tables.accuracy_side(frame, run, stand_ins)

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
        discussed = talks["question"]
        is_examined = answers["question"].isin(discussed)
        examined = answers[is_examined]
        return examined.assign(item=examined["question"])

    def _rows(self, claim: Claim) -> Sequence[str]:
        rows = claim["rows"]
        if not isinstance(rows, str):
            return rows
        layout = standins.layout(claim["paper"])
        names = [name for name in AVERAGES[rows] if name in layout.groups]
        return layout.groups[names[0]]


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
    arm: a share's mean over all steps, in percent. `per_step` asks for the column's growth from
    each step to the next in place of the column.
    """
    column = claim["column"]
    kind = claim["kind"]
    frame = _measured_steps(frame, column)
    if claim.get("per_step"):
        frame = _growth(frame, column)
    if kind == "ratio" and len(claim["arms"]) == 1:
        return 100 * _column_total(frame, column)
    parts = _totals_of_parts(frame, column)
    value = parts[-1]
    if kind == "trend":
        value -= parts[0]
    return _scale(column) * value


def _scale(column: str) -> int:
    """Return what makes points of a column's shares."""
    return 100 if column == "validation" else 1


def _measured_steps(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return the steps that have values; validation, for one, is measured only now and then."""
    measured = [name for name in names_in(column) if name in frame]
    return frame.dropna(subset=measured)


def _growth(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return the rows from the second on, with what the column gained per step since the last."""
    gained = frame[column].diff()
    steps = frame["step"].diff()
    grown = frame.assign(**{column: gained / steps})
    return grown.iloc[1:]


def names_in(column: str) -> list[str]:
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
