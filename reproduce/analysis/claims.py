"""The ledger: each claim of the papers, reproduced, with an interval and a verdict by rule.

`arms` reads what each arm of a claim scored, `crossed` computes effects and their noise, and
`verdicts` has the rules. Loads no torch.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from coevolve.training import diagnostics
from reproduce.analysis import crossed, peaks, verdicts
from reproduce.analysis.arms import Claim, names_in
from reproduce.analysis.arms import Ledger as Ledger
from reproduce.analysis.crossed import Side, difference
from reproduce.analysis.peaks import Peak
from reproduce.analysis.stats import Effect, Estimate
from reproduce.analysis.verdicts import Step

CLAIMS_FILE = Path(__file__).parents[1] / "claims.toml"
REGISTRY = tomllib.loads(CLAIMS_FILE.read_text(encoding="utf-8"))
CLAIMS = REGISTRY["claims"]
# The headline claims of each paper, and the date of the choice.
HEADLINE = REGISTRY["headline"]
UNTESTED = {  # field of a claim: its verdict
    "cannot": verdicts.CANNOT,
    "by_construction": verdicts.BY_CONSTRUCTION,
}
OPERATORS = {"+", "/"}  # of columns such as tp / (tp + fp)
Row = dict[str, Any]
OVER_CONTROL = ("over_control", "over_control_low", "over_control_high")
NUMBERS = (  # columns that are nan where there is no test
    "effect",
    "standard_error",
    "dof",
    "low",
    "high",
    "p",
)
ONE_BACKBONE = "over seeds of one backbone; other backbones may differ more"
PERCENT = 100.0  # the greatest share


@dataclass(frozen=True)
class Outcome:
    """What the arms of a claim show.

    printed: the paper's effect for what is measured. verdict: the one that holds unless p is
    significant after the correction. note: which of several steps the effect is.
    """

    effect: Effect
    printed: float
    p: float
    verdict: str
    note: str


def step_columns(claims: Mapping[str, Claim] = CLAIMS) -> list[str]:
    """Return the columns of the step metrics that these claims use, sorted."""
    names = set()
    for claim in claims.values():
        if claim.get("metric") == "column":
            names.update(names_in(claim["column"]))
    return sorted(names - OPERATORS)


def tests_of(name: str, claim: Claim) -> str:
    """Return the tests among which a claim is corrected: "headline" or "other"."""
    return "headline" if name in HEADLINE.get(claim["paper"], ()) else "other"


def weigh(ledger: Ledger, claims: Mapping[str, Claim] = CLAIMS) -> pd.DataFrame:
    """Return a row per claim: effect, interval, seeds, detectable effect, p and verdict.

    `tests` says whether the claim is among its paper's headline claims or the others.
    """
    rows = []
    for name, claim in claims.items():
        row = {"claim": name, "tests": tests_of(name, claim), **_row(ledger, claim)}
        rows.append(row | _over_control(ledger, claim))
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
    seeds = [str(len(ledger.runs[run])) for run in arms]
    units = [_units_in_words(ledger, run) for run in arms]
    row["seeds"] = " / ".join(seeds)
    row["units"] = " / ".join(units)
    if any(_is_one_backbone(ledger, run) for run in arms):
        row = _with_note(row, ONE_BACKBONE)
    if _is_peak(claim):
        return _peak_row(row, ledger, claim)
    sides = _sides(ledger, claim)
    if sides is None:
        why = f"the runs did not play {claim['setup']}"
        return _without_test(row, verdicts.NOT_RUN, why)
    if claim["kind"] == "ratio":
        return _ratio_row(row, ledger, claim, _ratio(sides))
    effects = _steps(claim, sides)
    outcome = _outcome_of_steps(claim, effects)
    return _tested_row(row, ledger, claim, outcome)


def _with_note(row: Row, note: str) -> Row:
    """Return a row with one more remark beside its verdict."""
    notes = [row["why"], note]
    row["why"] = "; ".join(filter(None, notes))
    return row


def _outcome_of_steps(claim: Claim, effects: Sequence[Effect]) -> Outcome:
    """Return the outcome of a claim that is tested by its weakest step, of one or several."""
    count = len(effects)
    evidence = [effect.evidence for effect in effects]
    weakest = evidence.index(min(evidence))
    printed = printed_effects(claim, count)
    note = ""
    if count > 1:
        better, worse = claim["arms"][weakest : weakest + 2]
        note = f"the weakest step: {better} over {worse}"
    effect = effects[weakest]
    tests = _steps_tried(claim, effect)
    return Outcome(
        effect,
        printed=printed[weakest],
        p=min(1.0, tests * effect.p),
        verdict=_by_size(claim, effects, printed),
        note=note,
    )


def _by_size(claim: Claim, effects: Sequence[Effect], printed: Sequence[float]) -> str:
    """Return the verdict on a claim none of whose steps is significant."""
    margin = verdicts.margin_of(claim)
    is_sized = claim["kind"] in verdicts.SIZED
    steps = []
    for effect, printed_of_step in zip(effects, printed, strict=True):
        comparable = printed_of_step if is_sized else np.nan
        step = Step(effect, comparable, margin)
        steps.append(step)
    return verdicts.of_size(steps)


def printed_effects(claim: Claim, steps: int) -> list[float]:
    """Return the paper's effect for each step, signed in the claimed direction; nan without one.

    The steps of a peak are its rise and its fall.
    """
    printed = claim.get("paper_effect", np.nan)
    of_steps = printed if isinstance(printed, list) else [printed] * steps
    if claim["kind"] == "trend":
        return [abs(effect) for effect in of_steps]
    return of_steps


def _units_in_words(ledger: Ledger, run: str) -> str:
    """Return how many units a run has, and what they are."""
    unit = "backbone" if ledger.speaks_several(run) else "seed"
    units = set(ledger.units(run))
    count = len(units)
    plural = "" if count == 1 else "s"
    return f"{count} {unit}{plural}"


def _is_one_backbone(ledger: Ledger, run: str) -> bool:
    """Whether a trained run has several seeds, all of one backbone."""
    if len(ledger.runs[run]) < 2 or ledger.is_untrained(run):
        return False
    return not ledger.speaks_several(run)


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
    peak = peaks.measure(curves)
    outcome = _outcome_of_peak(claim, peak)
    return _tested_row(row, ledger, claim, outcome)


def _outcome_of_peak(claim: Claim, peak: Peak) -> Outcome:
    """Return the outcome of a peak, with what the paper prints for the weaker side."""
    names = list(peak.sides)
    printed = printed_effects(claim, steps=len(names))
    place = names.index(peak.weaker_side)
    effect = peak.weaker
    return Outcome(
        effect,
        printed=printed[place],
        # A curve that only rises or only falls has no peak, which is no opposite of one.
        p=effect.p if effect.delta > 0 else 1.0,
        verdict=verdicts.UNDECIDED,
        note=f"the weaker side of the peak: its {peak.weaker_side}",
    )


def _tested_row(row: Row, ledger: Ledger, claim: Claim, outcome: Outcome) -> Row:
    effect = outcome.effect
    estimate = Estimate(effect.delta, *effect.limits)
    row["paper_effect"] = outcome.printed
    row = _with_note(row, outcome.note)
    row = _row_of_estimate(row, ledger, claim, estimate)
    if row["verdict"]:
        return row
    tested = {
        "standard_error": effect.standard_error,
        "dof": effect.dof,
        "p": outcome.p,
        "verdict": outcome.verdict,
    }
    return row | tested


def _ratio_row(row: Row, ledger: Ledger, claim: Claim, ratio: Estimate) -> Row:
    row = _row_of_estimate(row, ledger, claim, ratio)
    if row["verdict"]:
        return row
    if claim.get("over_all"):
        note = _ratio_over_all(ledger, claim)
        row = _with_note(row, note)
    printed = claim["paper_effect"]
    row["verdict"] = verdicts.of_ratio(ratio, printed)
    return row


def _ratio_over_all(ledger: Ledger, claim: Claim) -> str:
    """Say what a ratio is over all stand-ins of the paper, with its interval."""
    over_all = {**claim, "rows": "all"}
    sides = _sides(ledger, over_all)
    if sides is None:
        return ""
    value, low, high = _ratio(sides)
    return f"over all benchmarks' stand-ins it is {value:.2f} [{low:.2f}, {high:.2f}]"


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
    # Which of several steps is the weakest shows only when the claim is tested.
    printed = printed_effects(claim, steps=1)
    return {
        "paper": claim["paper"],
        "where": claim.get("where", ""),
        "says": claim.get("says", ""),
        "kind": "peak" if _is_peak(claim) else claim["kind"],
        "paper_effect": printed[0] if len(printed) == 1 else np.nan,
        "margin": verdicts.margin_of(claim),
        "why": claim.get("note", ""),
        "seeds": "",
        "units": "",
        **dict.fromkeys(NUMBERS, np.nan),
        "verdict": "",
    }


def _without_test(row: Row, verdict: str, why: str = "") -> Row:
    return row | {"verdict": verdict, "why": why or row["why"]}


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


def _steps(claim: Claim, sides: Sequence[Side]) -> list[Effect]:
    """Return the differences of neighbouring sides, or a lone side; positive ones support it."""
    if len(sides) == 1:
        effects = [difference(sides[0])]
    else:
        pairs = pairwise(sides)
        effects = [difference(side, following) for side, following in pairs]
    if claim.get("direction") != "down":
        return effects
    return [replace(effect, delta=-effect.delta) for effect in effects]


def _ratio(sides: Sequence[Side]) -> Estimate:
    """Return the ratio of two sides, or of their gains over a third, or a lone side as it is.

    A lone side is a share in percent. Student's t is unbounded, so its limits are clipped.
    """
    if len(sides) == 1:
        effect = difference(sides[0])
        low, high = effect.limits
        return Estimate(
            effect.delta,
            low=max(low, 0.0),
            high=min(high, PERCENT),
        )
    return crossed.ratio(*sides)


def _why_idle(ledger: Ledger, claim: Claim) -> str:
    """Return why a claim's mechanism is idle: how small its effect was. Return "" if it is not."""
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


def control_over_untrained(ledger: Ledger, claim: Claim) -> Estimate:
    """Return what the control of a claim over the untrained model gains over that model.

    Both are asked as the arms of the claim are. Negative: shuffled rewards do harm.
    """
    _, untrained = claim["arms"]
    row = _row(ledger, {**claim, "arms": [claim["control"], untrained]})
    return Estimate(row["effect"], row["low"], row["high"])


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
