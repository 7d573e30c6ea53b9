"""Write the README's table of numbers from results/quick, so that no number in it is typed by hand.

`python tools/readme_numbers.py` rewrites the block between the two marks; `--print` only shows it.
"""

import sys
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
START, END = "<!-- numbers: tools/readme_numbers.py -->", "<!-- end of numbers -->"


def numbers(root: Path = ROOT) -> str:
    """The block as Markdown: accuracy and gain over the untrained backbone, beside the paper's gain."""
    folder = root / "results" / "quick" / "mae_table1"
    cells, gains = pd.read_csv(folder / "cells.csv"), pd.read_csv(folder / "gains.csv")
    overall = cells[cells["benchmark"] == "Overall Avg."].set_index("method")
    lines = ["| method | seeds | overall, tiny world | gain over Base | the paper's gain | sign of the paper's gain |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    for method, row in overall.iterrows():
        accuracy = f"{row['accuracy']:.1f} [{row['low']:.1f}, {row['high']:.1f}]"
        gain = gains[(gains["method"] == method) & (gains["benchmark"] == "Overall Avg.")]
        if gain.empty:
            lines.append(f"| {method} | {row['seeds']} | {accuracy} | | | |")
            continue
        g = gain.iloc[0]
        ours = f"{g['delta']:+.1f} [{g['low']:+.1f}, {g['high']:+.1f}]"
        lines.append(f"| {method} | {row['seeds']} | {accuracy} | {ours} | {g['paper delta']:+.1f} | {g['verdict']} |")
    return "\n".join(lines)


def main() -> None:
    """Rewrite the README's block, or print it."""
    if "--print" in sys.argv:
        print(numbers())
        return
    path = ROOT / "README.md"
    text = path.read_text(encoding="utf-8")
    head, rest = text.split(START)
    path.write_text(f"{head}{START}\n{numbers()}\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
