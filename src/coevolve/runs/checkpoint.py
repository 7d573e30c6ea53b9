"""Checkpoints, whole or not there: written aside, checksummed, renamed; the newest that verifies wins.

Knows files and checksums, not what is in them.
"""

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

from coevolve.runs import record

MANIFEST = "MANIFEST.json"


def save(folder: Path, step: int, write: Callable[[Path], None], keep: int = 2) -> Path:
    """Have `write` fill a checkpoint of `step`, return its folder, and keep the newest `keep` checkpoints.

    The checkpoint appears under its name in one rename, after all of it is on the disk, and the lines of the steps
    before it as well. One of this step or a later one is removed: it is damaged, or the run would have gone on from it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob(".tmp-*"):
        shutil.rmtree(stale)
    final, aside = folder / f"step-{step:08d}", folder / f".tmp-{step}"
    aside.mkdir()
    write(aside)
    seal(aside)
    for path in folder.parent.glob("*.jsonl"):
        record.fsync_tree(path)
    for path in [path for path in _checkpoints(folder) if path >= final]:
        _remove(path)
    aside.rename(final)
    record.fsync_tree(folder)
    for path in _checkpoints(folder)[keep:]:
        _remove(path)
    return final


def seal(path: Path) -> None:
    """Write the SHA-256 of every file of a checkpoint folder into it, and force all of it to the disk."""
    sums = {one.relative_to(path).as_posix(): sha256(one) for one in sorted(path.rglob("*")) if one.is_file()}
    (path / MANIFEST).write_text(json.dumps({"sha256": sums}, indent=1) + "\n")
    record.fsync_tree(path)


def newest(folder: Path) -> tuple[int, Path] | None:
    """Return (step, path) of the newest checkpoint that verifies, or None where none was ever written.

    Warns about each newer one that it skips. Raises FileNotFoundError when there are checkpoints and none
    verifies, so that a damaged run never starts afresh unnoticed.
    """
    found = _checkpoints(folder)
    for path in found:
        if (fault := damage(path)) is None:
            return int(path.name.removeprefix("step-")), path
        warnings.warn(f"skipped a damaged checkpoint, {path.name}: {fault}", stacklevel=2)
    if found:
        raise FileNotFoundError(f"no checkpoint in {folder} is whole; {found[-1].name}: {fault}")
    return None


def of_trl(folder: Path) -> dict[int, Path]:
    """Return the checkpoints that TRL's trainers wrote into a folder, were sealed there and verify, by step."""
    found = {int(path.name.partition("-")[2]): path for path in folder.glob("checkpoint-*")}
    return {step: path for step, path in found.items() if damage(path) is None}


def damage(path: Path) -> str | None:
    """Say what is wrong with a checkpoint folder, None when every listed file has its SHA-256."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        changed = [name for name, expected in manifest["sha256"].items() if sha256(path / name) != expected]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:  # a manifest may hold any JSON
        return f"it cannot be read: {error}"
    return f"{', '.join(changed)} changed since it was written" if changed else None


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checkpoints(folder: Path) -> list[Path]:
    """Return every checkpoint, whole or not, the newest first."""
    return sorted(folder.glob("step-" + 8 * "[0-9]"), reverse=True)


def _remove(path: Path) -> None:
    """Delete a checkpoint, by its name first: what is left of an interrupted removal is no checkpoint."""
    leaving = path.with_name(f".tmp-old-{path.name}")
    path.rename(leaving)
    shutil.rmtree(leaving)
