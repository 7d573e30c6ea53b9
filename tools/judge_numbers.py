"""The numbers in docs/judge-quality.md: how good a judge must be, by the committed results."""

from pathlib import Path

import pandas as pd

from reproduce.analysis import judge_figure, judge_quality
from reproduce.analysis.judge_figure import Mark
from tools.markdown_tables import markdown, points

ARTEFACT = Path("results") / "standard" / "judge_quality"
SHOWN_OF_DIAL = (0.5, 0.6, 0.8, 1.0)  # accuracies of a judge
OVER_CONTROL = "over control"
NO_RUNS = "*The runs of the dial are not made yet.*"


def judge(root: Path) -> str:
    """Return how good a judge must be by the committed runs, and where two other judges stand."""
    lines = [
        stands(judge_figure.smollm2_judge()),
        stands(judge_figure.comas_judge()),
    ]
    folder = root / ARTEFACT
    crossing = folder / "crossing.csv"
    if not crossing.is_file():
        lines.append(NO_RUNS)
        return "\n".join(lines)
    starts = pd.read_csv(crossing, dtype=str, keep_default_na=False)
    effects = pd.read_csv(folder / "curve.csv")
    kinds = pd.read_csv(folder / "against_random.csv")
    lines += ["", dialled(starts, effects)]
    lines += ["", against_random(kinds)]
    lines += ["", own_judges(effects)]
    return "\n".join(lines)


def stands(mark: Mark) -> str:
    """Return how often a judge outside of the runs is right."""
    low = f"{100 * mark.low:.1f}"
    high = f"{100 * mark.high:.1f}"
    accuracy = low if low == high else f"{low} to {high}"
    return f"{mark.label}: right in {accuracy} %."


def dialled(starts: pd.DataFrame, effects: pd.DataFrame) -> str:
    """Return where the gain of each method and kind of errors begins, and some points of it."""
    head = ["method", "errors", "positive from"]
    for asked in SHOWN_OF_DIAL:
        head.append(f"gain at {asked}")
    of_line = effects.set_index(["method", "errors", "asked"])
    rows = []
    for start in starts.to_dict("records"):
        method = start["method"]
        errors = start["errors"]
        low = start["low"]
        high = start["high"]
        row = [
            method,
            errors,
            f"{start['accuracy']} [{low}, {high}]",
        ]
        for asked in SHOWN_OF_DIAL:
            arm = of_line.loc[(method, errors, asked)]
            row.append(over_shuffled(arm))
        rows.append(row)
    return markdown(head, rows)


def against_random(kinds: pd.DataFrame) -> str:
    """Return what other kinds of errors leave more than random ones, in points."""
    head = ["method", "errors", "more than with random errors"]
    rows = []
    for _, kind in kinds.iterrows():
        difference = points(
            kind["difference"],
            kind["difference, low"],
            kind["difference, high"],
        )
        rows.append([kind["method"], kind["errors"], difference])
    return markdown(head, rows)


def own_judges(effects: pd.DataFrame) -> str:
    """Return how often each method's own judge is right, and what the method gains with it."""
    head = ["method", "own judge's accuracy", "gain with it"]
    is_own = effects["errors"] == judge_quality.OWN
    rows = []
    for _, arm in effects[is_own].iterrows():
        row = [
            arm["method"],
            f"{arm['measured']:.3f}",
            over_shuffled(arm),
        ]
        rows.append(row)
    return markdown(head, rows)


def over_shuffled(arm: pd.Series) -> str:
    """Return a gain over shuffled rewards with its interval."""
    return points(
        arm[OVER_CONTROL],
        arm[f"{OVER_CONTROL}, low"],
        arm[f"{OVER_CONTROL}, high"],
    )
