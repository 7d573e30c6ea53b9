"""Checkpoints, whole or not there: written aside, checksummed, renamed; the newest that verifies wins.

Knows files and checksums, not what is in them, except for optimiser states: tensors in safetensors and
numbers in JSON, so that loading never runs code.
"""

import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.optim import Optimizer

MANIFEST = "MANIFEST.json"
NAME = re.compile(r"step-(\d+)(?:\.(\d+))?")  # step-00000040, or step-00000040.1 when that name was taken

Content = bytes | Callable[[Path], None]


def save(folder: Path, step: int, files: Mapping[str, Content], keep: int = 2) -> Path:
    """Write a checkpoint of `step` and return its folder; keep the newest `keep` that verify.

    Each file is given as bytes, or as a function that writes to the path it is handed (a file or a folder).
    The checkpoint appears under its name in one rename, after all of it is on the disk.
    """
    if step < 0 or keep < 1:
        raise ValueError(f"step must be at least 0 and keep at least 1, got {step} and {keep}")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob(".tmp-*"):
        shutil.rmtree(stale)
    aside = folder / f".tmp-{step}-{os.getpid()}"
    aside.mkdir()
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
    for path in [*written, aside / MANIFEST, *(p for p in aside.rglob("*") if p.is_dir()), aside]:
        _sync(path)
    final = _free_name(folder, step)
    aside.rename(final)
    _sync(folder)
    _prune(folder, keep)
    return final


def newest(folder: Path) -> tuple[int, Path] | None:
    """Return (step, path) of the newest checkpoint that verifies, or None where none was ever written.

    Warns about each newer one that it skips. Raises FileNotFoundError when there are checkpoints and none
    verifies, so that a damaged run never starts afresh unnoticed.
    """
    skipped = []
    for step, path in _checkpoints(Path(folder)):
        fault = damage(path)
        if fault is None:
            if skipped:
                warnings.warn(f"skipped damaged checkpoints: {'; '.join(skipped)}", stacklevel=2)
            return step, path
        skipped.append(f"{path.name} ({fault})")
    if skipped:
        raise FileNotFoundError(f"no checkpoint in {folder} is whole: {'; '.join(skipped)}")
    return None


def damage(path: Path) -> str | None:
    """Say what is wrong with a checkpoint folder, None when every listed file has its size and SHA-256."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        step, files = manifest["step"], dict(manifest["files"])
    except OSError as error:
        return f"{MANIFEST} cannot be read: {error.strerror}"
    except (ValueError, KeyError, TypeError):
        return f"{MANIFEST} is not valid"
    if path.name.split(".")[0] != _stem(step):
        return f"{MANIFEST} is of step {step}"
    for name, expected in files.items():
        try:
            found = _fingerprint(path / name)
        except OSError as error:
            return f"{name} cannot be read: {error.strerror}"
        if found != expected:
            return f"{name} has changed since it was written"
    return None


def save_optimizer(path: Path, state: Mapping) -> None:
    """Write an optimiser's `state_dict()` to one safetensors file, its numbers as JSON in the header."""
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, object] = {}
    rows = []
    for kind, parts in (("state", state["state"].items()), ("group", enumerate(state["param_groups"]))):
        rows += [(f"{kind}.{index}.{key}", value) for index, part in parts for key, value in part.items()]
    for name, value in rows:
        if isinstance(value, Tensor):
            tensors[name] = value.detach().cpu().contiguous()
        else:
            numbers[name] = value
    save_file(tensors, path, metadata={"numbers": json.dumps(numbers)})


def load_optimizer(path: Path, optimizer: Optimizer) -> None:
    """Restore what `save_optimizer` wrote, bit for bit, into an optimiser over the same parameters in the same order.

    They may be grouped otherwise, as long as groups do not differ in their settings. Raises ValueError when the
    parameters' number or shapes differ.
    """
    with safe_open(path, framework="pt") as file:
        values = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        values |= json.loads(file.metadata()["numbers"])
    state: dict[int, dict] = {}
    groups: dict[int, dict] = {}
    for name, value in values.items():
        kind, index, key = name.split(".", 2)
        value = tuple(value) if isinstance(value, list) and key != "params" else value
        (state if kind == "state" else groups).setdefault(int(index), {})[key] = value
    _check_shapes(optimizer, state, sum(len(group["params"]) for group in groups.values()))
    mine = [{**groups[0], "params": group["params"]} for group in optimizer.state_dict()["param_groups"]]
    optimizer.load_state_dict({"state": state, "param_groups": mine})


def _check_shapes(optimizer: Optimizer, state: dict[int, dict], count: int) -> None:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if count != len(parameters):
        raise ValueError(f"optimizer state is of {count} parameters, here are {len(parameters)}")
    for index, row in state.items():
        here = parameters[index].shape
        for key, value in row.items():
            if isinstance(value, Tensor) and value.dim() == len(here) and value.shape != here:
                shapes = f"{tuple(value.shape)}, its parameter has {tuple(here)}"
                raise ValueError(f"optimizer state {key} of parameter {index} has shape {shapes}")


def _fingerprint(path: Path) -> dict[str, int | str]:
    with path.open("rb") as file:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _stem(step: int) -> str:
    return f"step-{step:08d}"


def _free_name(folder: Path, step: int) -> Path:
    """Return the step's first unused name: one that is there may be damaged, or the only whole one."""
    path, again = folder / _stem(step), 0
    while path.exists():
        again += 1
        path = folder / f"{_stem(step)}.{again}"
    return path


def _checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """Return (step, path) of every checkpoint, whole or not, the newest first."""
    paths = folder.iterdir() if folder.is_dir() else ()
    found = [(match, path) for path in paths if (match := NAME.fullmatch(path.name))]
    found.sort(key=lambda pair: (int(pair[0][1]), int(pair[0][2] or 0)), reverse=True)
    return [(int(match[1]), path) for match, path in found]


def _prune(folder: Path, keep: int) -> None:
    """Delete what is older than the newest `keep` that verify; a folder leaves by its name first."""
    whole = 0
    for _, path in _checkpoints(folder):
        if whole >= keep:
            leaving = folder / f".tmp-old-{path.name}"
            path.rename(leaving)
            shutil.rmtree(leaving)
        elif damage(path) is None:
            whole += 1
