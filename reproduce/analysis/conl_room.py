"""CoNL and its rivals in one room: each policy alone and in the same conversation.

The paper compares CoNL's top-ranked answer, after sixteen replies of four agents, with a vote of
five samples. A difference between the two may come from the conversation or from training. Here
every policy answers the same test questions in every setting, so that the two can be told apart.
Loads no torch.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reproduce.analysis import conversations, crossed, figures, standins, tables
from reproduce.analysis.crossed import Side
from reproduce.analysis.stats import Array, Effect

PAPER = "conl"
CONVERSATION = "conversation"
SETTINGS = {  # setting: what the tables call it
    "greedy": "alone, asked once",
    "vote": "alone, vote of five",
    CONVERSATION: "in the conversation",
}
SETTING_OF = {  # strategy of the final evaluation: setting
    "vanilla": "greedy",
    "consistency": "vote",
}
# Parts of a difference between CoNL in the conversation and a rival alone.
WHOLE = "as compared in the paper"
BY_CONVERSING = "conversation"
BY_TRAINING = "training"
REST = "rest"
Row = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One method's policies in one setting."""

    method: str
    setting: str


@dataclass(frozen=True)
class OneRoom:
    """The answers of all methods to the same questions in all settings, in points."""

    sides: Mapping[Cell, Side]  # one stratum per stand-in
    seeds: Mapping[str, int]  # by method, in the order of the table
    full: str  # the method that the others are compared with
    untrained: str

    def questions(self) -> int:
        """Return how many questions every policy was asked in every setting."""
        side = self.sides[Cell(self.full, CONVERSATION)]
        return sum(stratum.questions for stratum in side.strata)

    def accuracy(self, cell: Cell) -> Effect:
        """Return the accuracy; a single unit has limits over items alone."""
        side = self.sides[cell]
        if len(side.units) == 1:
            side = replace(side, is_trained=False)
        return crossed.difference(side)

    def minus(self, cell: Cell, other: Cell) -> Effect:
        """Return one method in its setting minus another method in its setting."""
        return crossed.difference(self.sides[cell], self.sides[other])

    def by_conversing(self, method: str, alone: str) -> Side:
        """Return what policies gain in the conversation over a setting, unit by unit."""
        talking = self.sides[Cell(method, CONVERSATION)]
        silent = self.sides[Cell(method, alone)]
        return replace(talking.minus(silent), is_trained=talking.is_trained)

    def gain_by_conversing(self, method: str, alone: str) -> Effect:
        """Return the mean of `by_conversing`."""
        return crossed.difference(self.by_conversing(method, alone))


def read(
    folder: str | Path,
    runs: standins.Runs,
    labels: standins.Labels,
    full: str,
    untrained: str,
) -> OneRoom:
    """Read the answers of the runs in `labels`, on the questions that were discussed.

    Raises ValueError if a policy was not asked all of them in every setting.
    """
    talks = conversations.read(folder, runs, labels, PAPER)
    talks = talks.assign(setting=CONVERSATION, correct=talks["pass_1"])
    scores = standins.scores(folder, runs, labels, PAPER)
    scores = scores.assign(setting=scores["strategy"].map(SETTING_OF))
    is_discussed = scores["question"].isin(talks["question"])
    scores = scores[is_discussed]
    answers = pd.concat([scores, talks], ignore_index=True)
    answers = answers.assign(item=answers["question"])
    _check_complete(answers)

    sides: dict[Cell, Side] = {}
    for setting in SETTINGS:
        of_setting = answers[answers["setting"] == setting]
        for method in labels.values():
            sides[Cell(method, setting)] = _points(of_setting, method)
    seeds = {label: len(runs[run]) for run, label in labels.items()}
    return OneRoom(sides, seeds, full, untrained)


def _check_complete(answers: pd.DataFrame) -> None:
    """Raise ValueError unless every seed answered every question in every setting."""
    policies = answers.groupby(["method", "seed", "setting"])
    asked = policies["item"].nunique().unstack()
    asked = asked.reindex(columns=list(SETTINGS)).fillna(0)
    questions = answers["item"].nunique()
    for (method, seed), counts in asked.iterrows():
        if set(counts) != {questions}:
            raise ValueError(
                f"method {method!r}, seed {seed}, was not asked all {questions} questions "
                f"in every setting: {counts.astype(int).to_dict()}"
            )


def _points(answers: pd.DataFrame, method: str) -> Side:
    is_method = answers["method"] == method
    stand_ins = sorted(answers.loc[is_method, "benchmark"].unique())
    return tables.accuracy_side(answers, method, stand_ins)


def accuracies(room: OneRoom) -> pd.DataFrame:
    """Return every method's accuracy in every setting, in percent, with 95 % limits."""
    rows = []
    for cell in room.sides:
        row: Row = {"method": cell.method, "setting": cell.setting}
        row["seeds"] = room.seeds[cell.method]
        effect = room.accuracy(cell)
        rows.append(row | _numbers(effect, "accuracy"))
    return pd.DataFrame(rows)


def _numbers(effect: Effect, name: str) -> Row:
    """Return an effect under a name, with its limits."""
    low, high = effect.limits
    numbers = {name: effect.delta}
    return numbers | {"low": low, "high": high}


def gains(room: OneRoom) -> pd.DataFrame:
    """Return differences between settings of a method, and between methods in a setting.

    The columns method and setting say what gains, `over` and `over setting` over what. Each
    method is compared with the untrained one, and the full method with each.
    """
    rows = []
    for method in room.seeds:
        for alone in SETTING_OF.values():
            effect = room.gain_by_conversing(method, alone)
            rows.append(_gain(Cell(method, CONVERSATION), Cell(method, alone), effect))
    for setting in SETTINGS:
        for method, other in _pairs(room):
            cell = Cell(method, setting)
            other_cell = Cell(other, setting)
            effect = room.minus(cell, other_cell)
            rows.append(_gain(cell, other_cell, effect))
    return pd.DataFrame(rows)


def _pairs(room: OneRoom) -> Iterator[tuple[str, str]]:
    """Yield the pairs of methods that are compared in every setting."""
    for method in room.seeds:
        if method != room.untrained:
            yield method, room.untrained
    for method in room.seeds:
        if method not in (room.untrained, room.full):
            yield room.full, method


def _gain(cell: Cell, other: Cell, effect: Effect) -> Row:
    return {
        "method": cell.method,
        "setting": cell.setting,
        "over": other.method,
        "over setting": other.setting,
        **_numbers(effect, "delta"),
    }


def decomposition(
    room: OneRoom, rivals: Mapping[str, str], printed: Mapping[str, float]
) -> pd.DataFrame:
    """Split the full method in the conversation minus each rival alone into parts.

    `rivals` is {method: the setting that the paper scores it in}, `printed` {method: what the
    paper prints for the difference}. The parts add up to the whole:

        conversation: the untrained model in the conversation, minus itself in the rival's setting
        training: the full method minus the rival, both in the conversation
        rest: how much more the rival's training gains in the conversation than in its own setting
    """
    rows = []
    for rival, setting in rivals.items():
        for part, effect in _parts(room, rival, setting).items():
            row: Row = {"over": rival, "over setting": setting, "part": part}
            row |= _numbers(effect, "delta")
            row["paper"] = printed.get(rival) if part == WHOLE else None
            rows.append(row)
    frame = pd.DataFrame(rows)
    return frame.astype({"paper": float})


def _parts(room: OneRoom, rival: str, setting: str) -> dict[str, Effect]:
    full = Cell(room.full, CONVERSATION)
    untrained = room.untrained
    parts = {
        WHOLE: room.minus(full, Cell(rival, setting)),
        BY_CONVERSING: room.gain_by_conversing(untrained, setting),
        BY_TRAINING: room.minus(full, Cell(rival, CONVERSATION)),
    }
    if rival != untrained:
        parts[REST] = crossed.difference(
            room.by_conversing(rival, setting),
            room.by_conversing(untrained, setting),
        )
    return parts


def printed_differences(
    table: str, rows: Mapping[str, str], full: str, backbone: str
) -> dict[str, float]:
    """Return the full method minus each other method, as means over a printed table's columns.

    `rows` is {method: its name in the paper}.
    """
    names = {printed_name: method for method, printed_name in rows.items()}
    printed = standins.printed(table, names, PAPER, backbone=backbone)
    (average,) = standins.layout(PAPER).groups
    printed = printed[printed["benchmark"] == average]
    means = printed.set_index("method")["paper"]
    differences: dict[str, float] = (means[full] - means.drop(full)).to_dict()
    return differences


def main_table(
    room: OneRoom, accuracy: pd.DataFrame, differences: pd.DataFrame
) -> pd.DataFrame:
    """Return a row per method: accuracy in each setting, and what it gains in the conversation."""
    percents = _texts(accuracy, "accuracy", ["method", "setting"])
    key = ["method", "setting", "over", "over setting"]
    points = _texts(differences, "delta", key, signed=True)
    here = CONVERSATION
    rows = []
    for method in room.seeds:
        row: Row = {"policy": method, "seeds": room.seeds[method]}
        for setting, title in SETTINGS.items():
            row[title] = percents[method, setting]
        changes = {
            "conversation minus asked once": (method, here, method, "greedy"),
            "conversation minus vote": (method, here, method, "vote"),
            "over untrained, in the conversation": (method, here, room.untrained, here),
            f"{room.full} over this, in the conversation": (
                room.full,
                here,
                method,
                here,
            ),
        }
        for title, change in changes.items():
            row[title] = points.get(change, "")
        rows.append(row)
    return pd.DataFrame(rows)


def _texts(
    frame: pd.DataFrame, value: str, key: Sequence[str], signed: bool = False
) -> dict[Any, str]:
    """Return numbers with their limits as the text of cells, by the columns of a key."""
    texts = {}
    for row in frame.to_dict("records"):
        name = tuple(row[column] for column in key)
        texts[name] = tables.percent(row[value], row["low"], row["high"], signed)
    return texts


def parts_in_words(parts: pd.DataFrame, full: str) -> list[str]:
    """Say, for each rival, what the paper's comparison gives here and what it consists of."""
    points = _texts(parts, "delta", ["over", "part"], signed=True)
    wholes = parts[parts["part"] == WHOLE]
    sentences = []
    for whole in wholes.to_dict("records"):
        rival = whole["over"]
        setting = SETTINGS[whole["over setting"]]
        text = (
            f"{full} in the conversation minus {rival} {setting}: {points[rival, WHOLE]} "
            f"points (printed: {whole['paper']:+.1f}). Of these, the conversation gives "
            f"{points[rival, BY_CONVERSING]} to the untrained model, and training gives "
            f"{points[rival, BY_TRAINING]} between policies in the same conversation"
        )
        if (rival, REST) in points:
            text += f"; the rest is {points[rival, REST]}"
        sentences.append(f"{text}.")
    return sentences


def draw(accuracy: pd.DataFrame, parts: pd.DataFrame, full: str) -> Figure:
    """Draw every policy in every setting, and the parts of the differences."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8))
    _draw_settings(left, accuracy)
    _draw_parts(right, parts, full)
    fig.tight_layout()
    return fig


def _draw_settings(ax: Axes, accuracy: pd.DataFrame) -> None:
    methods = list(accuracy["method"].unique())
    rows = np.arange(len(methods))
    distance = 0.2  # between the settings of a row
    for number, (setting, title) in enumerate(SETTINGS.items()):
        of_setting = accuracy[accuracy["setting"] == setting]
        cells = of_setting.set_index("method").loc[methods]
        ax.errorbar(
            cells["accuracy"],
            rows + distance * (number - 1),
            xerr=_error_bars(cells, "accuracy"),
            fmt="o",
            capsize=4,
            color=figures.COLOURS[number],
            label=title,
        )
    ax.set(xlabel="correct answers, %", title="Every policy in every setting")
    _name_rows(ax, methods)


def _draw_parts(ax: Axes, parts: pd.DataFrame, full: str) -> None:
    names = list(parts["part"].unique())
    colours = dict(zip(names, figures.COLOURS, strict=False))
    rows = np.arange(len(parts))
    ax.barh(
        rows,
        parts["delta"],
        xerr=_error_bars(parts, "delta"),
        capsize=4,
        height=0.7,
        color=parts["part"].map(colours),
    )
    ax.plot(parts["paper"], rows, "D", color="black", label="printed by the paper")
    ax.axvline(0, color="0.3", linewidth=1)
    texts = parts["part"].mask(parts["part"] == WHOLE, f"{full} - " + parts["over"])
    ax.set(xlabel="points", title=f"What the gain of {full} consists of")
    _name_rows(ax, texts)


def _error_bars(frame: pd.DataFrame, value: str) -> Array:
    """Return lengths below and above a value; nan, which is not drawn, without limits."""
    limits = frame[["low", "high"]]
    lengths = limits.sub(frame[value], axis=0).abs()
    return np.asarray(lengths).T


def _name_rows(ax: Axes, names: Sequence[str]) -> None:
    rows = range(len(names))
    labels = [figures.plain(name) for name in names]
    ax.set_yticks(rows, labels)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(visible=False, axis="y")
    ax.legend(**figures.BELOW_AXES)
