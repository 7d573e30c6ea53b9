"""The numbers in docs/controls.md: what each method gains over its control arms."""

from pathlib import Path

import pandas as pd

from reproduce.analysis.controls import CONTROLS, OWN
from tools.markdown_tables import markdown, points

ARMS = Path("results") / "standard" / "controls" / "arms.csv"
GAIN = "gain"  # over the untrained model
OVER = "over"  # of the method, over an arm


def controls(root: Path) -> str:
    """Return what all arms gain over the untrained model, and each method over its controls."""
    arms = pd.read_csv(root / ARMS)
    gains = across(arms, GAIN, [*CONTROLS, OWN])
    over = across(arms, OVER, list(CONTROLS))
    return "\n".join(
        [
            "Gain over the untrained model, in points of the test questions:",
            "",
            gains,
            "",
            "Gain of the method over each arm:",
            "",
            over,
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
    """Return a gain with its interval, and where it was measured if not on the test questions."""
    gain = points(
        arm[name],
        arm[f"{name}_low"],
        arm[f"{name}_high"],
    )
    is_elsewhere = name == OVER and not arm["place"].startswith("test")
    return f"{gain} ({arm['place']})" if is_elsewhere else gain
