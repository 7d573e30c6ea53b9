"""Checkpoints that are whole or absent: written aside, checksummed, then renamed.

The newest checkpoint that verifies is the one to resume from. Knows files and checksums, but not
their content.
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
    """Save the checkpoint of `step`, which `write` fills, and keep the newest `keep` checkpoints.

    Returns the checkpoint's folder. It gets its name in one rename, after all its files and the
    run's .jsonl lines up to this step are on the disk. Checkpoints of this step and of later ones
    are removed: they are damaged, otherwise the run would have resumed from them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob(".tmp-*"):
        shutil.rmtree(leftover)
    aside = folder / f".tmp-{step}"
    aside.mkdir()
    write(aside)
    seal(aside)
    for path in folder.parent.glob("*.jsonl"):
        record.fsync_tree(path)
    final = folder / f"step-{step:08d}"
    for path in _checkpoints(folder):
        if path >= final:
            _remove(path)
    aside.rename(final)
    record.fsync_tree(folder)
    for path in _checkpoints(folder)[keep:]:
        _remove(path)
    return final


def seal(path: Path) -> None:
    """Write the SHA-256 of each file of a checkpoint folder into it, and fsync the folder."""
    checksums = {}
    for file in sorted(path.rglob("*")):
        if file.is_file():
            name = file.relative_to(path).as_posix()
            checksums[name] = sha256(file)
    manifest = json.dumps({"sha256": checksums}, indent=1)
    (path / MANIFEST).write_text(manifest + "\n")
    record.fsync_tree(path)


def newest(folder: Path) -> tuple[int, Path] | None:
    """Return (step, path) of the newest checkpoint that verifies, None if there is no checkpoint.

    Warns about every newer one that it skips. Raises FileNotFoundError if there are checkpoints
    but none verifies, so that a damaged run never silently starts again from step 0.
    """
    checkpoints = _checkpoints(folder)
    if not checkpoints:
        return None
    for path in checkpoints:
        fault = damage(path)
        if fault is None:
            step = int(path.name.removeprefix("step-"))
            return step, path
        warnings.warn(
            f"skipped a damaged checkpoint, {path.name}: {fault}", stacklevel=2
        )
    raise FileNotFoundError(f"no checkpoint in {folder} is whole; {path.name}: {fault}")


def of_trl(folder: Path) -> dict[int, Path]:
    """Return the sealed and verified checkpoints that TRL's trainers left in a folder, by step."""
    checkpoints = {}
    for path in folder.glob("checkpoint-*"):
        if damage(path) is None:
            step = int(path.name.removeprefix("checkpoint-"))
            checkpoints[step] = path
    return checkpoints


def damage(path: Path) -> str | None:
    """Describe what is wrong with a checkpoint folder; None if each listed file has its SHA-256."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        changed = []
        for name, expected in manifest["sha256"].items():
            if sha256(path / name) != expected:
                changed.append(name)
    # A damaged manifest may hold any JSON.
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        return f"it cannot be read: {error}"
    if changed:
        return f"{', '.join(changed)} changed since it was written"
    return None


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checkpoints(folder: Path) -> list[Path]:
    """Return all checkpoints, damaged ones included, the newest first."""
    return sorted(folder.glob("step-" + 8 * "[0-9]"), reverse=True)


def _remove(path: Path) -> None:
    """Rename a checkpoint, then delete it: an interrupted removal leaves no partial checkpoint."""
    leaving = path.with_name(f".tmp-old-{path.name}")
    path.rename(leaving)
    shutil.rmtree(leaving)
