"""Control arms of the five methods: what a method gains over rewards that are not its own.

An arm is a method under one of its controls (see `coevolve.training.controls`), or the method
itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reproduce.analysis import corrections, crossed, five_methods, tables
from reproduce.analysis import evidence as recorded

# What each control pays, in the order of the table.
CONTROLS = {
    "random": "a number drawn at random",
    "format": "the form of a reply alone",
    "shuffled": "its own rewards, dealt out at random",
    "oracle": "an oracle, in place of its judge or answer key",
}
# Controls that know nothing of right and wrong.
FLOORS = ("random", "format", "shuffled")
UNTRAINED = "untrained"
OWN = "its own rewards"
TOLERANCE = 0.1  # a larger difference of tokens makes two arms compare at equal tokens
GREY = "#8c8c8c"  # rewards that say nothing about the reply's content
BLUE = "#0173b2"
ORANGE = "#de8f05"
LOOKS = {  # of an arm's dot: colours that deuteranopes tell apart, and a marker
    "random": (GREY, "o"),
    "format": (GREY, "o"),
    "shuffled": (GREY, "o"),
    "oracle": (BLUE, "s"),
    OWN: (ORANGE, "D"),
}


@dataclass(frozen=True)
class Arm:
    """A method under a control, or with its own rewards, and the run that trained it."""

    method: str
    name: str  # a key of CONTROLS, or OWN
    run: str

    @property
    def label(self) -> str:
        """The arm's name among all arms; the method itself is called by its own."""
        return self.method if self.name == OWN else f"{self.method}, {self.name}"


def arms_of(runs: Mapping[str, str], controls: Sequence[str]) -> list[Arm]:
    """Return the arms of methods, given the run of each: the controls', then the method itself.

    The run of a control is called by the method and the control, such as mae_shuffled.
    """
    arms = []
    for method, run in runs.items():
        for control in controls:
            arms.append(Arm(method, control, f"{method.lower()}_{control}"))
        arms.append(Arm(method, OWN, run))
    return arms


def labels_of(arms: Sequence[Arm]) -> dict[str, str]:
    """Return the label of each arm by its run."""
    return {arm.run: arm.label for arm in arms}


@dataclass(frozen=True)
class Evidence:
    """What the runs of all arms recorded."""

    answers: pd.DataFrame  # of `five_methods.read_answers`, by label
    training: five_methods.Training  # of `five_methods.read_training`, by label

    def tokens(self, label: str) -> float:
        """Return the number of tokens that an arm writes in training, averaged over seeds."""
        return float(self.training.totals[label].mean())


def read(folders: recorded.Evidence, arms: Sequence[Arm]) -> Evidence:
    """Read the runs of all arms, from their folders or from committed records."""
    answers = []
    curves = []
    for arm in arms:
        units = _units(folders, arm)
        for stage in ("before", "after"):
            asked = folders.answers(arm.run, stage=stage)
            is_trained = stage == "after"
            named = asked.assign(
                method=arm.label,
                unit=asked["seed"].map(units),
                trained=is_trained,
            )
            answers.append(named)
        steps = folders.step_metrics(arm.run)
        curves.append(steps.assign(method=arm.label, unit=steps["seed"].map(units)))
    together = pd.concat(answers, ignore_index=True)
    training = five_methods.training_of(pd.concat(curves, ignore_index=True))
    return Evidence(five_methods.common_questions(together), training)


def _units(folders: recorded.Evidence, arm: Arm) -> dict[int, str]:
    """Return the unit of replication of each seed, see `crossed.units_of`."""
    summaries = folders.summaries(arm.run)
    seeds = [summary.seed for summary in summaries]
    backbones = [summary.backbone for summary in summaries]
    return dict(zip(seeds, crossed.units_of(backbones, seeds), strict=True))


@dataclass(frozen=True)
class Gain:
    """A difference in accuracy with 95 % limits, in points."""

    points: float
    low: float
    high: float
    # The tokens that both arms had written when they were compared; None: at the end of training.
    budget: int | None = None
    # Of the test that there is no difference; nan at equal tokens, or for one seed.
    p: float = np.nan

    @property
    def text(self) -> str:
        """The difference with its limits, if it has any."""
        return tables.percent(self.points, self.low, self.high, signed=True)

    @property
    def place(self) -> str:
        """On which questions, and when, the arms were compared."""
        if self.budget is None:
            return "test, at the end"
        return f"validation, at {self.budget:,} tokens"


def gain_over_untrained(evidence: Evidence, arm: Arm) -> Gain:
    """Return what an arm gains over the model that it started from, on test questions."""
    row = five_methods.gain_of(evidence.answers, arm.label)
    return Gain(row["delta"], row["low"], row["high"])


def gain_over_control(evidence: Evidence, own: Arm, control: Arm) -> Gain:
    """Return what a method gains over a control at equal tokens.

    Arms that write as many tokens, give or take a tenth, are compared on the test questions, at
    the end of training. Others are compared on the validation questions, where the arm that writes
    less has ended: only these are asked during training.
    """
    if write_as_much(evidence, own, control):
        return gain_at_the_end(evidence, own, control)
    return gain_at_equal_tokens(evidence, own, control)


def write_as_much(evidence: Evidence, own: Arm, control: Arm) -> bool:
    """Whether the tokens of two arms differ by at most a tenth of the larger number."""
    fewer, more = sorted([evidence.tokens(own.label), evidence.tokens(control.label)])
    return more - fewer <= TOLERANCE * more


def gains_in_words(
    evidence: Evidence, arms: Sequence[Arm], control: str
) -> dict[str, str]:
    """Return each method's gain over one of its controls, by the method's name.

    The place is named where it is not the test questions at the end of training.
    """
    arm_of = {arm.label: arm for arm in arms}
    words = {}
    for own in arms:
        if own.name != OWN:
            continue
        gain = gain_over_control(evidence, own, arm_of[f"{own.method}, {control}"])
        remark = "" if gain.budget is None else f" ({gain.place})"
        words[own.method] = gain.text + remark
    return words


def gain_at_the_end(evidence: Evidence, own: Arm, control: Arm) -> Gain:
    """Return what a method gains over a control at the end of training, on test questions."""
    after = evidence.answers[evidence.answers["trained"]]
    rows = tables.compare_rows(after, control.label, own.label, groups={})
    row = rows.iloc[0]
    return Gain(row["delta"], row["low"], row["high"], p=row["p"])


def gain_at_equal_tokens(evidence: Evidence, own: Arm, control: Arm) -> Gain:
    """Return what a method gains over a control at the fewest tokens that any of their runs writes.

    It is measured on validation questions, unit by unit.
    """
    training = evidence.training
    totals = training.totals[[own.label, control.label]]
    budget = int(totals.min())
    accuracy_U = five_methods.accuracy_at(training, budget, own.label)
    control_U = five_methods.accuracy_at(training, budget, control.label)
    gain_U = accuracy_U - control_U
    effect = crossed.mean_of_units(gain_U)
    low, high = effect.limits
    return Gain(effect.delta, low, high, budget)


def weigh(evidence: Evidence, arms: Sequence[Arm]) -> pd.DataFrame:
    """Return a row per method and arm, in the order of the arms, the untrained model first.

    Columns: method, arm, tokens, accuracy (of test questions, %); gain, gain_low, gain_high (over
    the untrained model, points); over, over_low, over_high, p (the method over this arm at the end
    of training, on test questions); p_holm (corrected for the number of floors of all methods);
    equal, equal_low, equal_high, budget (the method over this arm at as many tokens, on validation
    questions, if the arms do not write as much).
    """
    rows = []
    for own in arms:
        if own.name != OWN:
            continue
        of_method = [arm for arm in arms if arm.method == own.method]
        rows.append(_untrained_row(evidence, own))
        rows += [_arm_row(evidence, arm, own) for arm in of_method]
    frame = pd.DataFrame(rows)
    is_floor = frame["arm"].isin(FLOORS)
    p_holm = corrections.holm(frame.loc[is_floor, "p"])
    frame.loc[is_floor, "p_holm"] = p_holm
    return frame


def _untrained_row(evidence: Evidence, own: Arm) -> dict[str, Any]:
    over = gain_over_untrained(evidence, own)
    return {
        "method": own.method,
        "arm": UNTRAINED,
        "tokens": 0.0,
        "accuracy": _accuracy(evidence.answers, own, is_trained=False),
        **_numbers("gain", None),
        **_numbers("over", over),
        "p": np.nan,
        **_numbers("equal", None),
        "budget": np.nan,
    }


def _arm_row(evidence: Evidence, arm: Arm, own: Arm) -> dict[str, Any]:
    over = None
    equal = None
    if arm != own:
        over = gain_at_the_end(evidence, own, arm)
        if not write_as_much(evidence, own, arm):
            equal = gain_at_equal_tokens(evidence, own, arm)
    return {
        "method": arm.method,
        "arm": arm.name,
        "tokens": evidence.tokens(arm.label),
        "accuracy": _accuracy(evidence.answers, arm, is_trained=True),
        **_numbers("gain", gain_over_untrained(evidence, arm)),
        **_numbers("over", over),
        "p": np.nan if over is None else over.p,
        **_numbers("equal", equal),
        "budget": np.nan if equal is None else equal.budget,
    }


def _numbers(name: str, gain: Gain | None) -> dict[str, float]:
    if gain is None:
        gain = Gain(np.nan, np.nan, np.nan)
    return {name: gain.points, f"{name}_low": gain.low, f"{name}_high": gain.high}


def _accuracy(answers: pd.DataFrame, arm: Arm, is_trained: bool) -> float:
    is_arm = answers["method"] == arm.label
    at_stage = answers["trained"] == is_trained
    return 100 * float(answers[is_arm & at_stage]["correct"].mean())


def readable(arms: pd.DataFrame) -> pd.DataFrame:
    """Return the frame of `weigh` as a table shows it."""
    rows = []
    for row in arms.itertuples():
        gain = Gain(row.gain, row.gain_low, row.gain_high)
        over = Gain(row.over, row.over_low, row.over_high)
        equal = Gain(row.equal, row.equal_low, row.equal_high)
        is_untrained = row.arm == UNTRAINED
        cells = {
            "method": row.method,
            "what pays": CONTROLS.get(row.arm, row.arm),
            "tokens": "none" if is_untrained else f"{row.tokens:,.0f}",
            "test, %": f"{row.accuracy:.1f}",
            "gain over untrained, points": "" if is_untrained else gain.text,
            "the method over this arm, points": _shown(over.text, row.over),
            "p, corrected": _shown(f"{row.p_holm:.3f}", row.p_holm),
            "the same at equal tokens, points": _shown(equal.text, row.equal),
            "these tokens": _shown(f"{row.budget:,.0f}", row.budget),
        }
        rows.append(cells)
    return pd.DataFrame(rows)


def _shown(text: str, value: float) -> str:
    """Return the text of a value, "" without one."""
    return "" if np.isnan(value) else text


def seeds(runs: recorded.Runs, arms: Sequence[Arm]) -> str:
    """Say how many seeds the arms have: "1 seed each", or "3 to 5 seeds each"."""
    counts = [len(runs[arm.run]) for arm in arms]
    fewest = min(counts)
    most = max(counts)
    number = str(most) if fewest == most else f"{fewest} to {most}"
    unit = "seed" if most == 1 else "seeds"
    return f"{number} {unit} each"


def note(evidence: Evidence, arms: pd.DataFrame) -> str:
    """Return the note below the table."""
    questions = evidence.answers["question"].nunique()
    is_compared = arms["arm"].isin(list(CONTROLS))
    comparisons = is_compared.sum()
    unequal = arms["budget"].notna().sum()
    floors = arms["p_holm"].notna().sum()
    return (
        "Ours only: no paper prints this. All arms of a method take the same steps from the same "
        "backbones; tokens are those that its models write in training, averaged over seeds. An "
        f"oracle's words are no tokens. Test: the same {questions} questions for all arms, asked "
        "once and greedily, in the method's own form, at the end of training. Brackets: 95 % "
        "limits, uncorrected for the number of rows; without brackets there is one seed. P, "
        f"corrected: by Holm, over the {floors} comparisons with random, format or shuffled "
        "rewards. At equal tokens: where the tokens of the method and the arm differ by more than "
        f"a tenth of the larger number ({unequal} of {comparisons} comparisons), they are also "
        "compared on validation questions, at the fewest tokens that any run of the two writes, "
        "read off a straight line between two looks. These limits cover the backbones, and not the "
        "choice of validation questions."
    )


def draw(arms: pd.DataFrame) -> Figure:
    """Draw each arm's gain over the untrained model with its limits, a row per method."""
    methods = list(arms["method"].unique())
    fig, axes = plt.subplots(
        len(methods),
        1,
        figsize=(7.2, 1.6 * len(methods)),
        sharex=True,
        squeeze=False,
    )
    for ax, method in zip(axes[:, 0], methods, strict=True):
        trained = arms[(arms["method"] == method) & (arms["arm"] != UNTRAINED)]
        _draw_method(ax, method, trained)
    axes[-1, 0].set_xlabel("test questions: gain over the untrained model, points")
    fig.subplots_adjust(hspace=0.12)
    return fig


def _draw_method(ax: Axes, method: str, trained: pd.DataFrame) -> None:
    ax.axvline(0, color="0.3", linewidth=1)
    for place, row in enumerate(trained.itertuples()):
        colour, marker = LOOKS[row.arm]
        if not np.isnan(row.gain_low):
            limits = [row.gain_low, row.gain_high]
            ax.plot(limits, [place, place], color=colour, linewidth=2)
        ax.plot(row.gain, place, marker, color=colour, markersize=7)
    ax.set_yticks(range(len(trained)), list(trained["arm"]))
    ax.set_ylim(len(trained) - 0.5, -0.5)
    ax.grid(visible=False, axis="y")
    ax.set_ylabel(method, rotation=0, ha="right", va="center", weight="bold")
    ax.yaxis.set_label_coords(-0.22, 0.5)
