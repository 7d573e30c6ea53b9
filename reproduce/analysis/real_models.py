"""A real language model before and after training: accuracy, gains and learning curves."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reproduce.analysis import figures, standins, stats, tables

SMOOTH = 5  # steps of the running mean of rewards
NAMES = {  # run: its row
    "untouched": "Untouched",
    "warmed": "Warmed",
    "real_ground_truth": "RL with ground truth",
    "real_ttrl": "TTRL",
    "real_mae": "MAE",
    "real_sage": "SAGE",
    "real_spice": "SPICE",
    "real_comas": "CoMAS",
    "real_conl": "CoNL",
    "warmed_gym": "Warmed",
    "real_gym": "RL with ground truth, from untouched",
}


def labels_of(runs: standins.Runs) -> dict[str, str]:
    """Return the row of each run."""
    return {run: NAMES[run] for run in runs}


def read_answers(
    folder: Path, runs: standins.Runs, labels: standins.Labels
) -> pd.DataFrame:
    """Read greedy answers before and after training, and whether each could be read."""
    answers = standins.read(folder, runs, labels, "scores").query(
        "strategy == 'vanilla'"
    )
    text = answers["answer"]
    return answers.assign(
        correct=answers["correct"].astype(float),
        found=text.notna() & (text != ""),
    )


def accuracy(answers: pd.DataFrame) -> str:
    """Format the accuracy of one stage in percent, with 95 % limits.

    Wilson's over the questions for one seed, a bootstrap over questions and seeds for several.
    Before training all seeds are one.
    """
    by_seed = answers.pivot(index="seed", columns="item", values="correct")
    correct_SI = by_seed.drop_duplicates().to_numpy()
    if len(correct_SI) == 1:
        return tables.percent_ci(int(correct_SI.sum()), correct_SI.size)
    estimate = stats.bootstrap([correct_SI])
    return tables.percent(*(100 * min(max(value, 0), 1) for value in estimate))


def gain(answers: pd.DataFrame) -> str:
    """Format the gain from before to after training in points, with bootstrap limits."""
    by_seed = answers.pivot_table(
        index="seed",
        columns=["stage", "item"],
        values="correct",
    )
    gain_SI = (by_seed["after"] - by_seed["before"]).to_numpy()
    estimate = stats.bootstrap([gain_SI])
    return tables.percent(*(100 * value for value in estimate), signed=True)


def main_table(
    answers: pd.DataFrame, folder: Path, runs: standins.Runs, labels: standins.Labels
) -> pd.DataFrame:
    """Return accuracy before and after training, a row per run in `labels`.

    A run without steps has nothing after training.
    """
    rows = []
    for run, label in labels.items():
        own = answers[answers["method"] == label]
        before = own[own["stage"] == "before"]
        after = own[own["stage"] == "after"]
        summaries = [standins.summary(folder, run, seed) for seed in runs[run]]
        seconds = sum(summary["seconds"] for summary in summaries)
        steps = summaries[0]["steps"]
        found_before = f"{100 * before['found'].mean():.0f}"
        found_after = f"{100 * after['found'].mean():.0f}"
        row = {
            "model": label,
            "seeds": own["seed"].nunique(),
            "correct before, %": accuracy(before),
            "correct after, %": accuracy(after) if steps else "",
            "gain, points": gain(own) if steps else "",
            "read, before to after, %": f"{found_before} to {found_after}",
            "steps": steps,
            "minutes a run": round(seconds / 60 / len(summaries)),
        }
        if not steps:
            row["read, before to after, %"] = found_before
        rows.append(row)
    return pd.DataFrame(rows)


def untrained(table: pd.DataFrame) -> list[str]:
    """Return the models that took no steps."""
    return list(table[table["steps"] == 0]["model"])


def family_table(answers: pd.DataFrame, idle: Sequence[str]) -> pd.DataFrame:
    """Return correct answers of all seeds by method and family, before and after training."""
    by_family = answers.groupby(["method", "family", "stage"], sort=False)["correct"]
    counts = by_family.agg(_count_in_words).unstack("stage", sort=False)
    is_idle = counts.index.isin(idle, level="method")
    counts.loc[is_idle, "after"] = ""
    return counts


def _count_in_words(correct: pd.Series) -> str:
    return f"{correct.sum():.0f} of {correct.count()}"


def learning_curves(
    folder: Path, runs: standins.Runs, labels: standins.Labels
) -> pd.DataFrame:
    """Return validation accuracy in percent and the mean of all rewards, by step.

    Columns: method, seed, step, accuracy, pay.
    """
    curves = standins.curves(folder, runs, labels)
    rewards = [column for column in curves if column.startswith("reward/")]
    return curves[["method", "seed", "step"]].assign(
        accuracy=100 * curves["validation"],
        pay=curves[rewards].mean(axis=1),
    )


def draw(curves: pd.DataFrame, idle: Sequence[str], where: str) -> Figure:
    """Draw accuracy and mean reward along training; untrained models are level lines."""
    is_idle = curves["method"].isin(idle)
    learning = curves[~is_idle]
    fig, axes = figures.panels(2, height=3.8)
    figures.curve(
        learning,
        "step",
        "accuracy",
        ax=axes[0],
        title=f"Accuracy (SmolLM2, {where})",
        xlabel="step",
        ylabel="validation, % right",
    )
    levels = curves[is_idle].groupby("method")["accuracy"].mean()
    _draw_levels(axes[0], levels)
    figures.curve(
        _smoothed_rewards(learning),
        "step",
        "pay",
        ax=axes[1],
        title=f"Reward (mean of {SMOOTH} steps)",
        xlabel="step",
        ylabel="mean reward",
    )
    for ax in axes:
        ax.xaxis.get_major_locator().set_params(integer=True)
    figures.letter(axes)
    return fig


def _draw_levels(ax: Axes, levels: pd.Series) -> None:
    for method, level in levels.items():
        ax.axhline(level, color="0.3", linestyle=":", linewidth=1.5)
        ax.annotate(
            method,
            (0.99, level),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="bottom",
            fontsize="small",
        )


def _smoothed_rewards(learning: pd.DataFrame) -> pd.DataFrame:
    rewarded = learning[learning["step"] > 0].dropna(subset=["pay"])
    by_run = rewarded.groupby(["method", "seed"])["pay"]
    means = by_run.transform(
        lambda values: values.rolling(SMOOTH, min_periods=1).mean()
    )
    return rewarded.assign(pay=means)


def curve_table(curves: pd.DataFrame, idle: Sequence[str]) -> pd.DataFrame:
    """Return the curves of trained models, without steps that recorded neither quantity."""
    learning = curves[~curves["method"].isin(idle)]
    return learning.dropna(how="all", subset=["accuracy", "pay"])
