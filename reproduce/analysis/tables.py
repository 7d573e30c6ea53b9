"""Result tables: per-item records to cells, averages and comparisons, beside what the papers printed.

A record is one row of method, seed, benchmark, item, correct (and run). Accuracies are in percent, gains in
points. Averages are always derived from cells. Does not know what a benchmark is or how an answer was graded.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from reproduce.analysis import stats
from reproduce.analysis.writing import save_table as save_table

NUMBERS = Path(__file__).parents[1] / "paper_numbers"
ROW = ["backbone", "setup", "method"]
Groups = Mapping[str, Sequence[str]]  # name of an average -> the benchmarks it averages, with equal weight


def paper_numbers(table_id: str) -> pd.DataFrame:
    """Read what a paper printed, a row per cell: `printed` is its text, `value` a number where all are."""
    known = sorted(path.stem for path in NUMBERS.glob("*.csv"))
    if table_id not in known:
        raise ValueError(f"table_id must be one of {', '.join(known)}; got {table_id!r}")
    frame = pd.read_csv(NUMBERS / f"{table_id}.csv", dtype=str, keep_default_na=False)
    if "value" in frame:
        frame["printed"] = frame["value"]
        numbers = pd.to_numeric(frame["value"], errors="coerce")
        frame["value"] = numbers if numbers.notna().all() else frame["value"]
    if "std" in frame:
        frame["std"] = pd.to_numeric(frame["std"], errors="coerce")
    return frame


def recomputed_averages(frame: pd.DataFrame, groups: Groups) -> pd.DataFrame:
    """Put each printed average beside the mean of the printed cells, and say where they differ and why.

    `frame` is from `paper_numbers` (or several of them concatenated). `differs` means further apart than
    half a unit of the last digit printed; known.csv says why, where we know (from mismatches.csv and flags.csv).
    """
    missing = {name for names in groups.values() for name in names} - set(frame["benchmark"])
    if missing:
        raise ValueError(f"groups: no benchmark {sorted(missing)} in the frame")
    rows, notes = [], paper_numbers("known").set_index(["table", "method", "benchmark"])["known"]
    for key, part in frame.groupby([*ROW, "metric"], sort=False):
        cells = part[~part["benchmark"].isin(list(groups))].drop_duplicates("benchmark")
        values = cells.set_index("benchmark")["value"]
        for printed in part[part["benchmark"].isin(list(groups))].itertuples():
            names = list(groups[printed.benchmark])
            if not set(names) <= set(values.index):
                continue
            mean = float(values[names].mean())
            gap = round(float(printed.value) - mean, 6)
            half_unit = 0.5 * 10.0 ** -len(printed.printed.partition(".")[2])
            differs = abs(gap) > half_unit + 1e-9
            known = notes.get((printed.table, printed.method, printed.benchmark), "") if differs else ""
            rows.append((*key[:3], printed.benchmark, float(printed.value), round(mean, 4), gap, differs, known))
    columns = [*ROW, "average", "printed", "recomputed", "difference", "differs", "known"]
    return pd.DataFrame(rows, columns=columns)


def accuracy_matrix(scores: pd.DataFrame, method: str) -> dict[str, pd.DataFrame]:
    """Return, per benchmark, the method's mean correctness as a frame of S seeds x I items, both sorted.

    Several samples of one item are averaged. Raises ValueError on a gap or on two runs behind one seed.
    """
    mine = scores[scores["method"] == method]
    if mine.empty:
        raise ValueError(f"method must be one of {sorted(scores['method'].unique())}, got {method!r}")
    if "run" in mine and (mine.groupby(["seed", "benchmark"])["run"].nunique() > 1).any():
        raise ValueError(f"method {method!r} has several runs with one seed: give each its own seed or method name")
    matrices = {}
    for benchmark, part in mine.groupby("benchmark", sort=False):
        matrix = part.pivot_table(index="seed", columns="item", values="correct", aggfunc="mean").astype(float)
        if matrix.isna().any(axis=None):
            raise ValueError(f"method {method!r} lacks items of {benchmark!r} for some seed")
        matrices[str(benchmark)] = matrix.sort_index(axis=0).sort_index(axis=1)
    return matrices


def accuracy_table(scores: pd.DataFrame, groups: Groups) -> pd.DataFrame:
    """Return one row per method and benchmark or average: k correct of n, seeds, percent and 95 % limits.

    A single greedy answer per item gets Wilson's interval, everything else the bootstrap's.
    """
    rows = []
    for method in scores["method"].unique():
        matrices = accuracy_matrix(scores, method)
        for benchmark, matrix in matrices.items():
            k, n = float(matrix.to_numpy().sum()), matrix.size
            single = len(matrix) == 1 and set(np.unique(matrix)) <= {0.0, 1.0}
            limits = stats.wilson(round(k), n) if single else stats.bootstrap([matrix])[1:]
            rows.append((method, benchmark, "cell", len(matrix), k, n, k / n, *limits))
        for name, members in _grouped(groups, matrices, method).items():
            average = stats.bootstrap([matrices[member] for member in members])
            rows.append((method, name, "average", len(matrices[members[0]]), np.nan, np.nan, *average))
    frame = pd.DataFrame(rows, columns=["method", "benchmark", "kind", "seeds", "k", "n", "accuracy", "low", "high"])
    frame[["low", "high"]] = frame[["low", "high"]].clip(0.0, 1.0)
    frame[["accuracy", "low", "high"]] *= 100
    return frame


def _grouped(groups: Groups, matrices: Mapping[str, pd.DataFrame], method: str) -> Groups:
    missing = {name for names in groups.values() for name in names} - set(matrices)
    if missing:
        raise ValueError(f"groups: method {method!r} has no scores on {sorted(missing)}")
    return groups


def compare_rows(
    scores: pd.DataFrame, base: str, method: str, groups: Groups, paper_signs: Mapping[str, int] | None = None
) -> pd.DataFrame:
    """Return the difference of `method` from `base` per benchmark and average, with 95 % limits, p and a verdict.

    `paper_signs` is the direction the paper claims (1 or -1) by name; a name left out has no claim and no verdict. The
    scores' column `trained` says which seeds are noise (`stats.difference`): a trained method with one seed has no
    limits. p is raw, p_holm corrected over the benchmarks.
    """
    ours, theirs = accuracy_matrix(scores, method), accuracy_matrix(scores, base)
    if set(ours) != set(theirs):
        raise ValueError(f"{base!r} and {method!r} differ in benchmarks: {sorted(set(ours) ^ set(theirs))}")
    for name, matrix in ours.items():
        if not theirs[name].columns.equals(matrix.columns):
            raise ValueError(f"{base!r} and {method!r} on {name!r} were not scored on the same items")
    fixed = tuple(not scores.loc[scores["method"] == name, "trained"].any() for name in (method, base))
    rows = [("cell", name, [name]) for name in ours]
    rows += [("average", name, list(members)) for name, members in _grouped(groups, ours, method).items()]
    compared = []
    for kind, name, members in rows:
        a, b = ([100 * matrices[m].to_numpy() for m in members] for matrices in (ours, theirs))
        effect = stats.difference(a, b, fixed)
        said = stats.verdict(*effect.limits, (paper_signs or {}).get(name))
        means = [np.mean([matrix.mean() for matrix in side]) for side in (b, a)]
        p = effect.p if kind == "cell" else np.nan
        compared.append((name, kind, *means, effect.delta, *effect.limits, p, said))
    columns = ["benchmark", "kind", "base", "method", "delta", "low", "high", "p", "verdict"]
    frame = pd.DataFrame(compared, columns=columns)
    frame.insert(frame.columns.get_loc("p") + 1, "p_holm", stats.holm(frame["p"]))
    return frame


def percent(value: float, low: float, high: float, signed: bool = False) -> str:
    """Write percent or points with their limits, if known: "56.5 [53.2, 59.8]", signed "+3.1 [-0.2, +6.4]"."""
    sign = "+" if signed else ""
    limits = "" if np.isnan(low) else f" [{low:{sign}.1f}, {high:{sign}.1f}]"
    return f"{value:{sign}.1f}{limits}"


def percent_ci(k: int, n: int) -> str:
    """Write k of n in percent with Wilson's 95 % limits: "56.5 [53.2, 59.8]"; no items give "no items"."""
    return percent(100 * k / n, *(100 * limit for limit in stats.wilson(k, n))) if n else "no items"
