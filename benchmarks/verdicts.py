"""How firm the ledger's verdicts are: the same claims, weighed again on a second backbone of the same recipe.

`python -m benchmarks.verdicts LEDGER` compares the ledger.csv that another backbone led to with the committed one and
writes verdicts.json beside this file; without a ledger it prints what was found. docs/reliability.md says how such a
ledger is made.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from reproduce.analysis.claims import corrected

COMMITTED = Path(__file__).resolve().parent.parent / "results/standard/claims/ledger.csv"
FOUND = Path(__file__).with_suffix(".json")
SIGNS = ("found", "opposite")
WEIGHED = (*SIGNS, "undecided", "other size", "idle")  # verdicts that rest on runs of several seeds
SHOWN = ("effect", "low", "high", "verdict")


def compare(first: pd.DataFrame, second: pd.DataFrame) -> list[dict[str, Any]]:
    """A row per claim that was weighed on both backbones; a claim that `second` lacks is left out of both."""
    first, second = (corrected(ledger[ledger["claim"].isin(second["claim"])]) for ledger in (first, second))
    both = first.merge(second[["claim", *SHOWN]], on="claim", suffixes=("", "_second"))
    both = both[both["verdict"].isin(WEIGHED) & both["verdict_second"].isin(WEIGHED)]
    return json.loads(
        both[["claim", "paper", "says", *SHOWN, *(f"{name}_second" for name in SHOWN)]].to_json(orient="records")
    )


def differences(rows: pd.DataFrame) -> pd.DataFrame:
    """What is different on the second backbone, claim by claim."""
    apart = (rows["low"] > rows["high_second"]) | (rows["low_second"] > rows["high"])
    clear = rows["verdict"].isin(SIGNS) & rows["verdict_second"].isin(SIGNS)
    another = rows["verdict"] != rows["verdict_second"]
    return pd.DataFrame(
        {
            "another verdict": another,
            "found on one, opposite on the other": clear & another,
            "another sign": rows["effect"] * rows["effect_second"] < 0,
            "intervals that do not meet": apart,
        }
    )


def written(row: pd.Series, end: str = "") -> str:
    """An effect with its interval, and the verdict."""
    limits = "" if pd.isna(row[f"low{end}"]) else f" [{row[f'low{end}']:+.3g}, {row[f'high{end}']:+.3g}]"
    return f"{row[f'effect{end}']:+.3g}{limits}: {row[f'verdict{end}']}"


def table(found: dict[str, Any]) -> str:
    """Counts by paper, then every claim whose verdict changed or whose intervals do not meet, as Markdown."""
    rows = pd.DataFrame(found["rows"])
    different = differences(rows)
    counts = different.groupby(rows["paper"], sort=False).sum()
    counts.insert(0, "claims", rows["paper"].value_counts())
    counts.loc["all"] = counts.sum()
    lines = [f"| paper | {' | '.join(counts.columns)} |", "|---" * (len(counts.columns) + 1) + "|"]
    lines += [f"| {paper} | {' | '.join(map(str, counts.loc[paper]))} |" for paper in counts.index]
    lines += ["", "| claim | the shipped backbone | the second one |", "|---|---|---|"]
    for _, row in rows[different.drop(columns="another sign").any(axis=1)].iterrows():
        lines.append(f"| {row['says']} ({row['paper']}) | {written(row)} | {written(row, '_second')} |")
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    """Compare, or print what was found."""
    if arguments:
        rows = compare(pd.read_csv(COMMITTED), pd.read_csv(arguments[0]))
        FOUND.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
    print(table(json.loads(FOUND.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main(sys.argv[1:])
