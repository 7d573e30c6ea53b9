"""The evidence without one backbone, to see how far a claim rests on it.

A backbone is a unit that a replication would draw anew. The rules of the ledger stay the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from reproduce.analysis import claims, verdicts
from reproduce.analysis.arms import Claim, Ledger
from reproduce.analysis.evidence import Evidence, Runs, Summary

COLUMNS = ["claim", "paper", "says", "verdict"]
KEPT = (
    "kept"  # a column of `table`, and the word for a verdict that none of them changes
)
SIGN_TURNS = "sign turns"


@dataclass(frozen=True)
class Without:
    """The evidence of runs that speak other backbones than one.

    A run whose seeds all speak one backbone keeps them: its units are its seeds.
    """

    evidence: Evidence
    backbone: str

    @cached_property
    def runs(self) -> Runs:
        """The seeds of every run that are left."""
        return {run: self._seeds(run) for run in self.evidence.runs}

    def summaries(self, run: str) -> list[Summary]:
        """Return a summary per seed."""
        summaries = self.evidence.summaries(run)
        return [summary for summary in summaries if summary.seed in self.runs[run]]

    def answers(
        self, run: str, strategy: str = "vanilla", stage: str = "after"
    ) -> pd.DataFrame:
        """Return a row per seed and test question."""
        return self._left(self.evidence.answers(run, strategy, stage), run)

    def step_metrics(self, run: str) -> pd.DataFrame:
        """Return a row per seed and step."""
        return self._left(self.evidence.step_metrics(run), run)

    def conversations(self, run: str) -> pd.DataFrame:
        """Return a row per seed and examined question."""
        return self._left(self.evidence.conversations(run), run)

    def cross_play(self) -> pd.DataFrame:
        """Return all pass rates of snapshots; those of seeds without a unit are not counted."""
        return self.evidence.cross_play()

    def _seeds(self, run: str) -> list[int]:
        backbone_of = {}
        for summary in self.evidence.summaries(run):
            backbone_of[summary.seed] = summary.backbone
        if len(set(backbone_of.values())) == 1:
            return list(backbone_of)
        others = []
        for seed, backbone in backbone_of.items():
            if backbone != self.backbone:
                others.append(seed)
        return others

    def _left(self, frame: pd.DataFrame, run: str) -> pd.DataFrame:
        return frame[frame["seed"].isin(self.runs[run])].reset_index(drop=True)


def backbones(evidence: Evidence) -> list[str]:
    """Return the backbones of runs that speak several, each once."""
    found: list[str] = []
    for run in evidence.runs:
        spoken = {summary.backbone for summary in evidence.summaries(run)}
        if len(spoken) > 1:
            new = spoken.difference(found)
            found += sorted(new)
    return found


def ledgers(
    evidence: Evidence, registry: Mapping[str, Claim] = claims.CLAIMS
) -> dict[str, pd.DataFrame]:
    """Return the ledger without each backbone, by the backbone that is left out."""
    found = {}
    for backbone in backbones(evidence):
        left = Ledger(Without(evidence, backbone))
        found[backbone] = claims.weigh(left, registry)
    return found


def table(whole: pd.DataFrame, without: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return a row per claim that is decidable and loses data: its verdicts with and without them.

    Columns: claim, paper, says, verdict; a verdict for each backbone that is left out; kept,
    whether all of them are in the same group; sign turns, whether one is found and another
    opposite.
    """
    rows = whole[COLUMNS].set_index("claim")
    for backbone, ledger in without.items():
        by_claim = ledger.set_index("claim")
        rows[backbone] = by_claim["verdict"]
    words = rows[["verdict", *without]]
    groups = words.map(verdicts.group_of)
    rows[KEPT] = groups.nunique(axis=1) == 1
    found = words == verdicts.FOUND
    opposite = words == verdicts.OPPOSITE
    rows[SIGN_TURNS] = found.any(axis=1) & opposite.any(axis=1)
    is_decidable = groups["verdict"] != verdicts.NOT_DECIDABLE
    loses = loses_data(whole, without)
    return rows[is_decidable & loses].reset_index()


def stability(
    whole: pd.DataFrame, without: Mapping[str, pd.DataFrame]
) -> dict[str, str]:
    """Say for each claim of `table` whether its verdict rests on one backbone, by claim.

    The words are KEPT, or the other verdicts with the backbones that are left out, such as
    "would be undecided without tiny-1 or tiny-3".
    """
    words = {}
    rows = table(whole, without).set_index("claim")
    for claim, verdict_of in rows.to_dict("index").items():
        words[claim] = _changes(verdict_of, list(without))
    return words


def _changes(verdict_of: Mapping[str, str], left_out: Sequence[str]) -> str:
    backbones_of: dict[str, list[str]] = {}
    for backbone in left_out:
        verdict = verdict_of[backbone]
        if verdict != verdict_of["verdict"]:
            backbones_of.setdefault(verdict, []).append(backbone)
    parts = []
    for verdict, names in backbones_of.items():
        choice = _one_of(names)
        parts.append(f"{verdict} without {choice}")
    return f"would be {'; '.join(parts)}" if parts else KEPT


def _one_of(names: Sequence[str]) -> str:
    """Return names as a choice, such as "tiny, tiny-1 or tiny-2"."""
    *others, last = names
    if not others:
        return last
    first = ", ".join(others)
    return f"{first} or {last}"


def loses_data(whole: pd.DataFrame, without: Mapping[str, pd.DataFrame]) -> pd.Series:
    """Whether a claim has another effect without one of the backbones, by claim.

    A claim whose runs all speak one backbone keeps its data.
    """
    effects = whole.set_index("claim")[["effect"]]
    for backbone, ledger in without.items():
        by_claim = ledger.set_index("claim")
        effects[backbone] = by_claim["effect"]
    different = effects.nunique(axis=1)
    return different > 1
