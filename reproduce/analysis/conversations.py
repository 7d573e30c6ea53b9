"""Tables of conversations on test items: CoNL's measures as ratios, and their differences.

A row of the frame is one item of one run, as CoNL's examination of the trained model recorded it.
Every measure is a sum over a sum (corrections over wrong solutions, say), so items without a
denominator have no weight. Loads no torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from reproduce.analysis import standins, stats
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
    """Numerators and denominators of a ratio of sums, each S seeds x I items."""

    top_SI: Array
    bottom_SI: Array


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
    """Return a measure's ratio for one method, with seeds and items sorted.

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
    top = _by_seed_and_item(part, columns.numerator).astype(float)
    bottom = _by_seed_and_item(part, columns.denominator).astype(float)
    return Ratio(top.fillna(0.0).to_numpy(), bottom.to_numpy())


def _by_seed_and_item(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    return frame.pivot(index="seed", columns="item", values=column)


def linear(ratio: Ratio) -> Array:
    """Linearise a ratio of sums over all seeds: one value per conversation, S seeds x I items.

    The mean of these values is the ratio, and the noise of the mean is that of the ratio, to
    first order (delta method). All values are nan without a denominator.
    """
    top_SI = ratio.top_SI
    bottom_SI = ratio.bottom_SI
    value = top_SI.sum() / (bottom_SI.sum() or np.nan)
    residual_SI = top_SI - value * bottom_SI
    return value + residual_SI / (bottom_SI.mean() or np.nan)


def shared(base: Ratio, other: Ratio) -> tuple[Ratio, Ratio]:
    """Restrict two ratios to the conversations in which both have a denominator.

    A conversation is one seed and one item. Seeds pair in order: surplus seeds of the base are
    dropped, and its last seed stands for those it lacks.
    """
    seeds = np.arange(len(other.top_SI))
    last = len(base.top_SI) - 1
    base_seeds = np.minimum(seeds, last)
    base = Ratio(base.top_SI[base_seeds], base.bottom_SI[base_seeds])
    is_shared_SI = (base.bottom_SI > 0) & (other.bottom_SI > 0)
    return _restricted(base, is_shared_SI), _restricted(other, is_shared_SI)


def _restricted(ratio: Ratio, is_kept_SI: Array) -> Ratio:
    return Ratio(ratio.top_SI * is_kept_SI, ratio.bottom_SI * is_kept_SI)


def measured(
    frame: pd.DataFrame, groups: Groups, measures: Sequence[str] = tuple(MEASURES)
) -> pd.DataFrame:
    """Return every method's measures in every group, with counts and 95 % limits.

    A single seed has limits over items alone. Student's t is unbounded, so limits are clipped to
    the range of a share or of a correlation.
    """
    methods = frame["method"].unique()
    rows = []
    for method, group, measure in product(methods, groups, measures):
        ratio = ratio_of(frame, method, measure, groups[group])
        seeds = len(ratio.top_SI)
        effect = stats.difference([linear(ratio)], fixed=(seeds == 1, False))
        smallest = -1.0 if measure == "Rank-rho" else 0.0
        low, high = np.clip(effect.limits, smallest, 1.0)
        row = {
            "method": method,
            "benchmark": group,
            "measure": measure,
            "seeds": seeds,
            "k": ratio.top_SI.sum(),
            "n": ratio.bottom_SI.sum(),
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
        effect = stats.difference(
            [linear(own_ratio)],
            [linear(base_ratio)],
            fixed=(_is_untrained(frame, method), _is_untrained(frame, base)),
        )
        sign = signs.get((method, group, measure))
        if not np.isfinite(effect.delta):
            sign = None
        low, high = effect.limits
        row = {
            "method": method,
            "benchmark": group,
            "measure": measure,
            "seeds": len(own_ratio.top_SI),
            "conversations": np.count_nonzero(own_ratio.bottom_SI),
            "delta": effect.delta,
            "low": low,
            "high": high,
            "verdict": stats.verdict(low, high, sign),
        }
        rows.append(row)
    columns = [*KEY, "seeds", "conversations", "delta", "low", "high", "verdict"]
    return pd.DataFrame(rows, columns=columns)


def _is_untrained(frame: pd.DataFrame, method: str) -> bool:
    is_method = frame["method"] == method
    return not frame.loc[is_method, "trained"].any()


def cell(value: float, low: float, high: float, measure: str) -> str:
    """Format a measure with its limits: percent, or a correlation with two digits."""
    if not np.isfinite(value):
        return "undefined"
    if measure == "Rank-rho":
        return f"{value:.2f} [{low:.2f}, {high:.2f}]"
    return f"{100 * value:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
