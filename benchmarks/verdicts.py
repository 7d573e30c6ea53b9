"""Robustness of the ledger's verdicts: the same claims on a second backbone of the same recipe.

`python -m benchmarks.verdicts LEDGER` compares the ledger.csv of another backbone with the
committed one and writes verdicts.json beside this file; without a ledger it prints that file.
docs/reliability.md says how to make such a ledger.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from reproduce.analysis import verdicts
from reproduce.analysis.verdicts import corrected

ROOT = Path(__file__).resolve().parent.parent
COMMITTED = ROOT / "results/standard/claims/ledger.csv"
RESULT = Path(__file__).with_suffix(".json")
SIGNS = (verdicts.FOUND, verdicts.OPPOSITE)
# Verdicts that rest on runs of several seeds.
WEIGHED = (
    *SIGNS,
    verdicts.NO_EFFECT,
    verdicts.SMALLER,
    verdicts.OTHER_SIZE,
    verdicts.UNDECIDED,
    verdicts.IDLE,
)
SHOWN = ("effect", "low", "high", "verdict")


def compare(first: pd.DataFrame, second: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a row for each claim with a verdict on both backbones."""
    first = corrected(first[first.claim.isin(second.claim)])
    second = corrected(second)
    second = second[["claim", *SHOWN]]
    both = first.merge(second, on="claim", suffixes=("", "_second"))
    both = both[both.verdict.isin(WEIGHED)]
    both = both[both.verdict_second.isin(WEIGHED)]
    columns = [
        "claim",
        "paper",
        "says",
        *SHOWN,
    ]
    columns += [f"{name}_second" for name in SHOWN]
    return json.loads(both[columns].to_json(orient="records"))


def differences(rows: pd.DataFrame) -> pd.DataFrame:
    """Return what differs on the second backbone, claim by claim."""
    first = rows.verdict
    second = rows.verdict_second
    changed = first != second
    both_have_signs = first.isin(SIGNS) & second.isin(SIGNS)
    above = rows.low > rows.high_second
    below = rows.low_second > rows.high
    return pd.DataFrame(
        {
            "another verdict": changed,
            "found on one, opposite on the other": both_have_signs & changed,
            "another sign": rows.effect * rows.effect_second < 0,
            "intervals that do not meet": above | below,
        }
    )


def written(effect: float, low: float, high: float, verdict: str) -> str:
    """Return an effect with its interval, and the verdict."""
    if pd.isna(low):
        return f"{effect:+.3g}: {verdict}"
    return f"{effect:+.3g} [{low:+.3g}, {high:+.3g}]: {verdict}"


def counts_by_paper(rows: pd.DataFrame, different: pd.DataFrame) -> pd.DataFrame:
    """Return how many claims each paper has, how many differ in which way, and the totals."""
    counts = different.groupby(rows.paper, sort=False).sum()
    counts.insert(0, "claims", rows.paper.value_counts())
    counts.loc["all"] = counts.sum()
    return counts


def table(result: dict[str, Any]) -> str:
    """Return counts by paper, then the claims that clearly differ, as Markdown."""
    rows = pd.DataFrame(result["rows"])
    different = differences(rows)
    counts = counts_by_paper(rows, different)
    lines = [
        f"| paper | {' | '.join(counts.columns)} |",
        "|---" * (len(counts.columns) + 1) + "|",
    ]
    for paper, numbers in counts.iterrows():
        cells = " | ".join(map(str, numbers))
        lines.append(f"| {paper} | {cells} |")
    lines.append("")
    lines.append("| claim | the shipped backbone | the second one |")
    lines.append("|---|---|---|")
    clearly_different = different.drop(columns="another sign").any(axis=1)
    for row in rows[clearly_different].itertuples():
        first = written(
            row.effect,
            row.low,
            row.high,
            row.verdict,
        )
        second = written(
            row.effect_second,
            row.low_second,
            row.high_second,
            row.verdict_second,
        )
        lines.append(f"| {row.says} ({row.paper}) | {first} | {second} |")
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    """Compare with a ledger if one is named; print the result."""
    if arguments:
        committed = pd.read_csv(COMMITTED)
        second = pd.read_csv(arguments[0])
        for path, ledger in ((COMMITTED, committed), (arguments[0], second)):
            if "tests" not in ledger:
                raise SystemExit(f"{path} has no column tests: make it anew")
        result = {"rows": compare(committed, second)}
        text = json.dumps(result, indent=1) + "\n"
        RESULT.write_text(text, encoding="utf-8")
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    print(table(result))


if __name__ == "__main__":
    main(sys.argv[1:])
