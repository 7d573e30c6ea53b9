"""Result tables: per-item records to cells, averages and comparisons, beside printed numbers.

A record is one row of method, seed, benchmark, item, correct (and run). Accuracies are in percent,
gains in points. Averages are always derived from cells. Does not know what a benchmark is or how
an answer was graded.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from reproduce.analysis import census, corrections, crossed, stats
from reproduce.analysis.crossed import Side
from reproduce.analysis.writing import save_table as save_table

NUMBERS = Path(__file__).parents[1] / "paper_numbers"
ROW = ["backbone", "setup", "method"]
# Name of an average: its benchmarks, of equal weight.
Groups = Mapping[str, Sequence[str]]
Matrices = dict[str, pd.DataFrame]  # benchmark: correctness, S seeds x I items
Row = dict[str, Any]


def paper_numbers(table_id: str) -> pd.DataFrame:
    """Read what a paper printed, a row per cell.

    `printed` is the text of the cell, `value` a number if all cells are numbers. Raises ValueError
    for an unknown table.
    """
    known = sorted(path.stem for path in NUMBERS.glob("*.csv"))
    if table_id not in known:
        raise ValueError(
            f"table_id must be one of {', '.join(known)}; got {table_id!r}"
        )
    frame = pd.read_csv(NUMBERS / f"{table_id}.csv", dtype=str, keep_default_na=False)
    if "value" in frame:
        frame["printed"] = frame["value"]
        numbers = pd.to_numeric(frame["value"], errors="coerce")
        if numbers.notna().all():
            frame["value"] = numbers
    if "std" in frame:
        frame["std"] = pd.to_numeric(frame["std"], errors="coerce")
    return frame


def recomputed_averages(frame: pd.DataFrame, groups: Groups) -> pd.DataFrame:
    """Put each printed average beside the mean of the printed cells, and mark differences.

    `frame` is from `paper_numbers` (or several of them concatenated). `differs` means further apart
    than half a unit of the last printed digit. `known` is the reason in known.csv (from
    mismatches.csv and flags.csv), if there is one.
    """
    members = {name for names in groups.values() for name in names}
    missing = members - set(frame["benchmark"])
    if missing:
        raise ValueError(f"groups: no benchmark {sorted(missing)} in the frame")
    reasons = paper_numbers("known").set_index(["table", "method", "benchmark"])[
        "known"
    ]
    rows = []
    for key, part in frame.groupby([*ROW, "metric"], sort=False):
        is_average = part["benchmark"].isin(list(groups))
        cells = part[~is_average].drop_duplicates("benchmark")
        values = cells.set_index("benchmark")["value"]
        for printed in part[is_average].itertuples():
            names = list(groups[printed.benchmark])
            if not set(names) <= set(values.index):
                continue
            mean = float(values[names].mean())
            row = dict(zip(ROW, key[:3], strict=True))
            rows.append(row | _compared_average(printed, mean, reasons))
    columns = [
        *ROW,
        "average",
        "printed",
        "recomputed",
        "difference",
        "differs",
        "known",
    ]
    return pd.DataFrame(rows, columns=columns)


def _compared_average(printed: Any, mean: float, reasons: pd.Series) -> Row:
    """Compare a printed average, a row of `paper_numbers`, with the mean of its cells."""
    value = float(printed.value)
    difference = round(value - mean, 6)
    decimals = printed.printed.partition(".")[2]
    half_unit = 0.5 * 10.0 ** -len(decimals)
    differs = abs(difference) > half_unit + 1e-9
    key = (printed.table, printed.method, printed.benchmark)
    return {
        "average": printed.benchmark,
        "printed": value,
        "recomputed": round(mean, 4),
        "difference": difference,
        "differs": differs,
        "known": reasons.get(key, "") if differs else "",
    }


def accuracy_matrix(scores: pd.DataFrame, method: str) -> Matrices:
    """Return, per benchmark, the method's mean correctness as a frame of S seeds x I items.

    Seeds and items are sorted, and several samples of one item are averaged. Raises ValueError on
    a gap or on two runs behind one seed.
    """
    records = scores[scores["method"] == method]
    if records.empty:
        known = sorted(scores["method"].unique())
        raise ValueError(f"method must be one of {known}, got {method!r}")
    if "run" in records:
        runs = records.groupby(["seed", "benchmark"])["run"].nunique()
        if (runs > 1).any():
            raise ValueError(
                f"method {method!r} has several runs with one seed: "
                "give each its own seed or method name"
            )
    by_item = records.groupby(["benchmark", "seed", "item"])["correct"]
    mean_of_item = by_item.mean().astype(float).dropna()
    graded = mean_of_item.index.unique("benchmark")
    matrices = {}
    for benchmark in records["benchmark"].unique():
        if benchmark not in graded:
            continue
        matrix = mean_of_item.loc[benchmark].unstack("item")
        if matrix.isna().any(axis=None):
            raise ValueError(
                f"method {method!r} lacks items of {benchmark!r} for some seed"
            )
        matrices[str(benchmark)] = matrix
    return matrices


def replicate(frame: pd.DataFrame) -> str:
    """Return the column that tells units of replication apart: unit, or seed without it."""
    return "unit" if "unit" in frame else "seed"


def units_by_seed(records: pd.DataFrame) -> dict[int, str]:
    """Return the unit of replication of each seed: the column unit, or else the seed itself."""
    first = records.drop_duplicates("seed").sort_values("seed")
    units = first[replicate(records)].astype(str)
    return dict(zip(first["seed"], units, strict=True))


def is_trained(records: pd.DataFrame) -> bool:
    """Whether another run would differ: the column `trained`, true without it."""
    return "trained" not in records or bool(records["trained"].any())


def accuracy_side(scores: pd.DataFrame, method: str, benchmarks: Sequence[str]) -> Side:
    """Return a method's accuracy in percent on some benchmarks, as one side of a comparison.

    The column `trained` says whether another run would differ, and is true by default.
    """
    records = scores[scores["method"] == method]
    matrices = accuracy_matrix(records, method)
    unit_of = units_by_seed(records)
    asked_shares = census.asked_shares(records)
    strata = [100 * matrices[name].to_numpy() for name in benchmarks]
    first_matrix = matrices[benchmarks[0]]
    return crossed.side(
        strata,
        units=[unit_of[seed] for seed in first_matrix.index],
        asked_shares=[asked_shares[name] for name in benchmarks],
        is_trained=is_trained(records),
    )


def accuracy_table(scores: pd.DataFrame, groups: Groups) -> pd.DataFrame:
    """Return one row per method and benchmark or average, in percent, with 95 % limits.

    A cell also has k correct of n. A single greedy answer per item gets Wilson's interval,
    everything else the bootstrap's.
    """
    rows = []
    for method in scores["method"].unique():
        matrices = accuracy_matrix(scores, method)
        units = units_by_seed(scores[scores["method"] == method])
        _check_groups(groups, matrices, method)
        for benchmark, matrix in matrices.items():
            rows.append(
                {
                    "method": method,
                    "benchmark": benchmark,
                    **_accuracy_cell(matrix, units),
                }
            )
        for name, members in groups.items():
            strata = [matrices[member] for member in members]
            rows.append(
                {
                    "method": method,
                    "benchmark": name,
                    **_accuracy_average(strata, units),
                }
            )
    frame = pd.DataFrame(rows)
    frame[["low", "high"]] = frame[["low", "high"]].clip(0.0, 1.0)
    frame[["accuracy", "low", "high"]] *= 100
    return frame


def _accuracy_cell(matrix: pd.DataFrame, units: Mapping[int, str]) -> Row:
    correct = float(matrix.to_numpy().sum())
    answers = matrix.size
    is_one_answer_per_item = len(matrix) == 1 and set(np.unique(matrix)) <= {0.0, 1.0}
    if is_one_answer_per_item:
        low, high = stats.wilson(round(correct), answers)
    else:
        _, low, high = stats.bootstrap([_by_unit(matrix, units)])
    return {
        "kind": "cell",
        "seeds": len(matrix),
        "k": correct,
        "n": answers,
        "accuracy": correct / answers,
        "low": low,
        "high": high,
    }


def _accuracy_average(strata: Sequence[pd.DataFrame], units: Mapping[int, str]) -> Row:
    strata_UI = [_by_unit(matrix, units) for matrix in strata]
    weights = crossed.strata_weights([matrix.shape[1] for matrix in strata])
    estimate = stats.bootstrap(strata_UI, weights=weights)
    return {
        "kind": "average",
        "seeds": len(strata[0]),
        "k": np.nan,
        "n": np.nan,
        "accuracy": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
    }


def _by_unit(matrix: pd.DataFrame, units: Mapping[int, str]) -> stats.Array:
    """Return the mean over the seeds of each unit, shape U units x I items."""
    return crossed.mean_by_unit(matrix, [units[seed] for seed in matrix.index])


def _check_groups(
    groups: Groups, matrices: Mapping[str, pd.DataFrame], method: str
) -> None:
    members = {name for names in groups.values() for name in names}
    missing = members - set(matrices)
    if missing:
        raise ValueError(
            f"groups: method {method!r} has no scores on {sorted(missing)}"
        )


def compare_rows(
    scores: pd.DataFrame,
    base: str,
    method: str,
    groups: Groups,
    paper_signs: Mapping[str, int] | None = None,
) -> pd.DataFrame:
    """Return the difference of `method` from `base` per benchmark and average.

    Columns: 95 % limits, p, p_holm (corrected over the benchmarks) and a verdict. `paper_signs` is
    the direction the paper claims (1 or -1) by name; a name left out has no claim and no verdict.
    The scores' column `trained` marks methods that another run would change (see
    `crossed.difference`): a trained method with one unit has no limits.
    """
    paper_signs = paper_signs or {}
    method_matrices = accuracy_matrix(scores, method)
    base_matrices = accuracy_matrix(scores, base)
    _check_paired(base, base_matrices, method, method_matrices)
    _check_groups(groups, method_matrices, method)

    benchmarks = list(method_matrices)
    method_side = accuracy_side(scores, method, benchmarks)
    base_side = accuracy_side(scores, base, benchmarks)

    rows = []
    for kind, name, members in _rows_to_compare(method_matrices, groups):
        places = [benchmarks.index(member) for member in members]
        own = method_side.only(places)
        others = base_side.only(places)
        effect = crossed.difference(own, others)
        low, high = effect.limits
        row = {
            "benchmark": name,
            "kind": kind,
            "base": others.means_U.mean(),
            "method": own.means_U.mean(),
            "delta": effect.delta,
            "low": low,
            "high": high,
            "p": effect.p if kind == "cell" else np.nan,
            "verdict": stats.verdict(low, high, paper_signs.get(name)),
        }
        rows.append(row)
    frame = pd.DataFrame(rows)
    after_p = frame.columns.get_loc("p") + 1
    frame.insert(after_p, "p_holm", corrections.holm(frame["p"]))
    return frame


def _check_paired(
    base: str,
    base_matrices: Matrices,
    method: str,
    method_matrices: Matrices,
) -> None:
    """Raise ValueError unless both methods were scored on the same items."""
    if set(base_matrices) != set(method_matrices):
        unpaired = sorted(set(method_matrices) ^ set(base_matrices))
        raise ValueError(f"{base!r} and {method!r} differ in benchmarks: {unpaired}")
    for name, matrix in method_matrices.items():
        if not base_matrices[name].columns.equals(matrix.columns):
            raise ValueError(
                f"{base!r} and {method!r} on {name!r} were not scored on the same items"
            )


def _rows_to_compare(
    matrices: Matrices, groups: Groups
) -> list[tuple[str, str, Sequence[str]]]:
    """Return (kind, name, benchmarks) of each cell and average."""
    cells = [("cell", name, [name]) for name in matrices]
    averages = [("average", name, list(members)) for name, members in groups.items()]
    return cells + averages


def percent(value: float, low: float, high: float, signed: bool = False) -> str:
    """Format percent or points with their limits, if there are any.

    For example "56.5 [53.2, 59.8]", signed "+3.1 [-0.2, +6.4]", or "56.5" without limits.
    """
    sign = "+" if signed else ""
    text = f"{value:{sign}.1f}"
    if np.isnan(low):
        return text
    return f"{text} [{low:{sign}.1f}, {high:{sign}.1f}]"


def percent_ci(k: int, n: int) -> str:
    """Format k of n in percent with Wilson's 95 % limits; no items give "no items"."""
    if not n:
        return "no items"
    low, high = stats.wilson(k, n)
    return percent(100 * k / n, 100 * low, 100 * high)
