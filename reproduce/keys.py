"""What a result depends on, hashed, and the marker that says it was finished with exactly that.

Knows files and bytes; does not know how an item is executed.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from reproduce import write_atomic
from reproduce.parameters import read_notebook, source
from reproduce.plan import Item, Plan

MARKER, STARTED = "done.json", "started.json"
RUNNING, FAILED = "notebook.running.ipynb", "notebook.failed.ipynb"
VOLATILE = {MARKER, STARTED, FAILED, RUNNING, "notebook.ipynb", "provenance.json"}
NO_SOURCE = {".pyc", ".pyo", ".so"}
RUNNER = ("cell.py",)  # what of this package decides how a result comes out
Parts = dict[str, Any]


def digest(data: bytes) -> str:
    """Hash bytes into 20 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()[:20]


def digest_path(path: Path) -> str:
    """Hash a file, or every file of a folder with its name; a missing path has a hash of its own."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        return digest("".join(f"{file.relative_to(path)}={digest_path(file)}\n" for file in files).encode())
    return digest(path.read_bytes()) if path.is_file() else "missing"


@cache
def sources(root: Path) -> Mapping[str, str]:
    """Hash all that makes up the package: code, prompts, embedded data, and the runner's own part."""
    folder = root / "src"
    files = sorted(file for file in folder.rglob("*") if file.is_file() and is_source(file, folder))
    own = {f"reproduce/{name}": digest_path(Path(__file__).with_name(name)) for name in RUNNER}
    return {str(file.relative_to(root)): digest_path(file) for file in files} | own


def is_source(file: Path, folder: Path) -> bool:
    """Leave out what tools drop into the source folder."""
    parts = file.relative_to(folder).parts
    dropped = any(part[0] == "." or part == "__pycache__" or part.endswith(".egg-info") for part in parts)
    return not dropped and file.suffix not in NO_SOURCE


def digest_notebook(path: Path) -> str:
    """Hash a notebook's cells, types and tags; outputs, ids and other metadata do not count."""
    cells = [
        [cell.get("cell_type"), source(cell), cell.get("metadata", {}).get("tags", [])]
        for cell in read_notebook(path)["cells"]
    ]
    return digest(json.dumps(cells).encode())


def parts(plan: Plan, item: Item) -> Parts:
    """Collect everything that the item's result depends on, by name. The runs it needs must be done."""
    needs = {
        need: digest(json.dumps(read_marker(plan.folder / need).get("outputs"), sort_keys=True).encode())
        for need in item.needs
    }
    return {
        "notebook": digest_notebook(plan.root / item.notebook),
        "parameters": dict(item.parameters),
        "sources": dict(sources(plan.root)),
        "inputs": {name: digest_path(plan.root / name) for name in item.inputs} | needs,
        "outputs": list(item.outputs),
    }


def key(found: Parts) -> str:
    """Hash the parts into the one key that decides whether a result is current."""
    return digest(json.dumps(found, sort_keys=True).encode())


def read_marker(folder: Path, name: str = MARKER) -> dict[str, Any]:
    """Read a marker file; one that is missing or damaged is empty."""
    try:
        marker = json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return marker if isinstance(marker, dict) else {}


def produced(item: Item, folder: Path) -> dict[str, str]:
    """Hash the item's outputs. A run's outputs are all files of its folder, but not folders in it."""
    names = {*item.outputs, *(() if item.kind == "run" else ("notebook.html",))}
    if item.kind == "run":
        names |= {file.name for file in folder.iterdir() if file.is_file() and file.name[0] != "."} - VOLATILE
    return {name: digest_path(folder / name) for name in sorted(names)}


def write_marker(item: Item, folder: Path, found: Parts) -> None:
    """Say that the item is done: the last file that is written, at once or not at all."""
    marker = {"id": item.id, "key": key(found), "parts": found, "outputs": produced(item, folder)}
    write_atomic(folder / MARKER, json.dumps(marker, indent=1, sort_keys=True) + "\n")


def damaged(item: Item, folder: Path, marker: Mapping[str, Any]) -> list[str]:
    """List outputs that are missing or are not what the marker says."""
    recorded = marker.get("outputs", {})
    return [
        name
        for name in {**dict.fromkeys(item.outputs), **recorded}
        if recorded.get(name, "missing") == "missing" or digest_path(folder / name) != recorded[name]
    ]


def is_done(item: Item, folder: Path, found: Parts) -> bool:
    """Say whether the marker is there, has the current key and all outputs verify."""
    marker = read_marker(folder)
    return marker.get("key") == key(found) and not damaged(item, folder, marker)


def statuses(plan: Plan, items: Iterable[Item]) -> dict[str, str]:
    """Name items' states: done, stale, failed, interrupted, todo, skipped or unclaimed."""
    known: dict[str, str] = {}
    for item in items:
        for one in (*(plan.items[need] for need in item.needs), item):
            if one.id not in known:
                known[one.id] = status(plan, one, known)
    return known


def todo(plan: Plan, items: Iterable[Item], forced: set[str]) -> list[Item]:
    """Return the items that would run: those that are forced or not done."""
    states = statuses(plan, items)
    return [item for item in items if item.skip is None and (item.id in forced or states[item.id] != "done")]


def status(plan: Plan, item: Item, known: Mapping[str, str]) -> str:
    """Name one item's state; `known` holds the states of the runs it needs."""
    if item.skip is not None:
        return "unclaimed" if item.kind == "unclaimed" else "skipped"
    folder = plan.folder / item.id
    if not (plan.root / item.notebook).is_file():
        return "todo"
    if is_done(item, folder, parts(plan, item)):
        return "done" if all(known[need] == "done" for need in item.needs) else "stale"
    if (folder / FAILED).exists():
        return "failed"
    if read_marker(folder):
        return "stale"
    return "interrupted" if (folder / STARTED).exists() else "todo"


def why(plan: Plan, item: Item) -> list[str]:
    """Say which parts of the key changed since the item was last done, one line each."""
    folder = plan.folder / item.id
    if item.skip is not None:
        return [f"never runs: {item.skip}"]
    current, marker = parts(plan, item), read_marker(folder)
    if not marker:
        resumes = read_marker(folder, STARTED).get("key") == key(current)
        return ["was interrupted and will resume" if resumes else "was never finished"]
    lines = [f"output {name} is missing or was changed" for name in damaged(item, folder, marker)]
    lines += compare("", marker.get("parts", {}), current)
    needs = statuses(plan, [plan.items[need] for need in item.needs])
    lines += [f"{need} is {state}" for need, state in needs.items() if state != "done"]
    return lines or ["is up to date"]


def compare(prefix: str, old: Any, new: Any) -> list[str]:
    """Name the leaves in which two trees of parts differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            line
            for name in sorted({*old, *new})
            for line in compare(f"{prefix}.{name}" if prefix else name, old.get(name), new.get(name))
        ]
    if old == new:
        return []
    if prefix.startswith(("parameters", "outputs")):
        return [f"{prefix}: {json.dumps(old)} -> {json.dumps(new)}"]
    return [f"{prefix}: {'added' if old is None else 'removed' if new is None else 'changed'}"]
