"""How good must a judge be before self-play helps?

An oracle whose word is right with a chosen probability takes the place of a method's judge. What
counts is the gain over the same method with its rewards dealt out at random, the control. Gains are
paired by backbone: both sides start from the same weights and answer the same questions.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy

from reproduce.analysis import crossed, stats, tables
from reproduce.analysis.evidence import TOKENS, Evidence

# A run of the grids in reproduce/extra/judge.toml: judge_METHOD-ERRORS-ACCURACY.
RUN_OF_GRID = re.compile(r"judge_(\w+)-(random|question|level)-(\d)_(\d+)")
RANDOM = "random"
OWN = "its own judge"
SHUFFLED = "rewards dealt out at random"
AT_ONCE = -np.inf
NEVER = np.inf
WORDS = {AT_ONCE: "at once", NEVER: "never"}
ARM = ["method", "errors", "asked"]
AGAINST_RANDOM = [
    "method",
    "errors",
    "accuracies",
    "difference",
    "difference, low",
    "difference, high",
    "units",
]


@dataclass(frozen=True)
class Subject:
    """A method, its runs without an oracle, and the metrics that say how often its judge is right.

    The accuracy of the judge is the sum of the metrics `correct` over that of `total`; without
    `total`, each of the first is a share already, and they are averaged.
    """

    name: str
    own: str  # the run in which its own judge decides
    shuffled: str  # the control
    correct: tuple[str, ...]
    total: tuple[str, ...] = ()


CONFUSION = ("tp", "tn", "fp", "fn")
SUBJECTS = (
    Subject("MAE", "mae_half", "mae_shuffled", ("judge_answer_correct",)),
    Subject(
        "SAGE",
        "sage",
        "sage_shuffled",
        ("critic_question_correct", "critic_plan_correct"),
    ),
    Subject("CoMAS", "comas", "comas_shuffled", ("tp", "tn"), CONFUSION),
    Subject("CoNL", "conl", "conl_shuffled", ("ranking_correct",)),
    Subject("TTRL", "ttrl", "ttrl_shuffled", ("reward_correct",)),
)
SUBJECT_OF = {subject.name: subject for subject in SUBJECTS}


@dataclass(frozen=True)
class Arm:
    """What a run stands for: a method and who judges in it.

    `errors` are those of the oracle, or OWN, or SHUFFLED; `asked` is the oracle's accuracy.
    """

    method: str
    errors: str
    asked: float = np.nan


def arm_of(run: str) -> Arm:
    """Return what a run stands for by its name; ValueError for one of another kind."""
    for subject in SUBJECTS:
        if run == subject.own:
            return Arm(subject.name, OWN)
        if run == subject.shuffled:
            return Arm(subject.name, SHUFFLED)
    found = RUN_OF_GRID.fullmatch(run)
    names = {subject.name.lower(): subject.name for subject in SUBJECTS}
    if found is None or found[1] not in names:
        raise ValueError(
            f"run must be judge_METHOD-ERRORS-ACCURACY, a method or its control, got {run!r}"
        )
    asked = float(f"{found[3]}.{found[4]}")
    return Arm(names[found[1]], found[2], asked)


# Reading.


@dataclass(frozen=True)
class Study:
    """What the runs recorded.

    `runs` has a row per run and seed: method, errors, asked, unit, measured (accuracy of the judge
    or nan) and tokens. `answers` has a row per run, seed and test question: method, errors, asked,
    unit, item, before and after (whether the answer was correct, 0 or 1).
    """

    runs: pd.DataFrame
    answers: pd.DataFrame

    @property
    def methods(self) -> list[str]:
        """The methods, in the order of SUBJECTS."""
        present = set(self.runs["method"])
        return [name for name in SUBJECT_OF if name in present]


def step_columns() -> list[str]:
    """Return the metrics of training steps that `read` needs, for `records.pack`."""
    columns = [TOKENS]
    for subject in SUBJECTS:
        columns += [*subject.correct, *subject.total]
    return list(dict.fromkeys(columns))


def read(evidence: Evidence) -> Study:
    """Read runs of the grids, of the methods and of their controls.

    The unit of replication is the backbone; where all runs share one, it is the seed.
    """
    rows = []
    frames = []
    for run in evidence.runs:
        arm = arm_of(run)
        frames.append(_answers(evidence, run).assign(**vars(arm)))
        for key, steps in evidence.step_metrics(run).groupby(["seed", "model"]):
            seed, model = key
            row = {
                **vars(arm),
                "seed": seed,
                "model": model,
                "measured": judge_accuracy(steps, SUBJECT_OF[arm.method]),
                "tokens": steps[TOKENS].sum(),
            }
            rows.append(row)
    runs = pd.DataFrame(rows)
    answers = pd.concat(frames, ignore_index=True)
    if runs["model"].nunique() == 1:
        return Study(_with_seed_as_unit(runs), _with_seed_as_unit(answers))
    named = {"model": "unit"}
    return Study(runs.rename(columns=named), answers.rename(columns=named))


def _with_seed_as_unit(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(unit="seed " + frame["seed"].astype(str))


def _answers(evidence: Evidence, run: str) -> pd.DataFrame:
    """Return whether each greedy test answer was correct before and after training."""
    keys = ["seed", "model", "item"]
    after = evidence.answers(run, stage="after")[[*keys, "correct"]]
    before = evidence.answers(run, stage="before")[[*keys, "correct"]]
    both = before.merge(after, on=keys, suffixes=("_before", "_after"))
    return both.rename(columns={"correct_before": "before", "correct_after": "after"})


def judge_accuracy(metrics: pd.DataFrame, subject: Subject) -> float:
    """Return how often the judge was right over all steps, 0 to 1; nan where nothing says it."""
    steps = metrics[metrics["step"] > 0]
    correct = steps.reindex(columns=list(subject.correct))
    if not subject.total:
        return float(correct.mean().mean())
    total = steps.reindex(columns=list(subject.total)).sum().sum()
    return float(correct.sum().sum() / total) if total > 0 else np.nan


# Gains.


def accuracy_UI(study: Study, arm: Arm, stage: str = "after") -> pd.DataFrame:
    """Return the accuracy of an arm in percent, by unit and test question.

    The seeds of one unit are averaged. Empty if there is no such run.
    """
    answers = study.answers
    is_arm = (answers["method"] == arm.method) & (answers["errors"] == arm.errors)
    if not np.isnan(arm.asked):
        is_arm &= answers["asked"] == arm.asked
    by_unit = answers[is_arm].groupby(["unit", "item"])[stage].mean()
    return 100 * by_unit.unstack("item")


def gain_UI(study: Study, arm: Arm, over: str) -> pd.DataFrame:
    """Return an arm's gain in points, by unit and test question, over "untrained" or "control".

    Raises ValueError unless both sides have a unit and all questions in common.
    """
    after = accuracy_UI(study, arm)
    if over == "untrained":
        return after - accuracy_UI(study, arm, "before")
    control = accuracy_UI(study, Arm(arm.method, SHUFFLED))
    gain = (after - control).dropna(how="all")
    if gain.empty or gain.isna().any(axis=None):
        raise ValueError(
            f"{arm.method} with {arm.errors} and its control must share backbones and questions"
        )
    return gain


def effect(gain: pd.DataFrame) -> stats.Effect:
    """Return the mean of `gain_UI`; its limits cover units and questions, nan for one unit."""
    return crossed.difference(crossed.side([gain.to_numpy()], units=gain.index))


def effects(study: Study) -> pd.DataFrame:
    """Return the gains of every arm, a row each, as numbers.

    Columns: method, errors, asked and measured (accuracy of the judge, 0 to 1), tokens (mean of a
    run), units; gain over the untrained backbone and over the control (points, with low and high).
    """
    rows = []
    by_arm = study.runs.groupby(ARM, dropna=False, sort=False)
    for key, runs in by_arm:
        arm = Arm(*key)
        row = {
            **vars(arm),
            "measured": runs["measured"].mean(),
            "tokens": runs["tokens"].mean(),
            "units": runs["unit"].nunique(),
            **_limits("gain", effect(gain_UI(study, arm, "untrained"))),
        }
        if arm.errors != SHUFFLED:
            over_control = effect(gain_UI(study, arm, "control"))
            row |= _limits("over control", over_control)
        rows.append(row)
    return _in_order(pd.DataFrame(rows))


def _limits(name: str, effect: stats.Effect) -> dict[str, float]:
    low, high = effect.limits
    return {name: effect.delta, f"{name}, low": low, f"{name}, high": high}


def _in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Sort by method, errors (the oracle's, its own, the control's) and accuracy."""
    errors = ["random", "question", "level", OWN, SHUFFLED]
    ranks = {
        "method": {name: rank for rank, name in enumerate(SUBJECT_OF)},
        "errors": {name: rank for rank, name in enumerate(errors)},
    }

    def rank(column: pd.Series) -> pd.Series:
        return column.map(ranks[column.name]) if column.name in ranks else column

    return frame.sort_values(ARM, key=rank, ignore_index=True)


def against_random(study: Study) -> pd.DataFrame:
    """Return how many points more than random errors other kinds of errors leave, a row each.

    Columns: those of AGAINST_RANDOM. The difference of test accuracies is averaged over the judge's
    accuracies below 1 that both kinds have, and `accuracies` says how many these are. A kind of
    errors without an accuracy in common with random ones has no row.
    """
    rows = []
    oracles = study.runs.dropna(subset=["asked"])
    for (method, errors), runs in oracles.groupby(["method", "errors"], sort=False):
        of_method = oracles[oracles["method"] == method]
        random = of_method[of_method["errors"] == RANDOM]
        both = set(runs["asked"]).intersection(random["asked"])
        shared = sorted(accuracy for accuracy in both if accuracy < 1)
        if errors == RANDOM or not shared:
            continue
        differences = [_over_random(study, method, errors, asked) for asked in shared]
        mean_UI = sum(differences[1:], differences[0]) / len(shared)
        row = {
            "method": method,
            "errors": errors,
            "asked": np.nan,
            "accuracies": len(shared),
            **_limits("difference", effect(mean_UI)),
            "units": len(mean_UI),
        }
        rows.append(row)
    table = pd.DataFrame(rows, columns=["asked", *AGAINST_RANDOM])
    return _in_order(table).drop(columns="asked")


def _over_random(study: Study, method: str, errors: str, asked: float) -> pd.DataFrame:
    """Return how many points more than random errors these leave, by unit and question."""
    others_UI = accuracy_UI(study, Arm(method, errors, asked))
    return others_UI - accuracy_UI(study, Arm(method, RANDOM, asked))


# Crossings.


def crossing(accuracies: Sequence[float], gains: Sequence[float]) -> float:
    """Return the accuracy at which a gain becomes positive, on straight lines between the points.

    Noise alone can make a gain fall with a better judge. So the gains are first replaced by the
    nearest ones, in squares, that never fall. AT_ONCE if all of them are positive, NEVER if none.
    """
    rising = scipy.optimize.isotonic_regression(gains).x
    is_positive = rising > 0
    if is_positive.all():
        return AT_ONCE
    if not is_positive.any():
        return NEVER
    first = int(np.argmax(is_positive))
    around = slice(first - 1, first + 1)
    return float(np.interp(0, rising[around], accuracies[around]))


@dataclass(frozen=True)
class Median:
    """A median, limits without an assumption about the distribution, and their confidence."""

    value: float
    low: float
    high: float
    confidence: float


def median(values: Sequence[float]) -> Median:
    """Return the median of some units with the narrowest limits that reach the house's level.

    The limits are two of the values, so that values may be infinite. The true median is outside of
    the lowest and the highest of n with probability 2 (1/2)^n: five units reach 94 %, not 95 %. Of
    two values in the middle the higher counts.
    """
    ordered = np.sort(values)
    count = len(ordered)
    left_out = 0  # values below the lower limit, and above the upper one
    while left_out + 1 < count / 2 and _coverage(count, left_out + 1) >= stats.LEVEL:
        left_out += 1
    return Median(
        value=float(ordered[count // 2]),
        low=float(ordered[left_out]),
        high=float(ordered[count - 1 - left_out]),
        confidence=_coverage(count, left_out),
    )


def _coverage(count: int, left_out: int) -> float:
    """Return how likely the median is within the limits that leave out as many on each side."""
    return float(1 - 2 * scipy.stats.binom.cdf(left_out, count, 0.5))


def crossings(study: Study) -> pd.DataFrame:
    """Return where the gain over the control becomes positive, a row per method and errors.

    Columns: method, errors, accuracy (the median of the units, or a word), low, high, confidence
    of these limits (%), units, each (the units' own). One unit has no limits.
    """
    rows = []
    oracles = study.runs.dropna(subset=["asked"])
    for (method, errors), runs in oracles.groupby(["method", "errors"], sort=False):
        asked = sorted(runs["asked"].unique())
        gain_of = {}
        for accuracy in asked:
            gain = gain_UI(study, Arm(method, errors, accuracy), "control")
            gain_of[accuracy] = gain.mean(axis=1)
        gain_UA = pd.DataFrame(gain_of).dropna()
        each = [crossing(asked, gains) for gains in gain_UA.to_numpy()]
        middle = median(each)
        row = {
            "method": method,
            "errors": errors,
            "asked": np.nan,
            "accuracy": as_text(middle.value),
            "low": as_text(middle.low),
            "high": as_text(middle.high),
            "confidence, %": round(100 * middle.confidence, 1),
            "units": len(each),
            "each": ", ".join(map(as_text, each)),
        }
        if len(each) == 1:
            row |= {"low": "", "high": "", "confidence, %": np.nan}
        rows.append(row)
    return _in_order(pd.DataFrame(rows)).drop(columns="asked")


def as_text(accuracy: float) -> str:
    """Format a crossing: an accuracy from 0 to 1, "at once" or "never"."""
    return WORDS.get(accuracy, f"{accuracy:.3f}")


# The table.


def main_table(effects: pd.DataFrame) -> pd.DataFrame:
    """Return the table, a row per method and judge, with limits in words."""
    rows = []
    for row in effects.to_dict("records"):
        line = {
            "method": row["method"],
            "errors": row["errors"],
            "accuracy asked, %": _percent(row["asked"]),
            "accuracy measured, %": _percent(row["measured"], digits=1),
            "gain over untrained, points": _with_limits(row, "gain"),
            "gain over control, points": _with_limits(row, "over control"),
            "tokens a run": f"{row['tokens']:,.0f}",
        }
        rows.append(line)
    return pd.DataFrame(rows)


def _percent(share: float, digits: int = 0) -> str:
    return "" if np.isnan(share) else f"{100 * share:.{digits}f}"


def _with_limits(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name, np.nan)
    if np.isnan(value):
        return ""
    limits = row[f"{name}, low"], row[f"{name}, high"]
    return tables.percent(value, *limits, signed=True)


def note(study: Study) -> str:
    """Return the note below the table."""
    units = study.runs["unit"]
    count = units.nunique()
    if units.str.startswith("seed").all():
        unit = "seeds"
        number = f"{count} of one backbone"
    else:
        unit = "backbones"
        number = f"{count}, each the mean of its seeds"
    return (
        "Ours only: no paper prints this (tiny world). The oracle's word is right as often as "
        "asked; its errors are random, always about the same questions, or more frequent on hard "
        "levels. Measured: against the exact oracle, on what each method judges (MAE: answers; "
        "SAGE: questions and plans; CoMAS: solutions; CoNL: pairs of solutions; TTRL: readable "
        "answers). Gains are in points of greedy test accuracy, over the same backbone before "
        "training, and over the control: the same method whose rewards are dealt out at random "
        f"within each role. Number of {unit}: {number}. The 95 % limits cover {unit} and "
        "questions, and a single one has none. Nothing is corrected for the number of rows. "
        "Tokens: all that the method's own models write; the oracle writes none."
    )
