"""SPICE's snapshots against each other: pass rates, what is asked, what is answered (3, 5, 6)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from coevolve.text.parse import boxed
from coevolve.training.config import Run
from coevolve.worlds import World
from reproduce.analysis import (
    crossed,
    crossplay,
    figures,
    printed_curves,
    standins,
    stats,
    tables,
)
from tinyworld.tasks import read

# Trained on: kept at its first.
FIXED = {
    "challenger": "reasoner",
    "reasoner": "challenger",
}
PRINTED_AS = {  # role whose later snapshots play: the paper's figure
    "challenger": "spice_fig3a",
    "reasoner": "spice_fig3b",
}
PAIR_COLUMNS = [
    "challenger",
    "reasoner",
    "seeds",
    "documents",
    "pass_rate",
    "low",
    "high",
]
CHANGE_COLUMNS = [
    "later",
    "from step",
    "to step",
    "pass rate, %",
    "then, %",
    "seeds",
    "change, points",
    "paper",
    "verdict",
]


def play_all(
    run: Run, folder: Path, seeds: Sequence[int], texts: Sequence[str], **sizes: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Play all pairs of snapshots of every seed; return attempts and answers.

    Both name the seed, and the answers also its unit of replication.
    `sizes` are those of `crossplay.every_pair`.
    """
    attempts = []
    answers = []
    units = standins.units(folder, "spice", seeds)
    for seed, unit in zip(seeds, units, strict=True):
        home = folder / f"spice-s{seed}"
        untrained = standins.first_backbone(home)
        players = crossplay.players(home, untrained)
        frames = crossplay.every_pair(
            players,
            players,
            run.method,
            texts,
            seed=seed,
            **sizes,
        )
        attempts.append(frames[0].assign(seed=seed))
        answers.append(frames[1].assign(seed=seed, unit=unit))
    return pd.concat(attempts, ignore_index=True), pd.concat(answers, ignore_index=True)


def first_trained_step(attempts: pd.DataFrame) -> int:
    """Return the step of the first snapshot; step 0 is the untrained model."""
    return sorted(attempts["challenger"].unique())[1]


def pair_table(rates: pd.DataFrame, attempts: pd.DataFrame) -> pd.DataFrame:
    """Return the pass rate of every pair in percent, with 95 % limits.

    Units have equal weight. The limits are a bootstrap over documents, and reach at least as far
    as Student's t over units.
    """
    unit = tables.replicate(rates)
    rows = []
    for (challenger, reasoner), part in rates.groupby(["challenger", "reasoner"]):
        by_unit = [rates_D.to_numpy() for _, rates_D in part.groupby(unit)["pass_rate"]]
        estimate = _mean_over_units(by_unit)
        row = {
            "challenger": challenger,
            "reasoner": reasoner,
            "seeds": part["seed"].nunique(),
            "documents": len(part),
            "pass_rate": 100 * estimate.value,
            "low": 100 * estimate.low,
            "high": 100 * estimate.high,
        }
        rows.append(row)
    table = pd.DataFrame(rows, columns=PAIR_COLUMNS)
    gold_correct = attempts.groupby("challenger")["gold_correct"].mean()
    return table.assign(gold_correct=table["challenger"].map(100 * gold_correct))


def _mean_over_units(by_unit: Sequence[stats.Array]) -> stats.Estimate:
    """Return the mean of the units' pass rates; their documents need not be the same."""
    estimate = stats.bootstrap([rates_D[None] for rates_D in by_unit])
    means_U = np.array([rates_D.mean() for rates_D in by_unit])
    half_width = stats.student_half_width(means_U, stats.LEVEL)
    low = min(estimate.low, estimate.value - half_width)
    high = max(estimate.high, estimate.value + half_width)
    return stats.Estimate(estimate.value, low, high)


def change_table(rates: pd.DataFrame, claims: Mapping[str, float]) -> pd.DataFrame:
    """Compare the last snapshot of each role with its first, the other role kept at its first.

    `claims` are the paper's changes in points. The interval is Student's t over units; a single
    unit has none, and no verdict.
    """
    rows = []
    for later in FIXED:
        by_unit = crossplay.first_and_last(rates, later)
        first_step, last_step = by_unit
        first = by_unit.iloc[:, 0]
        last = by_unit.iloc[:, 1]
        effect = crossed.mean_of_runs(last - first, by_unit.index.astype(str))
        low, high = effect.limits
        sign = 1 if claims[later] > 0 else -1
        row = {
            "later": later,
            "from step": first_step,
            "to step": last_step,
            "pass rate, %": first.mean(),
            "then, %": last.mean(),
            "seeds": rates["seed"].nunique(),
            "change, points": tables.percent(effect.delta, low, high, signed=True),
            "paper": claims[later],
            "verdict": stats.verdict(low, high, sign),
        }
        rows.append(row)
    return pd.DataFrame(rows, columns=CHANGE_COLUMNS).round(1)


def draw_later(ax: Axes, pairs: pd.DataFrame, later: str, first: int) -> None:
    """Draw the pass rate against one role's step, the other role kept at its first snapshot.

    The paper's two points stand at our first and our last snapshot.
    """
    fixed = FIXED[later]
    part = pairs[pairs[fixed] == first].set_index(later)
    below = part["pass_rate"] - part["low"]
    above = part["high"] - part["pass_rate"]
    ax.errorbar(
        part.index,
        part["pass_rate"],
        pd.DataFrame({"below": below, "above": above}).T,
        marker="o",
        capsize=4,
        color=figures.COLOURS[0],
        label="here",
    )
    numbers = tables.paper_numbers("spice_figures")
    points = printed_curves.read(numbers, PRINTED_AS[later])
    placed = printed_curves.on_axis(points, {}, part.index.min(), part.index.max())
    look = {**figures.PRINTED, "color": figures.INK[1]}
    ax.plot(placed["step"], placed["value"], label="the paper", **look)
    ax.set(
        xlabel=f"{later.capitalize()}'s step",
        ylabel="% of attempts",
        xticks=part.index,
        title=f"Pass rate, {fixed.capitalize()} fixed at step {first}",
    )
    ax.legend()


def draw_challengers(pairs: pd.DataFrame, first: int) -> Figure:
    """Draw Figure 3a: later Challengers against the first Reasoner, and every pair."""
    fig, axes = figures.panels(2, height=3.8)
    draw_later(axes[0], pairs, "challenger", first)
    matrix = pairs.pivot(index="challenger", columns="reasoner", values="pass_rate")
    sns.heatmap(
        matrix,
        annot=True,
        fmt=".0f",
        ax=axes[1],
        cmap="cividis",
        cbar_kws={"label": "% of attempts"},
    )
    for text in axes[1].texts:  # they lie on colours, not on the page
        is_dark = text.get_color() != "w"
        text.set_color("#101010" if is_dark else "#fefefe")
    axes[1].set(
        xlabel="Reasoner's step",
        ylabel="Challenger's step",
        title="Pass rate of every pair",
    )
    figures.letter(axes)
    return fig


def draw_reasoners(pairs: pd.DataFrame, first: int) -> Figure:
    """Draw Figure 3b: later Reasoners on the first Challenger's tasks."""
    fig, axes = figures.panels(1)
    draw_later(axes[0], pairs, "reasoner", first)
    return fig


def draw_shares(shares: pd.DataFrame, name: str, unit: str) -> Figure:
    """Draw shares against the step of a snapshot, a line per column."""
    ax = shares.plot(marker="o", title=name)
    ax.set(xlabel="step", ylabel=unit, ylim=(0, 1.02), xticks=shares.index)
    return ax.figure


def judged_attempts(attempts: pd.DataFrame, oracle: World) -> pd.DataFrame:
    """Add whether each attempt is valid, and the level of its question."""
    questions = attempts["question"]
    level = questions.map(oracle.level, na_action="ignore")
    judged = attempts.assign(
        valid=questions.notna().astype(float),
        level=level.astype(float),
    )
    return judged.rename(columns={"gold_correct": "gold correct"})


def attempt_shares(attempts: pd.DataFrame) -> pd.DataFrame:
    """Return shares of each Challenger's attempts, and its different questions per document."""
    columns = ["valid", "gold correct", "level"]
    shares = attempts.groupby("challenger")[columns].mean()
    by_document = attempts.groupby(["challenger", "seed", "document"])
    different = by_document["question"].nunique()
    per_document = different.groupby("challenger").mean()
    return shares.assign(**{"different questions per document": per_document})


def usual_questions(attempts: pd.DataFrame, texts: Sequence[str]) -> pd.DataFrame:
    """Return the question that each snapshot asks most often about each document."""
    by_document = attempts.groupby(["document", "challenger"])
    usual = by_document["question"].agg(most_frequent).reset_index()
    distinct = attempts.drop_duplicates(["document", "challenger", "question"])
    table = usual.merge(distinct)
    table["document"] = table["document"].map(dict(enumerate(texts)))
    table = table[
        ["document", "challenger", "question", "gold", "gold correct", "level"]
    ]
    names = {"challenger": "step", "question": "most frequent question"}
    return table.rename(columns=names)


def most_frequent(values: pd.Series) -> str:
    """Return the most frequent value, the first in order if there are several."""
    return values.mode()[0]


def answers_to_first(answers: pd.DataFrame, first: int) -> pd.DataFrame:
    """Return the answers to the first Challenger's tasks, with agrees and lured."""
    is_first = answers["challenger"] == first
    frame = answers[is_first].rename(columns={"correct": "agrees"})
    pairs = zip(frame["question"], frame["answer"], strict=True)
    return frame.assign(lured=[lured(question, answer) for question, answer in pairs])


def lured(question: str, answer: str) -> float:
    """Return 1.0 if an answer shows the mistake that the backbone was taught, else 0.0.

    It is 0.0 for an ill-formed question, and for a choice that does not offer the mistake.
    """
    task = read(question)
    stem = read(question.partition(" A)")[0])
    if task is None:
        return 0.0
    is_choice = task != stem
    if is_choice and f"){stem.misconception} " not in f"{question} ":
        return 0.0
    return float(boxed(answer) == task.misconception != task.answer)


def usual_answers(answers: pd.DataFrame, count: int) -> pd.DataFrame:
    """Return each Reasoner's most frequent answer to some questions, changed ones first."""
    by_question = answers.groupby(["question", "gold", "reasoner"])["answer"]
    by_step = by_question.agg(most_frequent).unstack("reasoner")
    table = by_step.rename(columns="step {}".format).reset_index()
    is_changed = table.iloc[:, 2] != table.iloc[:, -1]
    changed = table[is_changed].head(count)
    others = table.drop(changed.index)
    return pd.concat([changed, others]).head(count).reset_index(drop=True)
