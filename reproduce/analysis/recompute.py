"""Recompute the ledger from the committed records: `python -m reproduce.analysis.recompute`.

Needs neither runs nor torch. Exit codes: 0 success, 1 the committed ledger differs, 2 a user's
mistake, reported in one line on stderr.
"""

import argparse
import io
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import pandas as pd

from reproduce import HOME, UserError, one_line, plan, user_path
from reproduce.registry import hint

RECORDS = "records"
LEDGER = "claims/ledger.csv"
SHOWN = ["effect", "low", "high", "p", "p_holm", "p_corrected", "verdict"]


def as_text(csv: str) -> pd.DataFrame:
    """Read a ledger with its cells as they are printed, a row per claim."""
    frame = pd.read_csv(io.StringIO(csv), dtype=str, keep_default_na=False)
    return frame.set_index("claim")


def differences(committed: pd.DataFrame, recomputed: pd.DataFrame) -> list[str]:
    """List the rows in which two ledgers of `as_text` differ, a line for each."""
    lines = []
    for name in committed.index.union(recomputed.index, sort=False):
        if name not in recomputed.index:
            lines.append(f"{name}: not in claims.toml")
        elif name not in committed.index:
            lines.append(f"{name}: not in the committed ledger")
        else:
            changes = _changed_cells(committed.loc[name], recomputed.loc[name])
            if changes:
                lines.append(f"{name}: {', '.join(changes)}")
    return lines


def _changed_cells(committed: pd.Series, recomputed: pd.Series) -> list[str]:
    """Describe the cells in which two rows differ; a column that one of them lacks is empty."""
    changes = []
    for column in committed.index.union(recomputed.index, sort=False):
        before = committed.get(column, "")
        after = recomputed.get(column, "")
        if before != after:
            changes.append(f"{column} {before or 'empty'} -> {after or 'empty'}")
    return changes


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        "python -m reproduce.analysis.recompute",
        description="Recompute the ledger of claims from the committed records.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--results",
        type=user_path,
        default=HOME / "results/standard",
        metavar="FOLDER",
        help="with the folders records and claims; default: results/standard",
    )
    parser.add_argument(
        "--claim",
        nargs="+",
        default=[],
        metavar="NAME",
        help="claims of reproduce/claims.toml; default: all",
    )
    parser.add_argument(
        "--without",
        metavar="BACKBONE",
        help="leave out the seeds that speak this backbone, such as tiny-2",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare with FOLDER/claims/ledger.csv, exit 1 and name the rows that differ",
    )
    return parser


def check_names(names: Sequence[str], known: Collection[str]) -> None:
    """Raise UserError unless these are names of claims."""
    for name in names:
        if name not in known:
            raise UserError(f"--claim {name}: no such claim; {hint(name, known)}")


def check_backbone(name: str, known: Collection[str]) -> None:
    """Raise UserError unless this is a backbone of runs that speak several."""
    if name not in known:
        raise UserError(f"--without {name}: no such backbone; {hint(name, known)}")


def read_ledger(results: Path) -> pd.DataFrame:
    """Return the committed ledger; UserError if there is none."""
    path = results / LEDGER
    if not path.is_file():
        raise UserError(f"no ledger to compare with: {path}")
    return as_text(path.read_text(encoding="utf-8"))


def only(ledger: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return the rows of these claims; all of them without names."""
    return ledger[ledger.index.isin(names)] if names else ledger


def main(arguments: Sequence[str]) -> int:
    """Do what the command line says. Returns the exit code."""
    options = parser().parse_args(arguments)
    plan.use_package_of(HOME)
    from reproduce.analysis.claims import CLAIMS, Ledger, weigh
    from reproduce.analysis.evidence import Evidence
    from reproduce.analysis.one_out import Without, backbones
    from reproduce.analysis.records import Records
    from reproduce.analysis.writing import rounded_csv

    check_names(options.claim, CLAIMS)
    if options.check and options.without:
        raise UserError("--check compares with all backbones: leave out --without")
    committed = read_ledger(options.results) if options.check else pd.DataFrame()
    # All claims are weighed, as the corrections are over all claims of a paper.
    evidence: Evidence = Records(options.results / RECORDS)
    if options.without:
        check_backbone(options.without, backbones(evidence))
        evidence = Without(evidence, options.without)
    ledger = weigh(Ledger(evidence))
    table = only(as_text(rounded_csv(ledger)), options.claim)
    shown = [name for name in SHOWN if name in table]
    print(table[shown].to_string())
    if not options.check:
        return 0
    lines = differences(only(committed, options.claim), table)
    for line in lines:
        print(line)
    print(f"{len(lines)} rows differ" if lines else f"all {len(table)} rows are equal")
    return 1 if lines else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(f"recompute: {one_line(str(error))}", file=sys.stderr)
        sys.exit(2)
