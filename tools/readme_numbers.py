"""Write the README's tables from results/readme.csv and benchmarks/*.json, so that no number is typed by hand.

`python -m tools.readme_numbers` rewrites the blocks between the marks and `--print` only shows them. With `--write` it
first takes results/readme.csv anew from results/quick, which another processor's `make reproduce` may have changed.
"""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
MAIN = {  # paper: folder of its main table, and which of its rows are the average over everything
    "MAE": ("mae_table1", {"benchmark": "Overall Avg."}),
    "SAGE": ("sage_table1", {"benchmark": "O Avg.", "backbone": "tiny"}),
    "SPICE": ("spice_table1", {"benchmark": "Overall"}),
    "CoMAS": ("comas_table1", {"benchmark": "Average", "setup": "Vanilla"}),
    "CoNL": ("conl_table2", {"benchmark": "Average"}),
}
HEADS = ["paper", "method", "seeds", "average, tiny world", "gain over untrained", "the paper's gain", "its sign"]
SNAPSHOT = Path("results") / "readme.csv"


def chosen(path: Path, wanted: dict[str, str]) -> pd.DataFrame:
    """The rows of a CSV that have these values, as far as it has these columns; only gains over the first row."""
    frame = pd.read_csv(path)
    for column, value in wanted.items():
        frame = frame[frame[column] == value] if column in frame else frame
    return frame[frame["over"] == frame["over"].iloc[0]] if "over" in frame else frame


def take(root: Path = ROOT) -> pd.DataFrame:
    """Accuracy and gain over the untrained backbone, beside the paper's gain, for all rows of the main tables."""
    rows = []
    for paper, (folder, wanted) in MAIN.items():
        here = root / "results" / "quick" / folder
        gains = chosen(here / "gains.csv", wanted).drop_duplicates("method").set_index("method")
        for row in chosen(here / "cells.csv", wanted).to_dict("records"):
            accuracy = f"{row['accuracy']:.1f} [{row['low']:.1f}, {row['high']:.1f}]"
            shown = ["", "", ""]
            if row["method"] in gains.index:
                gain = gains.loc[row["method"]]
                printed = "" if pd.isna(gain["paper delta"]) else f"{gain['paper delta']:+.1f}"
                verdict = gain["verdict"] if printed else "not printed"
                shown = [f"{gain['delta']:+.1f} [{gain['low']:+.1f}, {gain['high']:+.1f}]", printed, verdict]
            rows.append((paper, row["method"], str(row["seeds"]), accuracy, *shown))
    return pd.DataFrame(rows, columns=HEADS)


def numbers(root: Path = ROOT) -> str:
    """The numbers of the main tables as they were taken last."""
    frame = pd.read_csv(root / SNAPSHOT, dtype=str, keep_default_na=False)
    rule = ["---"] * len(frame.columns)
    return "\n".join(f"| {' | '.join(row)} |" for row in (frame.columns, rule, *frame.to_numpy()))


def loss(root: Path = ROOT) -> str:
    """The policy loss beside the public alternatives, as the benchmark prints it from its own file."""
    command = [sys.executable, "benchmarks/loss.py", "--table"]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.strip()


def step(root: Path = ROOT) -> str:
    """One MAE step by phase, and the sampler beside transformers."""
    found = json.loads((root / "benchmarks" / "step.json").read_text(encoding="utf-8"))
    lines = [
        f"One MAE step: {found['step']['play_s']:.2f} s to play, {found['step']['learn_s']:.2f} s to learn.",
        "",
        "| rows | ours, tokens/s | transformers | ratio |",
        "|---|---|---|---|",
    ]
    for row in found["sampling"]:
        lines.append(f"| {row['rows']} | {row['ours']:,.0f} | {row['transformers']:,.0f} | {row['ratio']:.2f} |")
    return "\n".join(lines)


def runs(root: Path = ROOT) -> str:
    """Whole runs of the quick preset on one core, by phase."""
    found = json.loads((root / "benchmarks" / "runs.json").read_text(encoding="utf-8"))["runs"]
    heads = (
        "method",
        "steps",
        "seconds",
        "every round",
        "of which playing",
        "learning",
        "validating",
        "test before and after",
        "other set-ups, conversations",
        "imports, loading, saving",
        "peak MiB",
        "held-out",
    )
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for run in found:
        spent = [run[name] for name in ("play", "learn", "evaluate", "held_out")] + [run["setups"] + run["examined"]]
        rounds = ", ".join(f"{seconds:.0f}" for seconds in run["rounds"])
        phases = " | ".join(f"{seconds:.0f}" for seconds in (*spent, run["seconds"] - sum(spent)))
        held_out = f"{run['before']} -> {run['after']}"
        whole = f"{run['method']} | {run['steps']:.0f} | {run['seconds']:.0f} | {rounds}"
        lines.append(f"| {whole} | {phases} | {run['peak_mib']:,.0f} | {held_out} |")
    return "\n".join(lines)


BLOCKS = {"numbers": numbers, "step": step, "runs": runs, "loss": loss}


def main() -> None:
    """Rewrite the README's blocks, or print them."""
    if "--write" in sys.argv:
        take().to_csv(ROOT / SNAPSHOT, index=False, lineterminator="\n")
    path = ROOT / "README.md"
    text = path.read_text(encoding="utf-8")
    for name, block in BLOCKS.items():
        if "--print" in sys.argv:
            print(block(), end="\n\n")
            continue
        head, rest = text.split(f"<!-- {name}: tools/readme_numbers.py -->")
        end = f"<!-- end of {name} -->"
        text = f"{head}<!-- {name}: tools/readme_numbers.py -->\n{block()}\n{end}{rest.split(end)[1]}"
    if "--print" not in sys.argv:
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
