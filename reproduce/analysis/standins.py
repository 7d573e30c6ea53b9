"""Which families of the tiny world stand in for which benchmarks of a paper's tables, and scores of finished runs.

A stand-in has the shape of its benchmark's task and nothing of its difficulty. Loads no torch.
"""

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import pandas as pd

from coevolve import record
from coevolve.checks import among
from reproduce.analysis import tables

STAND_INS_FILE = Path(__file__).with_name("standins.toml")
LAYOUTS = tomllib.loads(STAND_INS_FILE.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Layout:
    """The rows of one paper's tables: stand-ins in order, and averages over them."""

    families: dict[str, list[str]]  # stand-in: its families of the tiny world
    columns: dict[str, list[str]]  # stand-in: the paper's columns that it stands for
    groups: dict[str, list[str]]  # average: its stand-ins
    without: list[str]  # columns that nothing in the tiny world stands in for

    @property
    def benchmark_of(self) -> dict[str, str]:
        """Family: stand-in."""
        return {family: name for name, families in self.families.items() for family in families}


def layout(paper: str) -> Layout:
    """The layout of a paper's tables as standins.toml has it; ValueError for a paper without one."""
    among("paper", paper, LAYOUTS)
    table = LAYOUTS[paper]
    rows = table["rows"]
    return Layout(
        {row["name"]: row["families"] for row in rows},
        {row["name"]: row["columns"] for row in rows},
        {average["name"]: average.get("of") or [row["name"] for row in rows] for average in table["averages"]},
        table.get("without", []),
    )


def read(folder: str | Path, runs: Mapping[str, Sequence[int]], labels: Mapping[str, str], kind: str) -> pd.DataFrame:
    """One kind of record (see record.read) of the runs that `labels` names, with method, seed and run."""
    frames = [
        record.read(Path(folder) / f"{run}-s{seed}", kind).assign(method=label, seed=seed, run=run)
        for run, label in labels.items()
        for seed in runs[run]
    ]
    return pd.concat(frames, ignore_index=True)


def teams(folder: str | Path, runs: Mapping[str, Sequence[int]], labels: Mapping[str, str]) -> pd.DataFrame:
    """What the runs that `labels` names are: protocol, agents, training steps, seeds, the model of each agent."""
    rows = []
    for run, label in labels.items():
        home = Path(folder) / f"{run}-s{runs[run][0]}"
        config = json.loads((home / "config.json").read_text(encoding="utf-8"))
        models, agents = config["model"], config["protocol"].get("agents", 1)
        models = [models] if isinstance(models, str) else models
        steps = int(record.read(home)["step"].max())  # a baseline with a trainer of its own does not use the field
        rows.append((label, config["method"], agents, steps, len(runs[run]), [*islice(cycle(models), agents)]))
    return pd.DataFrame(rows, columns=["method", "protocol", "agents", "steps", "seeds", "models"])


def scores(
    folder: str | Path, runs: Mapping[str, Sequence[int]], labels: Mapping[str, str], paper: str = "mae"
) -> pd.DataFrame:
    """Test scores after training, a row per item, of the runs that `labels` names; see `tables` for the columns."""
    frame = read(folder, runs, labels, "scores")
    frame = frame[frame["stage"] == "after"].reset_index(drop=True)
    return frame.assign(benchmark=frame["family"].map(layout(paper).benchmark_of))


def curves(folder: str | Path, runs: Mapping[str, Sequence[int]], labels: Mapping[str, str]) -> pd.DataFrame:
    """Metrics of every step of the runs that `labels` names, with method and seed."""
    return read(folder, runs, labels, "metrics").drop(columns="run")


def printed(
    table_id: str, names: Mapping[str, str], paper: str = "mae", setup: str | None = None, backbone: str | None = None
) -> pd.DataFrame:
    """What the paper printed, as method x stand-in: the mean of the columns each one stands for, and its averages.

    `names` maps the paper's row names to ours; of rows that occur under several set-ups or backbones, those named
    count, or the first. An average that the paper does not print is the mean over the columns of its stand-ins.
    """
    cells, places, rows = tables.paper_numbers(table_id), layout(paper), []
    for column, wanted in (("setup", setup), ("backbone", backbone)):
        cells = cells if wanted is None else cells[cells[column] == wanted]
    for theirs, ours in names.items():
        row = cells[cells["method"] == theirs].drop_duplicates("benchmark")
        values = row.set_index("benchmark")["value"].astype(float)
        for name, columns in places.columns.items():
            rows.append((ours, name, values.reindex(columns).mean()))
        for name, members in places.groups.items():
            columns = [column for member in members for column in places.columns[member]]
            rows.append((ours, name, values.get(name, values.reindex(columns).mean())))
    return pd.DataFrame(rows, columns=["method", "benchmark", "paper"])


def beside(accuracy: pd.DataFrame, printed: pd.DataFrame, paper: str = "mae") -> pd.DataFrame:
    """Lay out `accuracy_table` with a line per stand-in: ours with its interval, then what the paper printed."""
    merged = accuracy.merge(printed, on=["method", "benchmark"], how="left")
    ours = [tables.percent(*row) for row in merged[["accuracy", "low", "high"]].itertuples(index=False)]
    theirs = ["" if pd.isna(value) else f" / {value:.1f}" for value in merged["paper"]]
    merged["cell"] = [a + b for a, b in zip(ours, theirs, strict=True)]
    wide = merged.pivot(index="benchmark", columns="method", values="cell")
    places = layout(paper)
    wide = wide.loc[[*places.families, *places.groups], accuracy["method"].unique()]
    return wide.reset_index().rename_axis(columns=None)


def gains(scored: pd.DataFrame, base: str, printed: pd.DataFrame, paper: str = "mae") -> pd.DataFrame:
    """Every method's gain over `base` in each average, with intervals, and whether the paper's sign is found."""
    claims = printed.set_index(["method", "benchmark"])["paper"]
    groups, frames = layout(paper).groups, []
    for method in (method for method in scored["method"].unique() if method != base):
        deltas = {name: claims.get((method, name), math.nan) - claims.get((base, name), math.nan) for name in groups}
        signs = {name: 1 if delta > 0 else -1 for name, delta in deltas.items() if delta and not math.isnan(delta)}
        frame = tables.compare_rows(scored, base, method, groups, signs)
        frame = frame[frame["kind"] == "average"].rename(columns={"method": "accuracy"})
        frames.append(frame.assign(**{"paper delta": frame["benchmark"].map(deltas), "method": method}))
    columns = ["method", "benchmark", "delta", "low", "high", "paper delta", "verdict"]
    return pd.concat(frames, ignore_index=True)[columns]
