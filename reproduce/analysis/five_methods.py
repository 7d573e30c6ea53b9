"""Five methods on one budget of generated tokens: accuracy, and how correct their rewards are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reproduce.analysis import crossed, figures, standins, tables
from reproduce.analysis.crossed_judges import with_limits
from reproduce.analysis.evidence import TOKENS, VALIDATION
from reproduce.analysis.stats import Array

FIVE = ["MAE", "SAGE", "SPICE", "CoMAS", "CoNL"]
EIGHTHS = 8  # points of the curve of correct rewards
SHADES = ["#c6dbef", "#6baed6", "#fdd0a2", "#e6550d"]
CURVE_COLUMNS = ["panel", "method", "seed", "x", "value"]


@dataclass(frozen=True)
class RewardSource:
    """What decides a method's reward, and the metrics that say how often it was correct.

    The share of correct rewards is the sum of the columns `correct` over that of `total`; without
    `total`, the first is a share already.
    """

    title: str
    correct: tuple[str, ...] = ()
    total: tuple[str, ...] = ()


SOURCES = {
    "MAE": RewardSource("its Judge", correct=("judge_answer_correct",)),
    "SAGE": RewardSource("its Challenger's verifier", correct=("verifier_correct",)),
    "SPICE": RewardSource("a gold answer from a document", correct=("gold_correct",)),
    "CoMAS": RewardSource(
        "a peer's score",
        correct=("tp", "tn"),
        total=("tp", "tn", "fp", "fn"),
    ),
    "CoNL": RewardSource("its peers' ranking", correct=("pass_1",), total=("pass_k",)),
    "TTRL": RewardSource("the majority of its answers", correct=("majority_correct",)),
    "RL with ground truth": RewardSource("the exact verifier"),
    "SFT": RewardSource("correct answers"),
    "Untrained": RewardSource("nothing"),
}


@dataclass(frozen=True)
class Training:
    """What the runs recorded during training, with the tokens generated until each step."""

    curves: pd.DataFrame  # a row per method, seed and step
    validated: pd.DataFrame  # the steps with a validation accuracy, in percent
    totals: pd.Series  # generated tokens by method and seed

    @property
    def writing(self) -> pd.Series:
        """The totals of the runs that generate tokens."""
        return self.totals[self.totals > 0]

    @property
    def writers(self) -> pd.Index:
        """The methods that generate tokens in training."""
        return self.writing.index.unique("method")

    @property
    def budgets(self) -> list[int]:
        """The smallest total of any run that generates tokens, and that of the five methods."""
        smallest = int(self.writing.min())
        smallest_of_five = int(self.writing[FIVE].min())
        return sorted({smallest, smallest_of_five})


def read_training(
    folder: Path, runs: standins.Runs, labels: standins.Labels
) -> Training:
    """Read the metrics of the runs in `labels`."""
    return training_of(standins.curves(folder, runs, labels))


def training_of(steps: pd.DataFrame) -> Training:
    """Return what runs recorded, given their step metrics with columns method, seed and step."""
    curves = steps.copy()  # in one piece: it has many columns
    curves[TOKENS] = curves[TOKENS].fillna(0)
    curves["tokens"] = curves.groupby(["method", "seed"])[TOKENS].cumsum()
    validated = curves.dropna(subset=[VALIDATION])
    validated = validated.assign(accuracy=100 * validated[VALIDATION])
    totals = curves.groupby(["method", "seed"], sort=False)[TOKENS].sum()
    return Training(curves, validated, totals)


def accuracy_at(training: Training, budget: int, method: str) -> Array:
    """Return each unit's validation accuracy at a number of tokens, in percent.

    It is interpolated between two evaluations, and nan where the run ended before. A method that
    generates no tokens has its last accuracy.
    """
    is_method = training.validated["method"] == method
    validated = training.validated[is_method]
    accuracies = []
    for _, run in validated.groupby("seed"):
        accuracy = run["accuracy"].iloc[-1]
        if method in training.writers:
            accuracy = np.interp(budget, run["tokens"], run["accuracy"], right=np.nan)
        accuracies.append(accuracy)
    accuracy_S1 = np.array(accuracies)[:, None]
    units = tables.units_by_seed(validated).values()
    return crossed.mean_by_unit(accuracy_S1, list(units))[:, 0]


def reward_counts(curves: pd.DataFrame) -> pd.DataFrame:
    """Return, per step of each method whose rewards can be wrong, how often they were correct.

    Columns: method, seed, unit (of replication), share (of training, 0 to 1), correct, total.
    """
    frames = []
    for method, source in SOURCES.items():
        if not source.correct:
            continue
        correct = list(source.correct)
        total = list(source.total)
        keys = dict.fromkeys(["method", "seed", tables.replicate(curves)])
        columns = dict.fromkeys([*keys, "step", *correct, *total])
        is_step = (curves["method"] == method) & (curves["step"] > 0)
        steps = curves[is_step].reindex(columns=list(columns)).dropna()
        last_step = steps.groupby("seed")["step"].transform("max")
        frame = steps[list(keys)].assign(
            share=steps["step"] / last_step,
            correct=steps[correct].sum(axis=1),
            total=steps[total].sum(axis=1) if total else 1.0,
        )
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def reward_accuracy(counts: pd.DataFrame) -> pd.DataFrame:
    """Return the percentage of correct rewards in the first and the last fifth of training.

    A row per method and unit. Of fewer than five steps, the first and the last one count.
    """
    shares = counts.groupby(["method", "seed"])["share"]
    first = shares.transform("min")
    last = shares.transform("max")
    is_early = counts["share"] <= np.maximum(first, 0.2)
    is_late = counts["share"] > np.minimum(0.8, last - 1e-9)
    keys = ["method", tables.replicate(counts)]
    early = _percent_correct(counts[is_early], keys)
    late = _percent_correct(counts[is_late], keys)
    return pd.DataFrame({"first fifth": early, "last fifth": late})


def _percent_correct(
    counts: pd.DataFrame, keys: Sequence[str], sort: bool = True
) -> pd.Series:
    sums = counts.groupby(list(keys), sort=sort)[["correct", "total"]].sum()
    total = sums["total"].where(sums["total"] > 0)
    return 100 * sums["correct"] / total


def read_answers(
    folder: Path, runs: standins.Runs, labels: standins.Labels
) -> pd.DataFrame:
    """Read the answers, before and after training, to the questions that all runs answered."""
    answers = standins.read(folder, runs, labels, "scores")
    is_vanilla = answers["strategy"] == "vanilla"
    answers = common_questions(answers[is_vanilla])
    return answers.assign(
        found=answers["answer"] != "",
        trained=answers["stage"] == "after",
    )


def common_questions(answers: pd.DataFrame) -> pd.DataFrame:
    """Return the answers to the questions that all methods answered, as one benchmark."""
    checked = answers.dropna(subset=["correct"])
    questions = [set(part["question"]) for _, part in checked.groupby("method")]
    common = set.intersection(*questions)
    shared = checked[checked["question"].isin(common)]
    return shared.assign(benchmark="test", item=shared["question"])


def gain_of(answers: pd.DataFrame, method: str) -> pd.Series:
    """Return a method's gain over the untrained model, asked in the method's own form."""
    own = answers[answers["method"] == method]
    model = own["trained"].map({True: "trained", False: "untrained"})
    named = own.assign(method=model)
    return tables.compare_rows(named, "untrained", "trained", {}, {"test": 1}).iloc[0]


@dataclass(frozen=True)
class Comparison:
    """Everything that a row of the main table is made of."""

    training: Training
    answers: pd.DataFrame  # of `read_answers`
    rewards: pd.DataFrame  # of `reward_accuracy`
    models: Mapping[str, Sequence[str]]  # method: the models of its agents
    over_control: Mapping[
        str, str
    ]  # method: its gain over its shuffled rewards, in words


def main_table(comparison: Comparison, methods: Sequence[str]) -> pd.DataFrame:
    """Return the main table, a row per method; one backbone for all is left out."""
    rows = [_row(comparison, method) for method in methods]
    table = pd.DataFrame(rows).fillna("")
    if table["backbone"].nunique() == 1:
        return table.drop(columns="backbone")
    return table


def _row(comparison: Comparison, method: str) -> dict[str, Any]:
    training = comparison.training
    answers = comparison.answers
    is_after = (answers["method"] == method) & answers["trained"]
    after = answers[is_after]
    unit = tables.replicate(after)
    accuracy_U = after.groupby(unit)["correct"].mean().to_numpy()
    row = {
        "method": method,
        "backbone": " ".join(dict.fromkeys(comparison.models[method])),
        "what pays": SOURCES[method].title,
        "tokens a step": _tokens_per_step(training, method),
    }
    for budget in training.budgets:
        accuracy = accuracy_at(training, budget, method)
        row[f"validation at {budget:,} tokens, %"] = with_limits(accuracy)
    answered = after[after["found"]]
    row["test at the end, %"] = with_limits(100 * accuracy_U)
    row["gain over untrained, points"] = _gain_in_words(answers, method)
    over_shuffled = comparison.over_control.get(method, "")
    row["gain over shuffled rewards, points"] = over_shuffled
    row["answer found, %"] = f"{100 * after['found'].mean():.1f}"
    row["correct where found, %"] = f"{100 * answered['correct'].mean():.1f}"
    rewards = comparison.rewards
    if method in rewards.index:
        early = rewards.loc[method, "first fifth"]
        late = rewards.loc[method, "last fifth"]
        change_U = (late - early).to_numpy()
        fifths = f"{early.mean():.1f} to {late.mean():.1f}"
        row["what pays is right, first to last fifth, %"] = fifths
        row["change, points"] = with_limits(change_U, signed=True)
    return row


def _tokens_per_step(training: Training, method: str) -> str:
    if method not in training.writers:
        return "none"
    curves = training.curves
    is_step = (curves["method"] == method) & (curves["step"] > 0)
    return f"{curves[is_step]['generated'].mean():,.0f}"


def _gain_in_words(answers: pd.DataFrame, method: str) -> str:
    if method == "Untrained":
        return ""
    gain = gain_of(answers, method)
    points = tables.percent(gain["delta"], gain["low"], gain["high"], signed=True)
    return f"{points} ({gain['verdict']})"


@dataclass(frozen=True)
class Curves:
    """The data of the figure's three panels."""

    accuracy: pd.DataFrame  # against tokens, of the methods that generate tokens
    levels: Mapping[str, float]  # accuracy of the methods that do not
    rewards: pd.DataFrame  # percentage of correct rewards, by eighth of training
    bars: pd.DataFrame  # wrong answers that a judge believes


def figure_data(
    training: Training, counts: pd.DataFrame, shares: pd.DataFrame
) -> Curves:
    """Collect what the figure draws; `shares` are of `crossed_judges.beliefs`."""
    validated = training.validated
    is_writer = validated["method"].isin(training.writers)
    accuracy = validated[is_writer].copy()
    by_step = accuracy.groupby(["method", "step"])["tokens"]
    accuracy["tokens"] = by_step.transform("mean")  # seeds differ a little
    levels = {}
    for name, part in validated[~is_writer].groupby("method", sort=False):
        levels[name] = part.groupby("seed")["accuracy"].last().mean()
    eighth = np.ceil(counts["share"] * EIGHTHS)
    by_eighth = counts.assign(training=100 * eighth / EIGHTHS)
    rewards = _percent_correct(by_eighth, ["method", "seed", "training"], sort=False)
    bars = shares["wrong believed"].dropna().reset_index()
    bars["who"] = bars["judge"] + " judge, " + bars["answers"] + " answers"
    return Curves(accuracy, levels, rewards.rename("value").reset_index(), bars)


def draw(curves: Curves, most_tokens: float) -> Figure:
    """Draw accuracy against tokens, correct rewards along training, and who believes errors."""
    fig, axes = figures.panels(3, height=4)
    _draw_accuracy(axes[0], curves, most_tokens)
    figures.curve(
        curves.rewards,
        "training",
        "value",
        ax=axes[1],
        title="Rewards that are correct",
        xlabel="part of training, %",
        ylabel="% of rewards",
    )
    _draw_beliefs(axes[2], curves.bars)
    figures.letter(axes)
    return fig


def _draw_accuracy(ax: Axes, curves: Curves, most_tokens: float) -> None:
    figures.curve(
        curves.accuracy,
        "tokens",
        "accuracy",
        ax=ax,
        title="Accuracy on validation questions",
        xlabel="tokens written in training (root scale)",
        ylabel="% of validation questions",
    )
    ax.set_xscale(
        "function", functions=(lambda x: np.sqrt(np.maximum(x, 0)), np.square)
    )
    ax.set_xlim(0)
    ax.set_xticks(_token_ticks(most_tokens))
    ax.xaxis.set_major_formatter(
        lambda x, _: f"{x / 1000:,.0f}k" if x >= 1000 else f"{x:.0f}"
    )
    for text in list(ax.texts):  # placed on a linear scale
        text.remove()
    figures.name_ends(ax)
    for name, level in curves.levels.items():
        ax.axhline(level, color=figures.SOFT[1], linestyle=":", linewidth=1.5)
        ax.annotate(
            f"{name}, no tokens",
            (0.98, level),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="top" if name == "Untrained" else "bottom",
        )


def _token_ticks(most_tokens: float) -> list[int]:
    """Return 0 and those of 1, 3, 10, 30, ... that are between 1 % and all of the tokens."""
    ticks = [0]
    for power in range(12):
        for digit in (1, 3):
            number = digit * 10**power
            if most_tokens / 100 <= number < most_tokens:
                ticks.append(number)
    return ticks


def _draw_beliefs(ax: Axes, bars: pd.DataFrame) -> None:
    shades = dict(zip(bars["who"].unique(), SHADES, strict=False))
    sns.barplot(
        bars,
        x="method",
        y="wrong believed",
        hue="who",
        palette=shades,
        errorbar=("pi", 100),
        ax=ax,
    )
    ax.set(
        xlabel="",
        ylabel="% of wrong answers",
        title="Wrong answers that a judge accepts",
    )
    ax.legend(title=None, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=1)


def curve_table(curves: Curves) -> pd.DataFrame:
    """Return the data of all panels as one frame: panel, method, seed, x, value.

    The seed of the last panel is the unit of replication, over whose seeds it is averaged.
    """
    left = curves.accuracy.rename(columns={"tokens": "x", "accuracy": "value"})
    middle = curves.rewards.rename(columns={"training": "x"})
    names = {"who": "x", "wrong believed": "value", "unit": "seed"}
    right = curves.bars.rename(columns=names)
    panels = {
        "accuracy against tokens": left,
        "what pays is right": middle,
        "wrong answers judged right": right,
    }
    frames = []
    for panel, frame in panels.items():
        frames.append(frame.assign(panel=panel)[CURVE_COLUMNS])
    return pd.concat(frames, ignore_index=True)


def note(comparison: Comparison, curves: Curves, table: pd.DataFrame) -> str:
    """Return the note below the table."""
    questions = comparison.answers["question"].nunique()
    mixed = ""
    if "backbone" in table:
        mixed = " Rows of different backbones do not compare in level."
    late = _late_evaluations(curves.accuracy, max(comparison.training.budgets))
    return (
        "Ours only: no paper prints this. Tokens: all that a method's models write in training, "
        "paid or not. Validation at a number of "
        "tokens: the smallest total of a run of any method that writes, and of the five; "
        "empty where the runs ended before. It is read "
        f"off a straight line between two looks{late}. "
        f"Test: the same {questions} questions for all, asked once and greedily, with 95 % "
        "limits over backbones (over seeds, if all start from one). "
        "A gain is over the untrained model of that backbone, asked in the "
        "method's own form (the first row: in MAE's); its limits are over these "
        "and questions: as printed where they exclude 0 and it is a gain, as all papers claim, "
        "against print where it is a loss, "
        "undecided where they hold 0, one seed without limits, uncorrected for the number of rows. "
        "Shuffled rewards: the same training, but each role's rewards of a step are dealt out at "
        "random among its replies. The gain over it is what the rewards themselves are worth. "
        "What pays is right: against the exact "
        "verifier, which pays in RL with ground truth alone; these are shares of different things, "
        "so their changes compare, not their "
        f"levels.{mixed}"
    )


def _late_evaluations(accuracy: pd.DataFrame, budget: int) -> str:
    """Name the methods whose first evaluation in training came after the budget."""
    in_training = accuracy[accuracy["step"] > 0]
    first = in_training.groupby("method", sort=False)["tokens"].min()
    late = [
        f"{method} {tokens:,.0f}" for method, tokens in first.items() if tokens > budget
    ]
    if not late:
        return ""
    return (
        f", and the first look after the start came later for {', '.join(late)} tokens"
    )
