"""Tables of what conversations on test items showed: CoNL's measures as ratios, and their differences, with intervals.

A row of the frame is one item of one run, as CoNL's examination of the trained model recorded it. Every measure is a
sum over a sum (corrections over wrong solutions, say), so items without a denominator weigh nothing. Loads no torch.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from reproduce.analysis import standins, stats
from reproduce.analysis.tables import Groups

MEASURES = {  # name: (what is counted, out of what; none: out of all items)
    "Pass@1": ("pass_1", None),
    "Pass@K": ("pass_k", None),
    "Rank-rho": ("rank_rho", "rho_known"),
    "Correction": ("fixed", "wrong_before"),
    "Harm": ("harmed", "right_before"),
}
Ratio = tuple[NDArray[np.float64], NDArray[np.float64]]  # numerators and denominators, S seeds x I items


def read(folder: str | Path, runs: Mapping[str, Sequence[int]], labels: Mapping[str, str], paper: str) -> pd.DataFrame:
    """Read the conversations of the runs that `labels` names, with method, seed and stand-in."""
    frame = standins.read(folder, runs, labels, "conversations")
    stands = frame["family"].map(standins.layout(paper).benchmark_of)
    trained = frame["run"].map({run: standins.summary(folder, run, runs[run][0])["steps"] > 0 for run in labels})
    return frame.assign(benchmark=stands, rho_known=frame["rank_rho"].notna().astype(float), trained=trained)


def ratio_of(frame: pd.DataFrame, method: str, measure: str, stands: Sequence[str]) -> Ratio:
    """Numerators and denominators of a measure for one method, seeds and items sorted.

    Raises ValueError when the seeds were not examined on the same items.
    """
    part = frame[(frame["method"] == method) & frame["benchmark"].isin(list(stands))].assign(one=1.0)
    top, bottom = (
        part.pivot(index="seed", columns="item", values=name or "one").astype(float) for name in MEASURES[measure]
    )
    if part.empty or part.pivot(index="seed", columns="item", values="pass_1").isna().any(axis=None):
        raise ValueError(f"method {method!r} has no conversations, or not the same items for every seed")
    return top.fillna(0.0).to_numpy(), bottom.to_numpy()


def linear(ratio: Ratio) -> NDArray[np.float64]:
    """What each conversation adds to a ratio of sums over all seeds, S seeds x I items; nan without a denominator.

    The mean is the ratio, and the noise of the mean that of the ratio, to first order.
    """
    top, bottom = ratio
    value = top.sum() / (bottom.sum() or np.nan)
    return value + (top - value * bottom) / (bottom.mean() or np.nan)


def shared(base: Ratio, ours: Ratio) -> tuple[Ratio, Ratio]:
    """Both ratios with nothing but the conversations, a seed and an item each, in which both have a denominator.

    Seeds pair in order: surplus seeds of the base are dropped, and its last one stands for those it lacks.
    """
    seeds = np.minimum(np.arange(len(ours[0])), len(base[0]) - 1)
    base = base[0][seeds], base[1][seeds]
    both = (base[1] > 0) & (ours[1] > 0)
    return (base[0] * both, base[1] * both), (ours[0] * both, ours[1] * both)


def measured(frame: pd.DataFrame, groups: Groups, measures: Sequence[str] = tuple(MEASURES)) -> pd.DataFrame:
    """Every method's measures in every group: the counts behind them, the value, and 95 % limits (`stats.difference`).

    A single seed has limits over items alone. Student's t knows no bounds: they end where a share or correlation does.
    """
    rows = []
    for method, (group, stands), measure in product(frame["method"].unique(), groups.items(), measures):
        ratio = ratio_of(frame, method, measure, stands)
        effect = stats.difference([linear(ratio)], fixed=(len(ratio[0]) == 1, False))
        low, high = np.clip(effect.limits, -1.0 if measure == "Rank-rho" else 0.0, 1.0)
        rows.append((method, group, measure, len(ratio[0]), ratio[0].sum(), ratio[1].sum(), effect.delta, low, high))
    return pd.DataFrame(rows, columns=["method", "benchmark", "measure", "seeds", "k", "n", "value", "low", "high"])


def gains(
    frame: pd.DataFrame, base: str, groups: Groups, measures: Sequence[str], signs: Mapping[tuple[str, str, str], int]
) -> pd.DataFrame:
    """Every method's difference from `base`, with 95 % limits and a verdict, on the conversations that define both.

    `conversations` counts these: a correction needs a wrong solution, a Rank-rho right and wrong ones (see `shared`,
    also for how seeds pair). `signs` holds the direction that the paper claims by (method, group, measure); without
    one there is no verdict. `seeds` counts the method's seeds.
    """
    rows = []
    methods = [method for method in frame["method"].unique() if method != base]
    for method, (group, stands), measure in product(methods, groups.items(), measures):
        theirs, ours = shared(*(ratio_of(frame, name, measure, stands) for name in (base, method)))
        seeds, known = len(ours[0]), np.count_nonzero(ours[1])
        fixed = tuple(not frame.loc[frame["method"] == name, "trained"].any() for name in (method, base))
        effect = stats.difference([linear(ours)], [linear(theirs)], fixed)
        sign = signs.get((method, group, measure)) if np.isfinite(effect.delta) else None
        verdict = stats.verdict(*effect.limits, sign)
        rows.append((method, group, measure, seeds, known, effect.delta, *effect.limits, verdict))
    columns = ["method", "benchmark", "measure", "seeds", "conversations", "delta", "low", "high", "verdict"]
    return pd.DataFrame(rows, columns=columns)


def cell(value: float, low: float, high: float, measure: str) -> str:
    """A measure as a table shows it: percent, or a correlation with two digits."""
    if not np.isfinite(value):
        return "undefined"
    if measure == "Rank-rho":
        return f"{value:.2f} [{low:.2f}, {high:.2f}]"
    return f"{100 * value:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
