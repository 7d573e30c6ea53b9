"""Compare two trees of results, or one with a commit: every CSV file, cell by cell, within a tolerance.

Knows text and numbers; does not know what the columns mean.
"""

import csv
import io
import math
from collections.abc import Mapping
from pathlib import Path

from reproduce import UserError, one_line
from reproduce.plan import Plan
from reproduce.provenance import git

Tables = Mapping[str, str]  # path relative to the tree -> text of the file
SHOWN = 60  # differing cells that are listed one by one


def read_tree(folder: Path) -> dict[str, str]:
    """Read every CSV file under a folder; hidden folders are work in progress and left out."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder")
    files = (file.relative_to(folder) for file in sorted(folder.rglob("*.csv")))
    return {
        str(file): (folder / file).read_text(encoding="utf-8")
        for file in files
        if not any(part.startswith(".") for part in file.parts)
    }


def read_commit(root: Path, reference: str, folder: str) -> dict[str, str]:
    """Read every CSV file that a git commit holds under a folder."""
    listing = git(root, "ls-tree", "-r", "-z", "--name-only", "--full-tree", reference, "--", f"{folder}/")
    if listing is None:
        raise UserError(f"{reference!r} is neither a folder nor a commit of the repository")
    names = [name for name in listing.split("\0") if name.endswith(".csv")]
    if not names:
        raise UserError(f"{reference} holds no CSV files under {folder}")
    return {name.removeprefix(f"{folder}/"): git(root, "show", f"{reference}:{name}") or "" for name in names}


def close(old: str, new: str, tolerance: float) -> bool:
    """Say whether two cells agree: as numbers within the tolerance (relative or absolute), else as text."""
    if old == new:
        return True
    try:
        a, b = float(old), float(new)
    except ValueError:
        return False
    return math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance) or (math.isnan(a) and math.isnan(b))


def differences(name: str, old: str, new: str, tolerance: float) -> list[str]:
    """List the cells in which two CSV texts differ, one line each; a change of shape is one line."""
    rows = [list(csv.reader(io.StringIO(text, newline=""))) for text in (old, new)]
    header, other = (table[0] if table else [] for table in rows)
    if header != other:
        return [f"{name}: columns {', '.join(header)} -> {', '.join(other)}"]
    found = [] if len(rows[0]) == len(rows[1]) else [f"{name}: {len(rows[0]) - 1} -> {len(rows[1]) - 1} rows"]
    for number, (before, after) in enumerate(zip(*(table[1:] for table in rows), strict=False), 1):
        if len(before) != len(after):
            found.append(f"{name}: row {number}: {len(before)} -> {len(after)} cells")
            continue
        named = zip(header + ["?"] * len(before), before, after, strict=False)
        found += [
            f"{name}: row {number} ({before[0]}), {column}: {a} -> {b}"
            for column, a, b in named
            if not close(a, b, tolerance)
        ]
    return found


def compare(old: Tables, new: Tables, tolerance: float, only: set[str] | None = None) -> list[str]:
    """List all differences of two trees; `only` restricts to files under these folders."""
    found = []
    for name in sorted({*old, *new}):
        if only is not None and str(Path(name).parent) not in only:
            continue
        if name not in new or name not in old:
            found.append(f"{name}: only in the {'first' if name in old else 'second'} tree")
        else:
            found += differences(name, old[name], new[name], tolerance)
    return found


def check(plan: Plan, reference: str, tolerance: float, chosen: set[str]) -> list[str]:
    """List how the preset's results differ from a folder or from what a commit holds, runs left out."""
    wanted = {id for id in chosen if plan.items[id].kind == "artefact" and plan.items[id].skip is None}
    if (plan.root / reference).is_dir():
        old = read_tree(plan.root / reference)
    else:
        old = read_commit(plan.root, reference, f"results/{plan.name}")
    new = {name: text for name, text in read_tree(plan.folder).items() if name in old}
    return compare(old, new, tolerance, wanted)


def report(found: list[str]) -> str:
    """Write the differences, the first ones in full, and their number."""
    lines = [one_line(line) for line in found[:SHOWN]]
    if len(found) > SHOWN:
        lines.append(f"... and {len(found) - SHOWN} more")
    return "\n".join([*lines, f"{len(found)} differences" if found else "no differences"])
