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
from typing import Any

import pandas as pd

from coevolve.runs import record
from coevolve.validation import check_choice
from reproduce.analysis import tables

LAYOUTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Layout:
    """The rows of one paper's tables: stand-ins in order, and averages over them."""

    families: dict[str, list[str]]  # stand-in: its families of the tiny world
    titles: dict[str, str]  # stand-in: its families in words
    columns: dict[str, list[str]]  # stand-in: the paper's columns that it stands for
    groups: dict[str, list[str]]  # average: its stand-ins
    without: list[str]  # columns that nothing in the tiny world stands in for

    @property
    def benchmark_of(self) -> dict[str, str]:
        """Family: stand-in."""
        return {family: name for name, families in self.families.items() for family in families}


def layout(paper: str) -> Layout:
    """The layout of a paper's tables as standins.toml has it; ValueError for a paper without one."""
    check_choice("paper", paper, LAYOUTS)
    table = LAYOUTS[paper]
    rows = table["rows"]
    return Layout(
        {row["name"]: row["families"] for row in rows},
        {row["name"]: row["title"] for row in rows},
        {row["name"]: row["columns"] for row in rows},
        {average["name"]: average.get("of") or [row["name"] for row in rows] for average in table["averages"]},
        table.get("without", []),
    )


def summary(folder: str | Path, run: str, seed: int) -> dict[str, Any]:
    """The summary.json of a run."""
    return json.loads((Path(folder) / f"{run}-s{seed}" / "summary.json").read_bytes())


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
    frame = read(folder, runs, labels, "scores").query("stage == 'after'").reset_index(drop=True)
    trained = {run: summary(folder, run, runs[run][0])["steps"] > 0 for run in labels}
    stands = frame["family"].map(layout(paper).benchmark_of)
    return frame.assign(benchmark=stands, trained=frame["run"].map(trained))


def seeds(runs: Mapping[str, Sequence[int]], labels: Mapping[str, str]) -> str:
    """How many seeds the lines of a table have: "3 seeds: MAE; 1 seed: Base, AZR"."""
    counts: dict[int, list[str]] = {}
    for run, label in labels.items():
        counts.setdefault(len(runs[run]), []).append(label)
    return "; ".join(f"{n} seed{'s' * (n > 1)}: {', '.join(counts[n])}" for n in sorted(counts, reverse=True))


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


def beside(accuracy: pd.DataFrame, printed: pd.DataFrame, gains: pd.DataFrame, paper: str = "mae") -> pd.DataFrame:
    """Lay out `accuracy_table` with a line per stand-in, average and gain in it: ours, and what the paper printed.

    `gains` are those of `gains`, with the base of each in the column `over`. A method that the paper does not print has
    no second column.
    """
    places = layout(paper)
    titles = {name: f"{title} (for {name})" if places.columns[name] else title for name, title in places.titles.items()}
    scored = accuracy.merge(printed, on=["method", "benchmark"], how="left")
    scored["questions"] = scored["benchmark"].replace(titles)
    scored["ours"] = [tables.percent(*row) for row in scored[["accuracy", "low", "high"]].itertuples(index=False)]
    scored["theirs"] = scored["paper"].map("{:.1f}".format, na_action="ignore")
    won = gains.assign(questions=gains["benchmark"] + ", over " + gains["over"])
    won["ours"] = [tables.percent(*row, signed=True) for row in won[["delta", "low", "high"]].itertuples(index=False)]
    won["ours"] += won["verdict"].map(lambda said: f" ({said})" if said else "")
    won["theirs"] = won["paper delta"].map("{:+.1f}".format, na_action="ignore")
    columns = {}
    for method, lines in pd.concat([scored, won]).set_index("questions").groupby("method", sort=False):
        columns[method] = lines["ours"]
        if lines["theirs"].notna().any():
            columns[f"{method}, the paper"] = lines["theirs"]
    order = [*titles.values(), *places.groups, *won["questions"].unique()]
    return pd.DataFrame(columns).reindex(order).rename_axis("questions").reset_index()


def gains(scored: pd.DataFrame, base: str, printed: pd.DataFrame, paper: str = "mae") -> pd.DataFrame:
    """Every method's difference from `base` in each average, with limits, and whether the paper's sign is found."""
    claims = printed.set_index(["method", "benchmark"])["paper"]
    groups, frames = layout(paper).groups, []
    for method in (method for method in scored["method"].unique() if method != base):
        deltas = {name: claims.get((method, name), math.nan) - claims.get((base, name), math.nan) for name in groups}
        signs = {name: 1 if delta > 0 else -1 for name, delta in deltas.items() if delta and not math.isnan(delta)}
        frame = tables.compare_rows(scored, base, method, groups, signs)
        frame = frame[frame["kind"] == "average"].rename(columns={"method": "accuracy"})
        frames.append(frame.assign(**{"paper delta": frame["benchmark"].map(deltas), "method": method, "over": base}))
    columns = ["method", "over", "benchmark", "delta", "low", "high", "paper delta", "verdict"]
    return pd.concat(frames, ignore_index=True)[columns]
