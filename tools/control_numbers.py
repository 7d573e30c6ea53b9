"""The numbers in docs/controls.md: what each method gains over its control arms."""

from pathlib import Path

import pandas as pd

from reproduce.analysis.controls import CONTROLS, OWN
from tools.markdown_tables import markdown, points

ARMS = Path("results") / "standard" / "controls" / "arms.csv"
GAIN = "gain"  # over the untrained model
OVER = "over"  # of the method over an arm, at the end of training
EQUAL = "equal"  # of the method over an arm, at equal tokens
LEVEL = 0.05


def controls(root: Path) -> str:
    """Return what all arms gain over the untrained model, and each method over its controls."""
    arms = pd.read_csv(root / ARMS)
    return "\n".join(
        [
            "Gain over the untrained model, in points of the test questions:",
            "",
            across(arms, GAIN, [*CONTROLS, OWN]),
            "",
            "Gain of the method over each arm, on the same questions:",
            "",
            across(arms, OVER, list(CONTROLS)),
            "",
            significant(arms),
            "",
            "Gain over the arms that write fewer or more tokens, on validation questions at equal "
            "tokens:",
            "",
            at_equal_tokens(arms),
        ]
    )


def across(arms: pd.DataFrame, name: str, columns: list[str]) -> str:
    """Return a table with a row per method and a column per arm."""
    of_arm = arms.set_index(["method", "arm"])
    rows = []
    for method in arms["method"].unique():
        row = [method]
        for column in columns:
            arm = of_arm.loc[(method, column)]
            row.append(gain_text(arm, name))
        rows.append(row)
    return markdown(["method", *columns], rows)


def gain_text(arm: pd.Series, name: str) -> str:
    """Return a gain with its interval."""
    return points(arm[name], arm[f"{name}_low"], arm[f"{name}_high"])


def significant(arms: pd.DataFrame) -> str:
    """Say which comparisons with a floor are significant after the correction for their number."""
    floors = arms.dropna(subset=["p_holm"])
    passed = floors[floors["p_holm"] <= LEVEL]
    names = [f"{row.method} over {row.arm}" for row in passed.itertuples()]
    which = f" ({', '.join(names)})" if names else ""
    return (
        f"Of the {len(floors)} comparisons with a floor, {len(passed)} are significant after "
        f"Holm's correction for their number{which}."
    )


def at_equal_tokens(arms: pd.DataFrame) -> str:
    """Return a table with a row per comparison at equal tokens."""
    rows = []
    for _, arm in arms.dropna(subset=["budget"]).iterrows():
        row = [
            arm["method"],
            arm["arm"],
            f"{arm['budget']:,.0f}",
            gain_text(arm, EQUAL),
        ]
        rows.append(row)
    return markdown(["method", "arm", "tokens", "gain of the method"], rows)
