"""Compare two trees of results, or one with a commit: every CSV file, cell by cell, within a tolerance.

Knows text and numbers; does not know what the columns mean.
"""

import csv
import io
import math
from pathlib import Path

from reproduce import UserError
from reproduce.plan import Plan
from reproduce.provenance import git


def read_tree(folder: Path) -> dict[str, str]:
    """Read every CSV file under a folder: name -> text; hidden folders are work in progress and left out."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder")
    files = {str(file.relative_to(folder)): file for file in sorted(folder.rglob("*.csv"))}
    return {name: file.read_text(encoding="utf-8") for name, file in files.items() if "/." not in f"/{name}"}


def read_commit(root: Path, reference: str, folder: str) -> dict[str, str]:
    """Read every CSV file that a git commit holds under a folder."""
    listing = git(root, "ls-tree", "-r", "-z", "--name-only", "--full-tree", reference, "--", f"{folder}/")
    names = [name for name in (listing or "").split("\0") if name.endswith(".csv")]
    if not names:
        raise UserError(f"{reference!r} is no commit of the repository, or holds no CSV files under {folder}")
    return {name.removeprefix(f"{folder}/"): git(root, "show", f"{reference}:{name}") or "" for name in names}


def close(old: str, new: str, tolerance: float) -> bool:
    """Say whether two cells agree: as numbers within the tolerance (relative or absolute), else as text."""
    try:
        return old == new or math.isclose(float(old), float(new), rel_tol=tolerance, abs_tol=tolerance)
    except ValueError:
        return False


def differences(name: str, old: str, new: str, tolerance: float) -> list[str]:
    """List the cells in which two CSV texts differ, one line each; a change of shape is one line."""
    (header, *before), (other, *after) = ([*csv.reader(io.StringIO(text, newline=""))] or [[]] for text in (old, new))
    if header != other:
        return [f"{name}: columns {', '.join(header)} -> {', '.join(other)}"]
    if [len(line) for line in before] != [len(line) for line in after]:
        return [f"{name}: {len(before)} -> {len(after)} rows, or rows of another length"]
    return [
        f"{name}: row {number} ({first[0]}), {column}: {a} -> {b}"
        for number, (first, second) in enumerate(zip(before, after, strict=True), 1)
        for column, a, b in zip(header, first, second, strict=False)
        if not close(a, b, tolerance)
    ]


def trees(old: dict[str, str], new: dict[str, str], tolerance: float) -> list[str]:
    """List all differences of two trees."""
    found = []
    for name in sorted({*old, *new}):
        if name in new and name in old:
            found += differences(name, old[name], new[name], tolerance)
        else:
            found.append(f"{name}: only in the {'first' if name in old else 'second'} tree")
    return found


def check(plan: Plan, reference: str, tolerance: float, chosen: set[str]) -> list[str]:
    """List how the tables of the chosen artefacts differ from what a commit holds."""
    old = read_commit(plan.root, reference, f"results/{plan.name}")
    wanted = {id for id in chosen if plan.items[id].kind == "artefact" and plan.items[id].skip is None}
    old = {name: text for name, text in old.items() if str(Path(name).parent) in wanted}
    new = {name: text for name, text in read_tree(plan.folder).items() if name in old}
    return trees(old, new, tolerance)
