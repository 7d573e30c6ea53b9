"""Checkpoints, whole or not there: written aside, checksummed, renamed; the newest that verifies wins.

Knows files and checksums, not what is in them, except for optimiser states, whose loading never runs code.
"""

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.optim import Optimizer

MANIFEST = "MANIFEST.json"


def save(folder: Path, step: int, files: Mapping[str, bytes | Callable[[Path], None]], keep: int = 2) -> Path:
    """Write a checkpoint of `step` and return its folder; keep the newest `keep` that verify.

    Each file is given as bytes, or as a function that writes to the path it is handed (a file or a folder). The
    checkpoint appears under its name in one rename, after all of it is on the disk. A whole checkpoint of this step
    stays as it is, a damaged one is replaced.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob(".tmp-*"):
        shutil.rmtree(stale)
    final, aside = folder / f"step-{step:08d}", folder / f".tmp-{step}-{os.getpid()}"
    if final.exists():
        if damage(final) is None:
            return final
        _remove(final)
    for name, content in files.items():
        place = aside / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if callable(content):
            content(place)
        else:
            place.write_bytes(content)
    written = sorted(path for path in aside.rglob("*") if path.is_file())
    listed = {path.relative_to(aside).as_posix(): _fingerprint(path) for path in written}
    (aside / MANIFEST).write_text(json.dumps({"step": step, "files": listed}, indent=1) + "\n")
    for path in [*aside.rglob("*"), aside]:
        _sync(path)
    aside.rename(final)
    _sync(folder)
    whole = 0
    for path in _checkpoints(folder):
        if whole >= keep:
            _remove(path)
        elif damage(path) is None:
            whole += 1
    return final


def newest(folder: Path) -> tuple[int, Path] | None:
    """Return (step, path) of the newest checkpoint that verifies, or None where none was ever written.

    Warns about each newer one that it skips. Raises FileNotFoundError when there are checkpoints and none
    verifies, so that a damaged run never starts afresh unnoticed.
    """
    found = _checkpoints(folder)
    for path in found:
        fault = damage(path)
        if fault is None:
            return int(path.name.removeprefix("step-")), path
        warnings.warn(f"skipped a damaged checkpoint, {path.name}: {fault}", stacklevel=2)
    if found:
        raise FileNotFoundError(f"no checkpoint in {folder} is whole; {found[-1].name}: {fault}")
    return None


def damage(path: Path) -> str | None:
    """Say what is wrong with a checkpoint folder, None when every listed file has its size and SHA-256."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        if path.name != f"step-{manifest['step']:08d}":
            return f"{MANIFEST} is of step {manifest['step']}"
        changed = [name for name, expected in manifest["files"].items() if _fingerprint(path / name) != expected]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:  # a manifest may hold any JSON
        return f"it cannot be read: {error}"
    return f"{', '.join(changed)} changed since it was written" if changed else None


def save_optimizer(path: Path, state: Mapping[str, Any]) -> None:
    """Write an optimiser's `state_dict()`."""
    import torch

    torch.save(state, path)


def load_optimizer(path: Path, optimizer: "Optimizer") -> None:
    """Restore what `save_optimizer` wrote, bit for bit, into an optimiser over the same parameters in the same order.

    Raises ValueError when the number of parameters differs.
    """
    import torch

    with path.open("rb") as file:  # of a path, torch would take the ending for the format
        optimizer.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))


def _fingerprint(path: Path) -> dict[str, int | str]:
    with path.open("rb") as file:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _checkpoints(folder: Path) -> list[Path]:
    """Return every checkpoint, whole or not, the newest first."""
    return sorted(folder.glob("step-" + 8 * "[0-9]"), reverse=True)


def _remove(path: Path) -> None:
    """Delete a checkpoint, by its name first: what is left of an interrupted removal is no checkpoint."""
    leaving = path.with_name(f".tmp-old-{path.name}")
    path.rename(leaving)
    shutil.rmtree(leaving)
