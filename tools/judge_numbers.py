"""The numbers in docs/judge-quality.md: how good a judge must be, by the committed results."""

from pathlib import Path

import pandas as pd

from reproduce.analysis import judge_figure, judge_quality
from tools.markdown_tables import markdown, points

SHOWN_OF_DIAL = (0.5, 0.6, 0.8, 1.0)  # accuracies of a judge


def judge(root: Path) -> str:
    """Return how good a judge must be by the committed runs, and where two other judges stand."""
    sentences = []
    for mark in (judge_figure.smollm2_judge(), judge_figure.comas_judge()):
        numbers = {f"{100 * mark.low:.1f}", f"{100 * mark.high:.1f}"}
        sentences.append(f"{mark.label}: right in {' to '.join(sorted(numbers))} %.")
    folder = root / "results" / "standard" / "judge_quality"
    crossing = folder / "crossing.csv"
    if not crossing.is_file():
        sentences.append("*The runs of the dial are not made yet.*")
        return "\n".join(sentences)
    starts = pd.read_csv(crossing, dtype=str, keep_default_na=False)
    effects = pd.read_csv(folder / "curve.csv")
    parts = [*sentences, "", _dialled(starts, effects), "", _own_judges(effects)]
    return "\n".join(parts)


def _over_shuffled(row: pd.Series) -> str:
    """Return a gain over shuffled rewards with its interval."""
    names = ("over control", "over control, low", "over control, high")
    return points(*(row[name] for name in names))


def _dialled(starts: pd.DataFrame, effects: pd.DataFrame) -> str:
    """Return where the gain of each method and kind of errors begins, and some points of it."""
    rows = []
    for start in starts.to_dict("records"):
        is_line = (effects["method"] == start["method"]) & (
            effects["errors"] == start["errors"]
        )
        line_of_gains = effects[is_line].set_index("asked")
        cells = [
            start["method"],
            start["errors"],
            f"{start['accuracy']} [{start['low']}, {start['high']}]",
        ]
        for asked in SHOWN_OF_DIAL:
            cells.append(_over_shuffled(line_of_gains.loc[asked]))
        rows.append(cells)
    at = [f"gain at {asked}" for asked in SHOWN_OF_DIAL]
    return markdown(("method", "errors", "positive from", *at), rows)


def _own_judges(effects: pd.DataFrame) -> str:
    """Return how often each method's own judge is right, and what the method gains with it."""
    own = effects[effects["errors"] == judge_quality.OWN]
    rows = []
    for _, row in own.iterrows():
        rows.append([row["method"], f"{row['measured']:.3f}", _over_shuffled(row)])
    return markdown(("method", "own judge's accuracy", "gain with it"), rows)
