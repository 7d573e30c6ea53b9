"""A judge's dial to play with: its place on the committed curve, and a short run with it.

The notebook `judge_sliders` shows this. Loads a model only when it has to train one.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, get_args

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from coevolve.evaluation import scoring
from coevolve.rollout.scheduler import play
from coevolve.runs import record
from coevolve.training import config
from coevolve.training.controls.control import Control
from coevolve.training.controls.dial import LOWEST_ACCURACY, Dial, Errors
from coevolve.validation import check_choice
from reproduce.analysis import crossed_judges, judge_quality, tables
from reproduce.analysis.judge_figure import DASHES, LOOKS, OWN_JUDGE
from reproduce.analysis.judge_quality import OWN, SUBJECT_OF

ERRORS = get_args(Errors)
KEY = {subject.name: subject.name.lower() for subject in SUBJECT_OF.values()}
EPISODES = 8  # in which judgements are listened to
SHOWN = 3  # judgements
THE_QUESTION = "the question"  # what a judgement can be about


@dataclass(frozen=True)
class Choice:
    """A method, and the dial of the oracle that judges in it."""

    method: str  # as in a table: MAE
    accuracy: float
    errors: str

    def __post_init__(self) -> None:
        """Raise ValueError in one line for what the sliders do not have."""
        check_choice("method", self.method, SUBJECT_OF)
        check_choice("errors", self.errors, ERRORS)
        if not LOWEST_ACCURACY <= self.accuracy <= 1:
            raise ValueError(
                f"accuracy must be from {LOWEST_ACCURACY} to 1, got {self.accuracy}"
            )


# The committed curve.


def draw(folder: Path, choice: Choice) -> Figure | None:
    """Draw the curve of a method and its errors, with the chosen point.

    `folder` is that of the artefact judge_quality. Without its curve a line says so.
    """
    file = folder / "curve.csv"
    if not file.is_file():
        print(f"no curve yet: {file} is made by the artefact judge_quality")
        return None
    curve = pd.read_csv(file)
    curve = curve[curve["method"] == choice.method]
    line = curve[curve["errors"] == choice.errors]
    if line.empty:
        print(f"no runs of {choice.method} with errors {choice.errors!r}")
        return None
    return _draw_line(line, curve[curve["errors"] == OWN], choice)


def _draw_line(line: pd.DataFrame, own: pd.DataFrame, choice: Choice) -> Figure:
    look = LOOKS[choice.method]
    fig, ax = plt.subplots(figsize=(6.5, 4))
    asked = line["asked"]
    gain = line["over control"]
    ax.plot(asked, gain, DASHES[choice.errors], color=look.colour, marker=look.marker)
    ax.fill_between(
        asked,
        line["over control, low"],
        line["over control, high"],
        color=look.colour,
        alpha=0.15,
    )
    ax.plot(
        own["measured"],
        own["over control"],
        color=look.colour,
        marker=look.marker,
        label=f"{choice.method} with its own judge",
        **OWN_JUDGE,
    )
    ax.plot(
        choice.accuracy,
        np.interp(choice.accuracy, asked, gain),
        marker="*",
        markersize=20,
        color="black",
        linestyle="none",
        label="your choice",
    )
    ax.axhline(0, color="0.3", linewidth=1)
    ax.legend()
    ax.set(
        title=f"{choice.method}, errors: {choice.errors}",
        xlabel="accuracy of the judge",
        ylabel="gain over shuffled rewards, points",
    )
    return fig


# A short run.


def short_run(
    choice: Choice, preset: str, seed: int, items: int, out: str = ""
) -> config.Run:
    """Configure a run with the chosen judge, in a new folder unless `out` names one."""
    folder = out or tempfile.mkdtemp(prefix="judge_sliders-")
    name = KEY[choice.method]
    overrides: dict[str, Any] = {
        "control": "oracle",
        "oracle_accuracy": choice.accuracy,
        "oracle_errors": choice.errors,
        "eval_items": items,
        "strategies": ["vanilla"],
    }
    return config.build(name, preset, seed=seed, out=folder, overrides=overrides)


def summary(run: config.Run, choice: Choice) -> str:
    """Say what a finished run gained, and how often its judge was right."""
    scores = record.read(run.out, "scores")
    gain = tables.percent(*scoring.gain(scores), signed=True)
    metrics = record.read(run.out)
    subject = SUBJECT_OF[choice.method]
    accuracy = 100 * judge_quality.judge_accuracy(metrics, subject)
    return (
        f"gain, points: {gain} (95 % interval over the questions alone)\n"
        f"the judge was right: {accuracy:.1f} % (asked: {100 * choice.accuracy:.0f} %)"
    )


# What the judge said.


@dataclass(frozen=True)
class Judgement:
    """A word of the dialled oracle, and what it really knows (None: nothing is right or wrong)."""

    question: str
    judged: str  # what the word is about
    word: bool
    truth: bool | None


@dataclass(frozen=True)
class Witness(Dial):
    """A dial that remembers what it said."""

    heard: list[Judgement] = field(default_factory=list)

    def answer_is_correct(
        self, question: str, answer: str | None, key: tuple[int, ...]
    ) -> bool:
        """Say whether an answer is correct, and remember it."""
        word = super().answer_is_correct(question, answer, key)
        truth = self.world.is_correct(question, answer)
        judged = "no answer" if answer is None else f"the answer {answer}"
        self.heard.append(Judgement(question, judged, word, truth))
        return word

    def question_is_well_formed(self, question: str, key: tuple[int, ...]) -> bool:
        """Say whether a question is well formed, and remember it."""
        word = super().question_is_well_formed(question, key)
        truth = self.world.valid(question)
        self.heard.append(Judgement(question, THE_QUESTION, word, truth))
        return word

    def plan_fits(self, question: str, plan: str, key: tuple[int, ...]) -> bool:
        """Say whether a plan suits a question, and remember it."""
        word = super().plan_fits(question, plan, key)
        truth = self.world.fits(question, plan)
        self.heard.append(Judgement(question, f"the plan {plan}", word, truth))
        return word


def listen(run: config.Run) -> list[Judgement]:
    """Play a few more episodes with the trained policies; return what their judge said."""
    method = run.method
    untrained, _ = config.assign_models(method, run.model)
    models = crossed_judges.trained_models(run.out, untrained)
    engine = crossed_judges.load_engine(run, models)
    witness = Witness(method.world, run.oracle_accuracy, run.oracle_errors, run.seed)
    control = Control("oracle", method, witness, run.seed)
    episodes = [method.observed(Random(f"listen {i}")) for i in range(EPISODES)]
    step = run.steps + 1
    outcomes = play(episodes, control.engine(engine), (run.seed, step))
    control.pay(step, outcomes)  # where TTRL's rewards are judged
    return witness.heard


def chosen(heard: Sequence[Judgement]) -> list[Judgement]:
    """Return a few judgements of which the truth is known, a false one among them if there is any.

    The others come in the order in which they were heard, each thing that was judged once, and
    answers and plans before questions.
    """
    known = [one for one in heard if one.truth is not None]
    known.sort(key=lambda one: one.judged == THE_QUESTION)
    distinct = {(one.question, one.judged): one for one in reversed(known)}
    in_order = list(reversed(distinct.values()))
    false = [one for one in in_order if one.word != one.truth]
    true = [one for one in in_order if one.word == one.truth]
    return (false[:1] + true + false[1:])[:SHOWN]


def judgement_table(heard: Sequence[Judgement]) -> pd.DataFrame:
    """Return the chosen ones of some judgements in words, a row each."""
    rows = []
    for one in chosen(heard):
        row = {
            "question": one.question,
            "judged": one.judged,
            "the judge says": "right" if one.word else "wrong",
            "the oracle knows": "right" if one.truth else "wrong",
        }
        rows.append(row)
    return pd.DataFrame(rows)


# The sliders.


def panel(
    start: Choice,
    show: Callable[[Choice], None],
    train: Callable[[Choice], None],
) -> Any:
    """Return sliders and a button: each change shows the choice, and the button trains with it.

    Without ipywidgets, a line says so, the two happen at once for `start`, and there is no panel.
    """
    try:
        import ipywidgets
    except ImportError:
        print("ipywidgets is not installed: the choice is that of the first cell")
        show(start)
        train(start)
        return None
    method = ipywidgets.SelectionSlider(
        options=list(SUBJECT_OF), value=start.method, description="method"
    )
    accuracy = ipywidgets.FloatSlider(
        value=start.accuracy,
        min=LOWEST_ACCURACY,
        max=1.0,
        step=0.05,
        description="accuracy",
    )
    errors = ipywidgets.ToggleButtons(
        options=list(ERRORS), value=start.errors, description="errors"
    )
    button = ipywidgets.Button(description="train a short run")
    curve = ipywidgets.Output()
    trained = ipywidgets.Output()

    def choice() -> Choice:
        return Choice(method.value, accuracy.value, errors.value)

    def on_change(_: Any) -> None:
        curve.clear_output(wait=True)
        with curve:
            show(choice())

    def on_click(_: Any) -> None:
        trained.clear_output(wait=True)
        with trained:
            train(choice())

    for slider in (method, accuracy, errors):
        slider.observe(on_change, names="value")
    button.on_click(on_click)
    on_change(None)
    return ipywidgets.VBox([method, accuracy, errors, curve, button, trained])
