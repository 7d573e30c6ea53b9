"""Which families of the tiny world stand in for which benchmarks of MAE's tables, and scores of finished runs.

A stand-in has the shape of its benchmark's task and nothing of its difficulty. Loads no torch.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from coevolve import record
from coevolve.evaluate import tables

STAND_INS = {  # name: (families, the paper's columns)
    "GSM8K": (("word", "word2"), ("GSM8K",)),
    "MATH": (("add", "sub", "mul", "prec", "eq"), ("MATH",)),
    "science": (("rate", "unit"), ("ARC-C", "MMLU", "GPQA")),
    "knowledge": (("fact",), ("CQA", "OBQA", "NQ", "TriviaQA")),
    "BoolQ": (("yn",), ("BoolQ",)),
    "HellaSwag": (("next",), ("HellaSwag",)),
    "MBPP+": (("code",), ("MBPP+",)),
    "HumanEval+": (("ops",), ("HumanEval+",)),
    "BBH": (("swap",), ("BBH",)),
    "LiveBench": (("sort", "rev", "count"), ("LiveBench-Reasoning",)),
    "AMC": (("mod",), ("AMC",)),
    "Minerva": (("div",), ("Minerva",)),
    "Winogrande": (("cmp",), ("Winogrande",)),
    "MMLU-Pro": (("mc",), ("MMLU-Pro",)),
}
WITHOUT = ("SQuAD", "TruthfulQA", "OlympiadBench")  # columns that nothing in the tiny world stands in for
IN_DISTRIBUTION = list(STAND_INS)[:8]
OUT_OF_DISTRIBUTION = list(STAND_INS)[8:]
GROUPS = {"ID Avg.": IN_DISTRIBUTION, "OOD Avg.": OUT_OF_DISTRIBUTION, "Overall Avg.": list(STAND_INS)}
BENCHMARK_OF = {family: name for name, (families, _) in STAND_INS.items() for family in families}


def scores(folder: str | Path, runs: Mapping[str, Sequence[int]], labels: Mapping[str, str]) -> pd.DataFrame:
    """Test scores after training, a row per item, of the runs that `labels` names; see `tables` for the columns."""
    frames = []
    for run, label in labels.items():
        for seed in runs[run]:
            frame = record.read(Path(folder) / f"{run}-s{seed}", "scores")
            frame = frame[frame["stage"] == "after"].copy()
            frame["method"], frame["seed"], frame["run"] = label, seed, run
            frame["benchmark"] = frame["family"].map(BENCHMARK_OF)
            frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def curves(folder: str | Path, runs: Mapping[str, Sequence[int]], labels: Mapping[str, str]) -> pd.DataFrame:
    """Metrics of every step of the runs that `labels` names, with method and seed."""
    frames = []
    for run, label in labels.items():
        for seed in runs[run]:
            frame = record.read(Path(folder) / f"{run}-s{seed}", "metrics")
            frames.append(frame.assign(method=label, seed=seed))
    return pd.concat(frames, ignore_index=True)


def printed(table_id: str, names: Mapping[str, str]) -> pd.DataFrame:
    """What the paper printed, as method x stand-in: the mean of the columns each one stands for, and its averages.

    `names` maps the paper's row names to ours; when a row occurs under several set-ups the first counts.
    """
    cells = tables.paper_numbers(table_id)
    rows = []
    for theirs, ours in names.items():
        row = cells[cells["method"] == theirs].drop_duplicates("benchmark")
        values = row.set_index("benchmark")["value"].astype(float)
        for name, (_, columns) in STAND_INS.items():
            rows.append({"method": ours, "benchmark": name, "paper": values[list(columns)].mean()})
        rows += [{"method": ours, "benchmark": average, "paper": values[average]} for average in GROUPS]
    return pd.DataFrame(rows)


def beside(accuracy: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """Lay out `accuracy_table` with a line per stand-in: ours with its interval, then what the paper printed."""
    merged = accuracy.merge(paper, on=["method", "benchmark"], how="left")
    ours = [tables.percent(*row) for row in merged[["accuracy", "low", "high"]].itertuples(index=False)]
    theirs = ["" if pd.isna(value) else f" / {value:.1f}" for value in merged["paper"]]
    merged["cell"] = [a + b for a, b in zip(ours, theirs, strict=True)]
    order = [*STAND_INS, *GROUPS]
    wide = merged.pivot(index="benchmark", columns="method", values="cell").loc[order, accuracy["method"].unique()]
    return wide.reset_index().rename_axis(columns=None)


def gains(scored: pd.DataFrame, base: str, paper: pd.DataFrame) -> pd.DataFrame:
    """Every method's gain over `base` in each average, with intervals, and whether the paper's sign is found."""
    claims = paper.set_index(["method", "benchmark"])["paper"]
    frames = []
    for method in scored["method"].unique():
        if method == base:
            continue
        signs = {name: _sign(claims.get((method, name)), claims.get((base, name))) for name in GROUPS}
        signs = {name: sign for name, sign in signs.items() if sign is not None}
        frame = tables.compare_rows(scored, base, method, GROUPS, signs)
        frame = frame[frame["kind"] == "average"].rename(columns={"method": "accuracy"})
        frame["paper delta"] = [claims.get((method, name), float("nan")) - claims.get((base, name), float("nan"))
                                for name in frame["benchmark"]]  # fmt: skip
        frames.append(frame.assign(method=method))
    columns = ["method", "benchmark", "delta", "low", "high", "paper delta", "verdict"]
    return pd.concat(frames, ignore_index=True)[columns]


def _sign(ours: float | None, base: float | None) -> int | None:
    if ours is None or base is None or pd.isna(ours) or pd.isna(base) or ours == base:
        return None
    return 1 if ours > base else -1
