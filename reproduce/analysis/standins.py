"""Stand-ins: which families of the tiny world represent which benchmarks of a paper's tables.

Also reads the scores and metrics of finished runs. A stand-in has the shape of its benchmark's
task and nothing of its difficulty. Loads no torch.
"""

import math
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pandas as pd

from coevolve.runs import record
from coevolve.validation import check_choice
from reproduce.analysis import crossed, tables
from reproduce.analysis.evidence import Runs as Runs
from reproduce.analysis.evidence import read_json

LAYOUTS_FILE = Path(__file__).with_suffix(".toml")
LAYOUTS = tomllib.loads(LAYOUTS_FILE.read_text(encoding="utf-8"))
Labels = Mapping[str, str]  # name of a run: the label of its row
GAIN_COLUMNS = [
    "method",
    "over",
    "benchmark",
    "delta",
    "low",
    "high",
    "paper delta",
    "verdict",
]


@dataclass(frozen=True)
class Layout:
    """The rows of one paper's tables: stand-ins in order, and averages over them."""

    families: dict[str, list[str]]  # stand-in: its families of the tiny world
    titles: dict[str, str]  # stand-in: its families in plain English
    columns: dict[str, list[str]]  # stand-in: the paper's columns that it represents
    groups: dict[str, list[str]]  # average: its stand-ins
    without: list[str]  # columns without a stand-in

    @property
    def benchmark_of(self) -> dict[str, str]:
        """The stand-in of each family."""
        benchmark_of = {}
        for name, families in self.families.items():
            benchmark_of.update(dict.fromkeys(families, name))
        return benchmark_of

    def columns_of(self, group: str) -> list[str]:
        """Return the paper's columns that an average's stand-ins represent."""
        columns = []
        for name in self.groups[group]:
            columns += self.columns[name]
        return columns


def layout(paper: str) -> Layout:
    """Return the layout of a paper's tables in standins.toml; ValueError if it has none."""
    check_choice("paper", paper, LAYOUTS)
    table = LAYOUTS[paper]
    rows = table["rows"]
    names = [row["name"] for row in rows]
    groups = {}
    for average in table["averages"]:
        groups[average["name"]] = average.get("of") or names
    return Layout(
        families={row["name"]: row["families"] for row in rows},
        titles={row["name"]: row["title"] for row in rows},
        columns={row["name"]: row["columns"] for row in rows},
        groups=groups,
        without=table.get("without", []),
    )


def summary(folder: str | Path, run: str, seed: int) -> dict[str, Any]:
    """Return the summary.json of a run."""
    home = Path(folder) / f"{run}-s{seed}"
    return read_json(home / "summary.json")


def units(folder: str | Path, run: str, seeds: Sequence[int]) -> list[str]:
    """Return the unit of replication of each seed of a run, see `crossed.units_of`.

    A team's unit is the backbone of its first agent. A run without config.json names none.
    """
    homes = [Path(folder) / f"{run}-s{seed}" for seed in seeds]
    return crossed.units_of([first_backbone(home) for home in homes], seeds)


def first_backbone(home: Path) -> str:
    """Return the model that a run began with, of several the first; "" without config.json."""
    models = backbones(home)
    return models if isinstance(models, str) else models[0]


def backbones(home: Path) -> str | list[str]:
    """Return the model that a run began with, or one for each policy; "" without config.json."""
    path = home / "config.json"
    if not path.is_file():
        return ""
    models: str | list[str] = read_json(path).get("model", "")
    return models


def is_trained(folder: str | Path, runs: Runs, labels: Labels) -> dict[str, bool]:
    """Return, for each run in `labels`, whether it took any steps."""
    trained = {}
    for run in labels:
        first_seed, *_ = runs[run]
        of_first_seed = summary(folder, run, first_seed)
        trained[run] = of_first_seed["steps"] > 0
    return trained


def read(folder: str | Path, runs: Runs, labels: Labels, kind: str) -> pd.DataFrame:
    """Read one kind of record (see record.read) of the runs in `labels`.

    Adds the columns method, seed, run and unit (of replication).
    """
    frames = []
    for run, label in labels.items():
        seeds = runs[run]
        for seed, unit in zip(seeds, units(folder, run, seeds), strict=True):
            home = Path(folder) / f"{run}-s{seed}"
            frame = record.read(home, kind)
            frame = frame.assign(
                method=label,
                seed=seed,
                run=run,
                unit=unit,
            )
            frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def teams(folder: str | Path, runs: Runs, labels: Labels) -> pd.DataFrame:
    """Describe the runs in `labels`.

    Columns: method, method_name, agents, steps (of training), seeds (their number), models (a list
    with one per agent).
    """
    rows = []
    for run, label in labels.items():
        first_seed, *_ = runs[run]
        home = Path(folder) / f"{run}-s{first_seed}"
        config = read_json(home / "config.json")
        agents = config["method_fields"].get("agents", 1)
        models = config["model"]
        if isinstance(models, str):
            models = [models]
        # The field `steps` does not apply to a baseline with a trainer of its own.
        metrics = record.read(home)
        last_step = metrics["step"].max()
        row = {
            "method": label,
            "method_name": config["method"],
            "agents": agents,
            "steps": int(last_step),
            "seeds": len(runs[run]),
            "models": list(islice(cycle(models), agents)),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def scores(
    folder: str | Path, runs: Runs, labels: Labels, paper: str = "mae"
) -> pd.DataFrame:
    """Read the test scores after training of the runs in `labels`, a row per item.

    See `tables` for the columns.
    """
    frame = read(folder, runs, labels, "scores")
    frame = frame.query("stage == 'after'").reset_index(drop=True)
    frame = with_stand_ins(frame, paper)
    trained_by_run = is_trained(folder, runs, labels)
    trained = frame["run"].map(trained_by_run)
    return frame.assign(trained=trained)


def with_stand_ins(frame: pd.DataFrame, paper: str) -> pd.DataFrame:
    """Add the column benchmark: the stand-in of each row's family in a paper's tables."""
    benchmark_of = layout(paper).benchmark_of
    return frame.assign(benchmark=frame["family"].map(benchmark_of))


def seeds(folder: str | Path, runs: Runs, labels: Labels) -> str:
    """Say how many seeds the rows of a table have: "3 seeds: MAE; 1 seed: Base, AZR".

    Seeds of several backbones are "10 seeds on 5 backbones".
    """
    labels_by_count = defaultdict(list)
    for run, label in labels.items():
        homes = [Path(folder) / f"{run}-s{seed}" for seed in runs[run]]
        models = {first_backbone(home) for home in homes}
        labels_by_count[len(homes), len(models)].append(label)
    parts = []
    for count, model_count in sorted(labels_by_count, reverse=True):
        seeds = f"{count} seeds" if count > 1 else "1 seed"
        if model_count > 1:
            seeds += f" on {model_count} backbones"
        names = ", ".join(labels_by_count[count, model_count])
        parts.append(f"{seeds}: {names}")
    return "; ".join(parts)


def curves(folder: str | Path, runs: Runs, labels: Labels) -> pd.DataFrame:
    """Read the metrics of every step of the runs in `labels`, with method and seed."""
    return read(folder, runs, labels, "metrics").drop(columns="run")


def printed(
    table_id: str,
    names: Mapping[str, str],
    paper: str = "mae",
    setup: str | None = None,
    backbone: str | None = None,
) -> pd.DataFrame:
    """Return what a paper's table prints, as rows of method, benchmark (a stand-in) and paper.

    A stand-in's value is the mean of the columns that it represents. `names` maps the paper's row
    names to labels. Where a row occurs under several strategies or backbones, the given ones
    count, or the first. An average that the paper does not print is the mean of its stand-ins'
    columns.
    """
    cells = tables.paper_numbers(table_id)
    if setup is not None:
        cells = cells[cells["setup"] == setup]
    if backbone is not None:
        cells = cells[cells["backbone"] == backbone]
    places = layout(paper)
    rows = []
    for printed_name, label in names.items():
        is_row = cells["method"] == printed_name
        row = cells[is_row].drop_duplicates("benchmark")
        values = row.set_index("benchmark")["value"].astype(float)
        for name, columns in places.columns.items():
            rows.append((label, name, values.reindex(columns).mean()))
        for name in places.groups:
            mean = values.reindex(places.columns_of(name)).mean()
            rows.append((label, name, values.get(name, mean)))
    return pd.DataFrame(rows, columns=["method", "benchmark", "paper"])


def beside(
    accuracy: pd.DataFrame,
    printed: pd.DataFrame,
    gains: pd.DataFrame,
    paper: str = "mae",
) -> pd.DataFrame:
    """Return a table with a line per stand-in, average and gain, and two columns per method.

    The first column is the reproduced number, from `accuracy_table`; the second is what the paper
    printed, and is left out if the paper does not print the method. `gains` are those of the
    function `gains`; the base of each is in the column `over`.
    """
    places = layout(paper)
    titles = _titles(places)
    accuracy_lines = _accuracy_lines(accuracy, printed, titles)
    lines = pd.concat([accuracy_lines, _gain_lines(gains)])
    by_method = lines.set_index("questions").groupby("method", sort=False)
    columns = {}
    for method, own_lines in by_method:
        columns[method] = own_lines["reproduced"]
        if own_lines["printed"].notna().any():
            columns[f"{method}, the paper"] = own_lines["printed"]
    gain_names = gains["benchmark"] + ", over " + gains["over"]
    order = [*titles.values(), *places.groups, *gain_names.unique()]
    table = pd.DataFrame(columns).reindex(order)
    return table.rename_axis("questions").reset_index()


def _titles(places: Layout) -> dict[str, str]:
    """Return the title of each stand-in's line; one that represents columns names itself."""
    titles = {}
    for name, title in places.titles.items():
        titles[name] = f"{title} (for {name})" if places.columns[name] else title
    return titles


def _accuracy_lines(
    accuracy: pd.DataFrame, printed: pd.DataFrame, titles: Mapping[str, str]
) -> pd.DataFrame:
    frame = accuracy.merge(printed, on=["method", "benchmark"], how="left")
    numbers = frame[["accuracy", "low", "high"]].itertuples(index=False)
    frame["questions"] = frame["benchmark"].replace(titles)
    frame["reproduced"] = [tables.percent(*row) for row in numbers]
    frame["printed"] = frame["paper"].map("{:.1f}".format, na_action="ignore")
    return frame


def _gain_lines(gains: pd.DataFrame) -> pd.DataFrame:
    cells = []
    for row in gains.itertuples():
        points = tables.percent(row.delta, row.low, row.high, signed=True)
        remark = f" ({row.verdict})" if row.verdict else ""
        cells.append(points + remark)
    return gains.assign(
        questions=gains["benchmark"] + ", over " + gains["over"],
        reproduced=cells,
        printed=gains["paper delta"].map("{:+.1f}".format, na_action="ignore"),
    )


def gains(
    scored: pd.DataFrame,
    base: str,
    printed: pd.DataFrame,
    paper: str = "mae",
) -> pd.DataFrame:
    """Return every method's difference from `base` in each average, with limits.

    The verdict says whether the difference has the paper's sign.
    """
    claims = printed.set_index(["method", "benchmark"])["paper"]
    groups = layout(paper).groups
    frames = []
    for method in scored["method"].unique():
        if method == base:
            continue
        deltas = _printed_deltas(claims, method, base, groups)
        frame = tables.compare_rows(scored, base, method, groups, _signs(deltas))
        is_average = frame["kind"] == "average"
        frame = frame[is_average].rename(columns={"method": "accuracy"})
        frame["paper delta"] = frame["benchmark"].map(deltas)
        frames.append(frame.assign(method=method, over=base))
    return pd.concat(frames, ignore_index=True)[GAIN_COLUMNS]


def _printed_deltas(
    claims: pd.Series, method: str, base: str, groups: tables.Groups
) -> dict[str, float]:
    """Return the printed difference in each average, nan where a number is not printed."""
    deltas = {}
    for name in groups:
        own = (method, name)
        other = (base, name)
        value = claims.get(own, math.nan)
        base_value = claims.get(other, math.nan)
        deltas[name] = value - base_value
    return deltas


def _signs(deltas: Mapping[str, float]) -> dict[str, int]:
    signs = {}
    for name, delta in deltas.items():
        if delta and not math.isnan(delta):
            signs[name] = 1 if delta > 0 else -1
    return signs
