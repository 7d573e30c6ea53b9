"""What a result depends on, hashed, and the marker that says it was finished with exactly that.

A run depends on its parameters and preset, and on the modules, prompts and other data of its method, its world and
the loop. An artefact depends on its notebook, the runs and tables it reads, and the modules it imports. Comments and
docstrings do not count.
"""

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from reproduce import write_atomic
from reproduce.modules import Modules, constants, digest, without_prose
from reproduce.notebooks import code_cells
from reproduce.plan import Item, Plan, configuration, with_needs

MARKER, STARTED = "done.json", "started.json"
RUNNING, FAILED = "notebook.running.ipynb", "notebook.failed.ipynb"
VOLATILE = {MARKER, STARTED, FAILED, RUNNING, "notebook.ipynb", "provenance.json"}
PRESETS = "src/coevolve/training/presets.toml"  # counts by its values, see `settings`
PROMPTS, NUMBERS = "src/coevolve/prompts/", "reproduce/paper_numbers"  # of which those count that are named
METHODS_AT = ("coevolve.methods.", "coevolve.methods.baselines.")
Parts = dict[str, Any]

modules = cache(Modules)  # root -> its modules, each read once


def digest_path(path: Path) -> str:
    """Hash a file, or every file of a folder with its name; a missing path has a hash of its own."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        return digest("".join(f"{file.relative_to(path)}={digest_path(file)}\n" for file in files).encode())
    return digest(path.read_bytes()) if path.is_file() else "missing"


digest_input = cache(digest_path)  # what goes in stays as it is while a command works


def settings(plan: Plan, methods: Iterable[str]) -> dict[str, Any]:
    """Return what the preset sets for all methods and for these; nothing where there are no such presets."""
    if not (plan.root / PRESETS).is_file():
        return {}
    preset = configuration(plan.root).load_presets(plan.root / PRESETS).get(plan.name, {})
    return {name: preset[name] for name in ("all", *methods) if preset.get(name)}


def run_sources(plan: Plan, item: Item) -> Parts:
    """Collect the code and data that a training run depends on."""
    found, preset = modules(plan.root), settings(plan, [item.protocol])
    file, _, _ = item.protocol.rpartition(":")
    method = file or configuration(plan.root).METHODS.get(item.protocol, "").partition(":")[0]
    own = [name for name in found.needed([method]) if name == method or name.startswith(METHODS_AT)]
    said = {text for name in own for text in constants(found.file_of(name).read_text(encoding="utf-8"))}
    late = {other for name in own for other, _ in found.facts(name, found.file_of(name))[1]}
    fields = {**preset.get("all", {}), **preset.get(item.protocol, {}), **item.config}
    world = fields.get("world", "tiny").partition(":")[0]
    needed = found.needed([method, "coevolve.training.loop", *late, "published.world" if world == "data" else world])
    return {"preset": preset, "modules": needed, "data": data(plan, needed, said)}


def artefact_sources(plan: Plan, item: Item) -> Parts:
    """Collect the code and data that a table's or figure's notebook imports, and the methods that it names."""
    found = modules(plan.root)
    texts = [text for text, _ in code_cells(plan.root / item.notebook)]
    said = {text for code in texts for text in constants(code)} | constants(repr(item.parameters))
    said |= {item.paper, "known"}  # known.csv says why printed averages differ, to every table of scores
    roots = {name for code in texts for name, _ in found.imports(code)}
    preset = {}
    if "coevolve.training.config" in roots:
        methods = configuration(plan.root).METHODS
        roots |= {methods[name].partition(":")[0] for name in said & {*methods}}
        preset = settings(plan, sorted(said & {*methods}))
    needed = found.needed(roots)
    return {"preset": preset, "modules": needed, "data": data(plan, needed, said)}


def data(plan: Plan, needed: Iterable[str], said: set[str]) -> dict[str, str]:
    """Hash the data files of these modules; of prompts and printed numbers, those that are named."""
    names = [f"{NUMBERS}/{file.name}" for file in (plan.root / NUMBERS).glob("*.csv") if file.stem in said]
    for name in (name for module in needed for name in modules(plan.root).data.get(module, ())):
        foreign = name.startswith(PROMPTS) and name.removeprefix(PROMPTS).partition("/")[0] not in said
        if name != PRESETS and not foreign:
            names.append(name)
    return {name: digest_input(plan.root / name) for name in names}


def parts(plan: Plan, item: Item) -> Parts:
    """Collect everything that the item's result depends on, by name. The runs it needs must be done."""
    cells = [[without_prose(text), tagged] for text, tagged in code_cells(plan.root / item.notebook)]
    needs = {
        need: digest(json.dumps(read_marker(plan.folder / need).get("outputs"), sort_keys=True).encode())
        for need in item.needs
    }
    return {
        "notebook": digest(json.dumps(cells).encode()),
        "parameters": dict(item.parameters),
        **(run_sources if item.kind == "run" else artefact_sources)(plan, item),
        "inputs": {name: digest_input(plan.root / name) for name in item.inputs} | needs,
        "outputs": list(item.outputs),
    }


def key(found: Parts) -> str:
    """Hash the parts into the one key that decides whether a result is current."""
    return digest(json.dumps(found, sort_keys=True, default=str).encode())


def read_marker(folder: Path, name: str = MARKER) -> dict[str, Any]:
    """Read a marker file; one that is missing or damaged is empty."""
    try:
        return json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def produced(item: Item, folder: Path) -> dict[str, str]:
    """Hash the item's outputs. A run's outputs are all files of its folder, but not folders in it."""
    found = {file.name for file in folder.iterdir() if file.is_file() and file.name[0] != "."} - VOLATILE
    names = {*item.outputs} | (found if item.kind == "run" else {"notebook.html"})
    return {name: digest_path(folder / name) for name in sorted(names)}


def write_marker(item: Item, folder: Path, found: Parts) -> None:
    """Say that the item is done: the last file that is written, at once or not at all."""
    marker = {"id": item.id, "key": key(found), "parts": found, "outputs": produced(item, folder)}
    write_atomic(folder / MARKER, json.dumps(marker, indent=1, sort_keys=True, default=str) + "\n")


def changes(plan: Plan, item: Item) -> list[str]:
    """Say why the item must be made, one line for each reason; none if it is up to date."""
    folder = plan.folder / item.id
    marker, begun = read_marker(folder), read_marker(folder, STARTED)
    if not marker:
        resumes = begun and begun["key"] == key(parts(plan, item))
        return ["was interrupted and will resume" if resumes else "was never finished"]
    hashes = marker.get("outputs", {})
    lost = [name for name in hashes if digest_path(folder / name) != hashes[name]]
    lines = [f"output {name} is missing or was changed" for name in lost]
    return lines + differences("", marker.get("parts", {}), json.loads(json.dumps(parts(plan, item), default=str)))


def reasons(plan: Plan, items: Iterable[Item]) -> dict[str, list[str]]:
    """Say why items must be made: id -> reasons, none where the item is done or never runs. Their runs are added."""
    known: dict[str, list[str]] = {}
    for item in with_needs(plan, {item.id for item in items}):  # runs come first
        lost = [f"{need} is not done" for need in item.needs if known[need]]
        known[item.id] = [] if item.skip is not None else changes(plan, item) + lost
    return known


def status(plan: Plan, item: Item, why: list[str]) -> str:
    """Name an item's state, for reasons to make it: done, stale, failed, interrupted, todo or skipped."""
    if not why:
        return "done" if item.skip is None else "skipped"
    marks = {FAILED: "failed", MARKER: "stale", STARTED: "interrupted"}
    return next((state for name, state in marks.items() if (plan.folder / item.id / name).exists()), "todo")


def differences(prefix: str, old: Any, new: Any) -> list[str]:
    """Name the leaves in which two trees of parts differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        names = sorted({*old, *new})
        inner = ((f"{prefix}.{name}" if prefix else name, old.get(name), new.get(name)) for name in names)
        return [line for leaf in inner for line in differences(*leaf)]
    if old == new:
        return []
    if prefix.startswith(("parameters", "outputs", "preset")):
        return [f"{prefix}: {json.dumps(old)} -> {json.dumps(new)}"]
    return [f"{prefix}: {'added' if old is None else 'removed' if new is None else 'changed'}"]
