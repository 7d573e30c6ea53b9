"""What runs recorded over training: curves, levels at start and end, faults word for word."""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from coevolve.runs import record
from reproduce.analysis import (
    crossed,
    figures,
    printed_curves,
    standins,
    stats,
    tables,
)

KEY = ["method", "seed", "step"]
# Measured now and then, so not smoothed.
VALIDATION = {
    "validation",
    "accuracy",
}
CONFUSION = ["tp", "fp", "fn", "tn"]
LEVEL_COLUMNS = [
    "variant",
    "share",
    "first fifth",
    "last fifth",
    "change",
    "low",
    "high",
    "paper's direction",
]
FAULT_COLUMNS = ["run", "step", "fault", "proposal", "judged quality"]
# Title, ylabel, lines (metric: name); perhaps ylim, yscale, smooth, and `paper`: the numbers, table
# and quantity of what a paper draws, and `apart` if that needs a panel of its own.
Panel = Mapping[str, Any]


def read(folder: Path, runs: standins.Runs, labels: standins.Labels) -> pd.DataFrame:
    """Read the metrics of every step, with the quantities derived from them.

    MAE: rejected (proposed questions kept out of the pool so far), ill-formed (questions in the
    pool), unparsed and unanswered (shares of proposals and answers). CoMAS: favourable (share of
    verdicts) and confirmed (share of verdicts that the verifier confirms).
    """
    curves = standins.curves(folder, runs, labels)
    curves["accuracy"] = 100 * curves["validation"]
    if "pool/questions" in curves:
        run, (seed, *_) = next(iter(runs.items()))
        _derive_mae(curves, batch_size=_batch_size(folder / f"{run}-s{seed}"))
    if "score_3" in curves:
        _derive_comas(curves)
    return curves


def _batch_size(run: Path) -> int:
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    return config["batch_size"]


def _derive_mae(curves: pd.DataFrame, batch_size: int) -> None:
    curves["rejected"] = (1 - curves["accepted"]) * batch_size
    by_run = curves.groupby(["method", "seed"])
    curves["rejected"] = by_run["rejected"].cumsum()
    curves["ill-formed"] = curves["pool_ill_formed"] * curves["pool/questions"]
    curves["unparsed"] = 1 - curves["parsed"]
    curves["unanswered"] = 1 - curves["answered"]


def _derive_comas(curves: pd.DataFrame) -> None:
    judged_correct = float("nan")
    if (
        "judged_correct" in curves
    ):  # without scoring, the evaluation itself is a verdict
        judged_correct = curves["judged_correct"]
    curves["favourable"] = curves["score_3"].fillna(judged_correct)
    confirmed = curves["tp"] + curves["tn"]
    curves["confirmed"] = confirmed / curves[CONFUSION].sum(axis=1)


def panel_data(curves: pd.DataFrame, panel: Panel, smooth: int) -> pd.DataFrame:
    """Return the values of one panel as running means: method, seed, step, what, value, line.

    Metrics that no run recorded are left out, as a preset may have fewer agents.
    """
    lines = {}
    for metric, name in panel["lines"].items():
        if metric in curves:
            lines[metric] = name
    values = curves.melt(KEY, list(lines), "what", "value")
    window = panel.get("smooth", smooth)
    is_sparse = not VALIDATION.isdisjoint(lines)
    if window > 1 and not is_sparse:
        by_run = values.groupby(["what", "method", "seed"])
        values["value"] = by_run["value"].transform(running_mean, window=window)
    values["what"] = values["what"].map(lines)
    values = values.dropna(subset=["value"])
    return values.assign(line=_line_names(values))


def _line_names(values: pd.DataFrame) -> pd.Series:
    """Return each row's name in the legend: quantity and method, where there are several."""
    names = []
    for column in ("what", "method"):
        if values[column].nunique() > 1:
            names.append(column)
    names = names or ["method"]
    return values[names].agg(", ".join, axis=1)


def running_mean(values: pd.Series, window: int) -> pd.Series:
    """Return the mean of each value and of those before it in a window of steps."""
    return values.rolling(window, min_periods=1).mean()


def draw(
    panels: Sequence[Panel],
    data: Sequence[pd.DataFrame],
    rows: Mapping[str, str] | None = None,
) -> Figure:
    """Draw a panel per frame of `panel_data`, with what the paper draws, where that is known.

    A paper's curve is stretched to the length of ours. `rows` maps our names of methods to the
    paper's.
    """
    has_own_panel = [panel.get("paper", {}).get("apart", False) for panel in panels]
    fig, axes = figures.panels(len(panels) + sum(has_own_panel))
    free_axes = iter(axes)
    for panel, values, is_apart in zip(panels, data, has_own_panel, strict=True):
        ax = next(free_axes)
        figures.curve(
            values,
            "step",
            "value",
            hue="line",
            ax=ax,
            ylim=panel.get("ylim"),
            title=panel["title"],
            xlabel="training step",
            ylabel=panel["ylabel"],
        )
        if panel.get("yscale"):
            ax.set_yscale(panel["yscale"])
            ax.yaxis.set_major_formatter("{x:,.0f}")
            ax.yaxis.set_minor_formatter("")
        if "paper" in panel:
            printed = _printed(panel["paper"], rows or {}, values)
            if is_apart:
                _draw_apart(next(free_axes), panel, printed, values)
            else:
                _draw_over(ax, printed)
    figures.letter(axes)
    return fig


def _printed(
    paper: Mapping[str, Any], rows: Mapping[str, str], values: pd.DataFrame
) -> pd.DataFrame:
    """Return what a paper draws in a panel, of the methods that the panel has."""
    numbers = tables.paper_numbers(paper["numbers"])
    points = printed_curves.read(numbers, paper["table"], paper.get("quantity", ""))
    steps = values["step"]
    placed = printed_curves.on_axis(points, rows, steps.min(), steps.max())
    return placed[placed["method"].isin(values["method"])]


def _draw_apart(
    ax: Axes, panel: Panel, printed: pd.DataFrame, values: pd.DataFrame
) -> None:
    """Draw the paper's curves in a panel of their own, in the colours of ours."""
    colours = figures.palette(values["line"].unique())
    for method, points in printed.groupby("method", sort=False):
        look = {**figures.PRINTED, "color": colours[method]}
        ax.plot(points["step"], points["value"], label=method, **look)
    ax.set(
        title="The same in the paper, roughly",
        xlabel="training step, stretched to ours",
        ylabel=panel["ylabel"],
    )
    figures.name_ends(ax)


def _draw_over(ax: Axes, printed: pd.DataFrame) -> None:
    """Draw the paper's points over our curves, and place the names of all lines anew."""
    look = {**figures.PRINTED, "color": figures.INK[1]}
    for method, points in printed.groupby("method", sort=False):
        label = f"{method} in the paper"
        ax.plot(points["step"], points["value"], label=label, **look)
    for text in list(ax.texts):
        text.remove()
    figures.name_ends(ax)


def drawn_values(data: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the values of all panels as one frame."""
    return pd.concat(
        [values.drop(columns="line") for values in data], ignore_index=True
    )


def fifths(drawn: pd.DataFrame) -> pd.DataFrame:
    """Return means over the first and the last fifth of training of what is drawn."""
    fifth = drawn["step"].max() / 5
    parts = {
        "first fifth": drawn[drawn["step"] <= fifth],
        "last fifth": drawn[drawn["step"] > 4 * fifth],
    }
    means = {}
    for name, part in parts.items():
        by_line = part.groupby(["what", "method"], sort=False)
        means[name] = by_line["value"].mean()
    return pd.DataFrame(means)


def level_changes(
    curves: pd.DataFrame,
    labels: standins.Labels,
    levels: Mapping[str, str],
    claims: Mapping[str, Mapping[str, int]],
    last_step: float,
) -> pd.DataFrame:
    """Return each level in the first and the last fifth, and its change with a verdict.

    Levels are means of single steps. `levels` maps a metric to its name; `claims` holds the
    direction that the paper reports by method and metric. A method without values has no row.
    """
    rows = []
    for method in labels.values():
        is_step = (curves["method"] == method) & (curves["step"] > 0)
        for metric, name in levels.items():
            steps = curves[is_step].dropna(subset=[metric])
            if steps.empty:
                continue
            sign = claims.get(method, {}).get(metric)
            change = _level_change(steps, metric, last_step / 5, sign)
            rows.append({"variant": method, "share": name, **change})
    return pd.DataFrame(rows, columns=LEVEL_COLUMNS)


def _level_change(
    steps: pd.DataFrame, metric: str, fifth: float, sign: int | None
) -> dict:
    early = steps[steps["step"] <= fifth]
    late = steps[steps["step"] > 4 * fifth]
    before = early.groupby("seed")[metric].mean()
    after = late.groupby("seed")[metric].mean()
    change_S = after - before
    unit_of = tables.units_by_seed(steps)
    effect = crossed.mean_of_runs(change_S, [unit_of[seed] for seed in change_S.index])
    low, high = effect.limits
    return {
        "first fifth": before.mean(),
        "last fifth": after.mean(),
        "change": effect.delta,
        "low": low,
        "high": high,
        "paper's direction": stats.verdict(low, high, sign),
    }


def with_printed_levels(
    changes: pd.DataFrame, printed: pd.DataFrame, described: str, level: str
) -> pd.DataFrame:
    """Add the column paper: what a paper says about a figure, beside one of the levels."""
    lines = printed[printed["table"] == described]
    texts = lines.groupby("method")["printed"]
    descriptions = texts.agg(" ".join)
    is_level = changes["share"] == level
    paper = changes["variant"].map(descriptions)
    return changes.assign(paper=paper.where(is_level, ""))


def best_and_last(curves: pd.DataFrame) -> pd.DataFrame:
    """Return the best and the last validation accuracy of each run, with their steps."""
    columns = [*KEY, "validation"]
    measured = curves.dropna(subset=["validation"])[columns]
    by_run = measured.groupby(["method", "seed"], sort=False)
    best_rows = by_run["validation"].idxmax()
    last_rows = by_run["step"].idxmax()
    return measured.loc[best_rows].merge(
        measured.loc[last_rows],
        on=["method", "seed"],
        suffixes=(" best", " last"),
    )


def faults(
    folder: Path, runs: standins.Runs, labels: standins.Labels, role: str
) -> pd.DataFrame:
    """Return the recorded replies of one of MAE's roles that do not parse or are ill-formed."""
    rows = []
    for run, label in labels.items():
        first_seed = runs[run][0]
        episodes = record.read(folder / f"{run}-s{first_seed}", "episodes")
        for episode in episodes.itertuples():
            facts = episode.facts
            parses = facts.get("proposal") is not None
            if parses and facts.get("valid"):
                continue
            fault = "ill-formed" if parses else "does not parse"
            for sample in episode.samples:
                if sample["role"] == role:
                    quality = facts.get("quality")
                    rows.append(
                        (
                            label,
                            episode.step,
                            fault,
                            sample["text"],
                            quality,
                        )
                    )
    return pd.DataFrame(rows, columns=FAULT_COLUMNS)


def final_gains(
    folder: Path,
    runs: standins.Runs,
    labels: standins.Labels,
    compared: Sequence[str],
    paper: str,
) -> pd.DataFrame:
    """Return the test gains of each method over the one before it, in each average.

    Of three or more methods the last lines are those of the last over the first. `share` is the
    part of that whole which a step makes up. The verdict is on the claim that the later method is
    better.
    """
    steps = list(pairwise(compared))
    whole = (compared[0], compared[-1])
    if len(steps) > 1:
        steps.append(whole)
    groups = standins.layout(paper).groups
    scores = standins.scores(folder, runs, labels, paper)
    claimed = dict.fromkeys(groups, 1)
    frames = []
    for first, second in steps:
        gains = tables.compare_rows(scores, first, second, groups, claimed)
        gains = gains[gains["kind"] == "average"]
        gains = gains.drop(columns=["p", "p_holm", "kind"])
        gains = gains.rename(columns={"base": "from", "method": "to"})
        gains.insert(0, "over", first)
        gains.insert(0, "method", second)
        frames.append(gains)
    by_benchmark = frames[-1].set_index("benchmark")["delta"]
    frame = pd.concat(frames, ignore_index=True)
    return frame.assign(share=frame["delta"] / frame["benchmark"].map(by_benchmark))


def halves(
    curves: pd.DataFrame, drawn: pd.DataFrame, metric: str, name: str
) -> pd.DataFrame:
    """Return levels of a metric in the first and the last half of training, a row per method.

    Levels and spread (the standard deviation over steps, averaged over seeds) are of single steps,
    the start is as drawn.
    """
    half = drawn["step"].max() / 2
    first = curves[curves["step"] <= half]
    last = curves[curves["step"] > half]
    by_run = drawn.sort_values("step").groupby(["method", "seed"])
    start = by_run["value"].first()
    spread = last.groupby(["method", "seed"])[metric].std()
    table = pd.DataFrame(
        {
            "start": start.groupby("method").mean(),
            "first half": first.groupby("method")[metric].mean(),
            "last half": last.groupby("method")[metric].mean(),
            "spread, last half": spread.groupby("method").mean(),
        }
    )
    table.insert(0, "measure", name)
    return table


def with_printed_halves(
    table: pd.DataFrame,
    printed: pd.DataFrame,
    described: str,
    rows: Mapping[str, str],
) -> pd.DataFrame:
    """Add what a paper describes of a figure; `rows` maps our row names to the paper's."""
    lines = printed[printed["table"] == described]
    descriptions = lines.set_index("method")["printed"]
    labels = {printed_name: name for name, printed_name in rows.items()}
    return table.assign(**{"the paper (approximate)": descriptions.rename(labels)})
