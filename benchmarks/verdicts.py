"""How far the ledger's verdicts rest on one backbone: the ledger without each of them.

`python -m benchmarks.verdicts` recomputes it from results/standard/records, which takes a few
minutes, and writes verdicts.json beside this file. With `--table` it prints that file.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from reproduce.analysis import claims, one_out
from reproduce.analysis.arms import Ledger
from reproduce.analysis.one_out import KEPT, SIGN_TURNS
from reproduce.analysis.records import Records
from reproduce.analysis.verdicts import FOUND

RECORDS = Path(__file__).resolve().parent.parent / "results/standard/records"
RESULT = Path(__file__).with_suffix(".json")


def measure() -> dict[str, Any]:
    """Return a row per claim: its verdict, and those without each backbone."""
    records = Records(RECORDS)
    whole = claims.weigh(Ledger(records))
    without = one_out.ledgers(records)
    rows = one_out.table(whole, without)
    return {
        "backbones": list(without),
        "rows": json.loads(rows.to_json(orient="records")),
    }


def counts_by_paper(rows: pd.DataFrame) -> pd.DataFrame:
    """Return how many claims each paper has, how many are judged alike, and the totals."""
    is_found = rows["verdict"] == FOUND
    rows = rows.assign(found=is_found, found_kept=is_found & rows[KEPT])
    papers = rows.groupby("paper", sort=False)
    counts = pd.DataFrame(
        {
            "claims": papers.size(),
            "judged alike without any one": papers[KEPT].sum(),
            "found": papers["found"].sum(),
            "found without any one": papers["found_kept"].sum(),
            "found once, opposite once": papers[SIGN_TURNS].sum(),
        }
    )
    counts.loc["all"] = counts.sum()
    return counts.reset_index()


def changes(row: pd.Series, backbones: list[str]) -> str:
    """Return the other verdicts of a claim, each with the backbones that are missing then."""
    missing: dict[str, list[str]] = {}
    for backbone in backbones:
        if row[backbone] != row["verdict"]:
            missing.setdefault(row[backbone], []).append(backbone)
    parts = [f"{verdict} without {', '.join(missing[verdict])}" for verdict in missing]
    return "; ".join(parts)


def changed_claims(rows: pd.DataFrame, backbones: list[str]) -> pd.DataFrame:
    """Return the claims whose verdict changes, and how."""
    changed = rows[~rows[KEPT]]
    return pd.DataFrame(
        {
            "claim": changed["says"] + " (" + changed["paper"] + ")",
            "all backbones": changed["verdict"],
            "one left out": changed.apply(changes, axis=1, args=(backbones,)),
        }
    )


def table(result: dict[str, Any]) -> str:
    """Return counts by paper, then the claims whose verdict changes, as Markdown."""
    rows = pd.DataFrame(result["rows"])
    tables = [counts_by_paper(rows), changed_claims(rows, result["backbones"])]
    return "\n\n".join(table.to_markdown(index=False) for table in tables)


def main(arguments: list[str]) -> None:
    """Recompute and write the result, or print the one that is there."""
    if arguments != ["--table"]:
        text = json.dumps(measure(), indent=1) + "\n"
        RESULT.write_text(text, encoding="utf-8")
    print(table(json.loads(RESULT.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main(sys.argv[1:])
