"""The ledger: what each claim of the papers comes to here, by rule, with an interval and what could have been seen.

A side of a claim is a list of strata, S seeds x I items each, see `stats.difference`. Loads no torch.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from coevolve.runs import record
from coevolve.training import diagnostics
from reproduce.analysis import conversations, crossplay, standins, stats, tables
from reproduce.analysis.stats import Effect, Side, difference

CLAIMS = tomllib.loads((Path(__file__).parents[1] / "claims.toml").read_text(encoding="utf-8"))["claims"]
AVERAGES = {  # of the papers' tables, by what a claim calls them
    "all": ("Overall Avg.", "O Avg.", "Overall", "Average"),
    "in_distribution": ("ID Avg.",),
    "out_of_distribution": ("OOD Avg.",),
}
PARTS = 5  # a trend compares the last fifth of the steps with the first
POWER = 0.8  # of the smallest effect that would have been seen


@dataclass(frozen=True)
class Ledger:
    """Finished runs to weigh claims with."""

    folder: Path
    runs: Mapping[str, Sequence[int]]  # name: its seeds
    crossed: pd.DataFrame | None = None  # of `crossplay.pass_rates`, with the column seed

    def side(self, claim: Mapping[str, Any], run: str, setup: str) -> Side:
        """What a claim's metric says about a run, in points where it is a share of answers."""
        if claim["metric"] == "accuracy":
            return self._accuracy(claim, run, setup)
        if claim["metric"] == "cross_play":
            ends = crossplay.ends(self.crossed, "challenger" if claim["setup"] == "fixed_reasoner" else "reasoner")
            return [_column(ends.iloc[:, 1] - ends.iloc[:, 0])]
        if claim["metric"] == "conversations":
            frame = conversations.read(self.folder, self.runs, {run: run}, claim["paper"])
            ratio = conversations.ratio_of(frame, run, claim["column"], self._rows(claim))
            return [conversations.linear(ratio) * (1 if claim["column"] == "Rank-rho" else 100)]
        frames = [record.read(self.folder / f"{run}-s{seed}", "metrics") for seed in self.runs[run]]
        return [_column([_course(frame, claim) for frame in frames])]

    def _rows(self, claim: Mapping[str, Any]) -> Sequence[str]:
        if not isinstance(claim["rows"], str):
            return claim["rows"]
        groups = standins.layout(claim["paper"]).groups
        return next(groups[name] for name in AVERAGES[claim["rows"]] if name in groups)

    def _accuracy(self, claim: Mapping[str, Any], run: str, setup: str) -> Side:
        """Answers to test questions; top-ranked ones stand in the examined conversations, which hold a part of them."""
        frame = standins.scores(self.folder, self.runs, {run: run}, claim["paper"])
        frame = frame[frame["setup"] == ("vanilla" if setup == "greedy" else setup)]
        if "top_ranked" in claim.get("setup", ()):
            talking = run if setup == "top_ranked" else claim["arms"][0]
            talks = conversations.read(self.folder, self.runs, {talking: run}, claim["paper"])
            asked = frame["question"].isin(talks["question"])
            frame = talks.assign(correct=talks["pass_1"]) if setup == "top_ranked" else frame[asked]
            frame = frame.assign(item=frame["question"])
        families = standins.layout(claim["paper"]).families
        frame = frame[frame["family"].isin([family for row in self._rows(claim) for family in families[row]])]
        matrices = tables.accuracy_matrix(frame, run) if len(frame) else {}
        return [100 * matrices[name].to_numpy() for name in sorted(matrices)]


def _column(values: Sequence[float]) -> NDArray[np.float64]:
    return np.asarray(values, dtype=float)[:, None]


def _total(frame: pd.DataFrame, column: str) -> float:
    """The mean of a column, or a ratio of sums such as tp / (tp + fp) in percent."""
    top, slash, bottom = column.partition(" / ")
    if not slash:
        return float(frame[column].mean())
    parts = [sum(frame[name].sum() for name in side.strip("()").split(" + ")) for side in (top, bottom)]
    return 100 * parts[0] / parts[1] if parts[1] else np.nan


def _course(frame: pd.DataFrame, claim: Mapping[str, Any]) -> float:
    """A column at the end of training; of a trend how far it moved, of a peak how far it fell from its middle."""
    column, scale = claim["column"], 100 if claim["column"] == "validation" else 1
    names = column.replace("(", "").replace(")", "").split()
    known = frame.dropna(subset=[name for name in names if name in frame])
    steps = np.array_split(np.arange(len(known)), min(PARTS, len(known)) or 1)  # validation is looked at now and then
    parts = [_total(known.iloc[chosen], column) for chosen in steps]
    if claim["kind"] == "trend":
        middle = parts[len(parts) // 2]
        fallen = min(middle - parts[0], middle - parts[-1])
        return scale * (fallen if claim["direction"] == "peak" else parts[-1] - parts[0])
    if claim["kind"] == "ratio" and len(claim["arms"]) == 1:
        return _total(known.iloc[-1:], column) / (_total(known.iloc[:1], column) or np.nan)
    return scale * parts[-1]


def weigh(ledger: Ledger, claims: Mapping[str, Mapping[str, Any]] = CLAIMS) -> pd.DataFrame:
    """Return a row per claim: effect, interval, seeds, smallest effect, p (Holm within the paper) and verdict."""
    return corrected(pd.DataFrame([{"claim": name} | _row(ledger, claim) for name, claim in claims.items()]))


def corrected(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a ledger with Holm's correction over the claims that it holds, and the verdicts that rest on it."""
    p_holm = frame.groupby("paper")["p"].transform(lambda p: stats.holm(p))
    weighed = np.where(p_holm < 1 - stats.LEVEL, np.where(frame["effect"] > 0, "found", "opposite"), "undecided")
    return frame.assign(p_holm=p_holm, verdict=frame["verdict"].mask(frame["p"].notna(), weighed))


def _row(ledger: Ledger, claim: Mapping[str, Any]) -> dict[str, Any]:
    """A claim and what the runs say about it; the verdict is left empty where it rests on its p and that of others."""
    row = {name: claim.get(name, "") for name in ("paper", "where", "says", "kind")}
    printed = claim.get("paper_effect", np.nan)  # of a trend as far as it goes the way that is claimed
    row |= {"paper_effect": abs(printed) if claim["kind"] == "trend" else printed, "why": "", "seeds": ""}
    row |= dict.fromkeys(("effect", "low", "high", "smallest", "p"), np.nan)
    missing = [run for run in claim.get("arms", ()) if run not in ledger.runs]
    if "cannot" in claim or missing:
        said = "cannot be tested here" if "cannot" in claim else "not run"
        return row | {"verdict": said, "why": claim.get("cannot") or f"needs {', '.join(missing)}"}
    row["seeds"] = " / ".join(str(len(ledger.runs[run])) for run in claim["arms"])
    effect = _effect(ledger, claim)
    if effect is None:
        return row | {"verdict": "not run", "why": f"the runs did not play {claim['setup']}"}
    row["effect"] = effect.delta
    if idle := _idle(ledger, claim):
        return row | {"verdict": "idle", "why": idle}
    if not np.isfinite(effect.delta):
        return row | {"verdict": "not run", "why": "its measure is not defined in these runs"}
    if np.isnan(effect.error):
        return row | {"verdict": "one seed"}
    limits = dict(zip(("low", "high"), effect.limits, strict=True))
    # A size is found where the interval holds the printed one, and nothing where it holds 0.
    if claim["kind"] == "ratio":
        held, nothing = (limits["low"] <= size <= limits["high"] for size in (claim["paper_effect"], 0))
        verdict = "undecided" if nothing else "found" if held else "other size"
        return row | limits | {"verdict": verdict}
    # Any step of an order may be the other way round, and the one that is most so was picked.
    tried = len(claim["arms"]) - 1 if claim["kind"] == "order" and effect.delta < 0 else 1
    return row | limits | {"smallest": effect.reach(POWER), "p": min(1.0, tried * effect.p), "verdict": ""}


def _effect(ledger: Ledger, claim: Mapping[str, Any]) -> Effect | None:
    """A claim's effect, positive where the paper's is; of an order the step for which there is least to be said.

    None when an arm was not scored in the claim's set-up.
    """
    arms, setups = claim["arms"], claim.get("setup", "vanilla")
    setups = setups if isinstance(setups, list) else [setups] * len(arms)
    sides = [ledger.side(claim, run, setup) for run, setup in zip(arms, setups, strict=True)]
    if not all(sides):
        return None
    fixed = [standins.summary(ledger.folder, run, ledger.runs[run][0])["steps"] == 0 for run in arms]
    if claim["kind"] == "ratio" and len(sides) > 1:
        return _share(sides, fixed)
    steps = [difference(*sides[i : i + 2], (fixed[i], fixed[i + 1])) for i in range(len(sides) - 1)]
    sure = [np.nan_to_num(step.delta / (step.error or 1e-9), nan=-np.inf) for step in steps]  # in standard errors
    least = steps[int(np.argmin(sure))] if steps else difference(sides[0])
    turn = -1 if claim.get("direction") == "down" and claim["kind"] != "ratio" else 1
    return Effect(turn * least.delta, least.error, least.freedom)


def _share(sides: Sequence[Side], fixed: Sequence[bool]) -> Effect:
    """A ratio of two sides, or of their gains over a third, with the noise of both."""
    gains = [difference(side, *sides[2:], fixed=(still, True)) for side, still in zip(sides[:2], fixed, strict=False)]
    (top, bottom), below = gains, gains[1].delta or np.nan  # over no gain a ratio is not defined
    ratio = top.delta / below
    error = np.hypot(top.error, ratio * bottom.error) / abs(below)
    return Effect(ratio, float(error), min(top.freedom, bottom.freedom))


def _idle(ledger: Ledger, claim: Mapping[str, Any]) -> str:
    """Why a claim about a mechanism says nothing: it hardly ever acted; empty when it did."""
    name, run = claim.get("mechanism"), claim["arms"][0]
    summaries = (standins.summary(ledger.folder, run, seed) for seed in ledger.runs[run])
    share = np.mean([summary["acted"].get(name, 0.0) for summary in summaries]) if name else 1.0
    return f"{name} acted in {share:.0%} of the steps of {run}" if share < diagnostics.LEAST else ""
