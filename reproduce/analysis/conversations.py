"""Tables of conversations on test items: CoNL's measures as ratios, and their differences.

A row of the frame is one item of one run, as CoNL's examination of the trained model recorded it.
Every measure is a sum over a sum (corrections over wrong solutions, say), so items without a
denominator have no weight. Loads no torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from reproduce.analysis import census, crossed, standins, stats, tables
from reproduce.analysis.crossed import Side
from reproduce.analysis.stats import Array
from reproduce.analysis.tables import Groups


@dataclass(frozen=True)
class Measure:
    """The columns that a measure divides."""

    numerator: str
    denominator: str = "one"  # a column of ones: all items count


MEASURES = {
    "Pass@1": Measure("pass_1"),
    "Pass@K": Measure("pass_k"),
    "Rank-rho": Measure("rank_rho", "rho_known"),
    "Correction": Measure("fixed", "wrong_before"),
    "Harm": Measure("harmed", "correct_before"),
}
KEY = ["method", "benchmark", "measure"]
Signs = Mapping[tuple[str, str, str], int]  # (method, group, measure): 1 or -1


@dataclass(frozen=True)
class Ratio:
    """Numerators and denominators of a ratio of sums, each U units x I items."""

    top_UI: Array
    bottom_UI: Array
    units: tuple[str, ...]  # of replication; the runs of one are summed
    asked_share: float  # of all test questions of the items' families and levels
    is_trained: bool


def read(
    folder: str | Path,
    runs: Mapping[str, Sequence[int]],
    labels: Mapping[str, str],
    paper: str,
) -> pd.DataFrame:
    """Read the conversations of the runs in `labels`, with method, seed and stand-in."""
    frame = standins.read(folder, runs, labels, "conversations")
    is_trained = standins.is_trained(folder, runs, labels)
    frame = described(frame, paper)
    return frame.assign(trained=frame["run"].map(is_trained))


def described(frame: pd.DataFrame, paper: str) -> pd.DataFrame:
    """Add what measures need: the stand-in, and whether Rank-rho is defined (1 or 0)."""
    frame = standins.with_stand_ins(frame, paper)
    return frame.assign(rho_known=frame["rank_rho"].notna().astype(float))


def ratio_of(
    frame: pd.DataFrame, method: str, measure: str, benchmarks: Sequence[str]
) -> Ratio:
    """Return a measure's ratio for one method, with units and items sorted.

    Raises ValueError when the seeds were not examined on the same items.
    """
    is_method = frame["method"] == method
    is_included = frame["benchmark"].isin(list(benchmarks))
    part = frame[is_method & is_included].assign(one=1.0)
    if part.empty or _by_seed_and_item(part, "pass_1").isna().any(axis=None):
        raise ValueError(
            f"method {method!r} has no conversations, or not the same items for every seed"
        )
    columns = MEASURES[measure]
    unit_of = tables.units_by_seed(part)
    part = part.assign(unit=part["seed"].map(unit_of))
    return Ratio(
        top_UI=_sums(part, columns.numerator),
        bottom_UI=_sums(part, columns.denominator),
        units=tuple(sorted(part["unit"].unique())),
        asked_share=census.asked_share(part.drop_duplicates("item")),
        is_trained=tables.is_trained(part),
    )


def _by_seed_and_item(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    return frame.pivot(index="seed", columns="item", values=column)


def _sums(frame: pd.DataFrame, column: str) -> Array:
    """Return the sum over the runs of each unit, shape U x I; what is undefined counts as 0."""
    sums = frame.pivot_table(
        index="unit", columns="item", values=column, aggfunc="sum", dropna=False
    )
    return sums.to_numpy(dtype=float)


def linear(ratio: Ratio) -> Array:
    """Linearise a ratio of sums over all units: one value per conversation, U units x I items.

    The mean of these values is the ratio, and the noise of the mean is that of the ratio, to
    first order (delta method). All values are nan without a denominator.
    """
    top_UI = ratio.top_UI
    bottom_UI = ratio.bottom_UI
    value = top_UI.sum() / (bottom_UI.sum() or np.nan)
    residual_UI = top_UI - value * bottom_UI
    return value + residual_UI / (bottom_UI.mean() or np.nan)


def side_of(ratio: Ratio, scale: float = 1.0) -> Side:
    """Return a ratio as one side of a comparison, times a scale."""
    stratum = crossed.Stratum(scale * linear(ratio), ratio.asked_share)
    return Side(ratio.units, (stratum,), ratio.is_trained)


def shared(base: Ratio, other: Ratio) -> tuple[Ratio, Ratio]:
    """Restrict two ratios to the conversations in which both have a denominator.

    A conversation is one unit and one item. Units pair in order: surplus units of the base are
    dropped, and its last unit stands for those it lacks.
    """
    units = np.arange(len(other.units))
    last = len(base.units) - 1
    base_units = np.minimum(units, last)
    base = replace(
        base,
        top_UI=base.top_UI[base_units],
        bottom_UI=base.bottom_UI[base_units],
        units=other.units,
    )
    is_shared_UI = (base.bottom_UI > 0) & (other.bottom_UI > 0)
    return _restricted(base, is_shared_UI), _restricted(other, is_shared_UI)


def _restricted(ratio: Ratio, is_kept_UI: Array) -> Ratio:
    return replace(
        ratio,
        top_UI=ratio.top_UI * is_kept_UI,
        bottom_UI=ratio.bottom_UI * is_kept_UI,
    )


def measured(
    frame: pd.DataFrame, groups: Groups, measures: Sequence[str] = tuple(MEASURES)
) -> pd.DataFrame:
    """Return every method's measures in every group, with counts and 95 % limits.

    A single unit has limits over items alone. Student's t is unbounded, so limits are clipped to
    the range of a share or of a correlation.
    """
    methods = frame["method"].unique()
    rows = []
    for method, group, measure in product(methods, groups, measures):
        ratio = ratio_of(frame, method, measure, groups[group])
        if len(ratio.units) == 1:
            ratio = replace(ratio, is_trained=False)
        effect = crossed.difference(side_of(ratio))
        smallest = -1.0 if measure == "Rank-rho" else 0.0
        low, high = np.clip(effect.limits, smallest, 1.0)
        row = {
            "method": method,
            "benchmark": group,
            "measure": measure,
            "seeds": _seeds(frame, method),
            "k": ratio.top_UI.sum(),
            "n": ratio.bottom_UI.sum(),
            "value": effect.delta,
            "low": low,
            "high": high,
        }
        rows.append(row)
    columns = [*KEY, "seeds", "k", "n", "value", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def gains(
    frame: pd.DataFrame,
    base: str,
    groups: Groups,
    measures: Sequence[str],
    signs: Signs,
) -> pd.DataFrame:
    """Return every method's difference from `base`, with 95 % limits and a verdict.

    Compared are the conversations that define the measure for both (see `shared`): a correction
    needs a wrong solution, a Rank-rho correct and wrong ones. `conversations` counts them, and
    `seeds` the method's seeds. `signs` holds the direction that the paper claims; without one
    there is no verdict.
    """
    methods = [method for method in frame["method"].unique() if method != base]
    rows = []
    for method, group, measure in product(methods, groups, measures):
        base_ratio = ratio_of(frame, base, measure, groups[group])
        own_ratio = ratio_of(frame, method, measure, groups[group])
        base_ratio, own_ratio = shared(base_ratio, own_ratio)
        effect = crossed.difference(side_of(own_ratio), side_of(base_ratio))
        sign = signs.get((method, group, measure))
        if not np.isfinite(effect.delta):
            sign = None
        low, high = effect.limits
        row = {
            "method": method,
            "benchmark": group,
            "measure": measure,
            "seeds": _seeds(frame, method),
            "conversations": np.count_nonzero(own_ratio.bottom_UI),
            "delta": effect.delta,
            "low": low,
            "high": high,
            "verdict": stats.verdict(low, high, sign),
        }
        rows.append(row)
    columns = [*KEY, "seeds", "conversations", "delta", "low", "high", "verdict"]
    return pd.DataFrame(rows, columns=columns)


def _seeds(frame: pd.DataFrame, method: str) -> int:
    is_method = frame["method"] == method
    return frame.loc[is_method, "seed"].nunique()


def cell(value: float, low: float, high: float, measure: str) -> str:
    """Format a measure with its limits: percent, or a correlation with two digits."""
    if not np.isfinite(value):
        return "undefined"
    if measure == "Rank-rho":
        return f"{value:.2f} [{low:.2f}, {high:.2f}]"
    return f"{100 * value:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
