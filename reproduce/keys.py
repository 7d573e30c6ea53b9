"""What a result depends on, hashed, and the marker file that records a finished result.

A run depends on its parameters and preset, and on the code, prompts and data of its method, its
world and the training loop. An artefact depends on its notebook, the runs and tables it reads, and
the modules it imports. Comments and docstrings do not count.
"""

import json
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from reproduce.modules import Modules, constants, digest, without_prose
from reproduce.notebooks import code_cells
from reproduce.plan import (
    Item,
    Plan,
    configuration,
    method_names,
    split_method,
    with_needs,
)

MARKER = "done.json"
STARTED = "started.json"
RUNNING = "notebook.running.ipynb"
FAILED = "notebook.failed.ipynb"
PROVENANCE = "provenance.json"
EXECUTED = "notebook.ipynb"
NO_OUTPUTS = {MARKER, STARTED, FAILED, RUNNING, EXECUTED, PROVENANCE}
# Counts by its values, see `preset_settings`.
PRESETS = "src/coevolve/training/presets.toml"
# Its prompts count where their paper is named.
METHODS_FOLDER = "src/coevolve/methods"
PROMPTS_READER = "coevolve.text.prompts"
PROMPTS_OF_STRATEGIES = "src/coevolve/evaluation/prompts"
PAPER_OF_FOLDER = {"baselines": "azr"}  # elsewhere a folder has the name of its paper
NUMBERS = "reproduce/paper_numbers"  # counts where its file is named
METHODS_AT = "coevolve.methods."
Parts = dict[str, Any]

modules = cache(Modules)  # root -> its modules, each read once


def digest_path(path: Path) -> str:
    """Hash a file, or the names and contents of all files of a folder; "missing" for neither."""
    if path.is_file():
        return digest(path.read_bytes())
    if not path.is_dir():
        return "missing"
    listing = ""
    for file in sorted(path.rglob("*")):
        if file.is_file():
            name = file.relative_to(path)
            listing += f"{name}={digest_path(file)}\n"
    return digest(listing.encode())


digest_input = cache(digest_path)  # inputs do not change while a command works


def preset_settings(plan: Plan, methods: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return what the preset sets for all methods ("all") and for each of these.

    Empty if the repository has no training presets.
    """
    path = plan.root / PRESETS
    if not path.is_file():
        return {}
    preset = configuration(plan.root).load_presets(path).get(plan.name, {})
    return {name: preset[name] for name in ("all", *methods) if preset.get(name)}


def method_module(plan: Plan, method: str) -> str:
    """Return the module that defines a method, or its file if the method is given by path."""
    file, _ = split_method(method)
    if file:
        return file
    module, _, _ = method_names(plan.root).get(method, "").partition(":")
    return module


def run_sources(plan: Plan, item: Item) -> Parts:
    """Collect the code and data that a training run depends on."""
    code = modules(plan.root)
    preset = preset_settings(plan, [item.method])
    method = method_module(plan, item.method)
    strings: set[str] = set()
    roots = [method, "coevolve.training.loop", *_plugins_of_run(plan, preset, item)]
    for name in code.needed([method]):
        is_of_a_method = name == method or name.startswith(METHODS_AT)
        if not is_of_a_method:
            continue
        file = code.file_of(name)
        text = file.read_text(encoding="utf-8")
        strings |= constants(text)
        roots += code.plugins_used(text)
        # Imports inside a method's functions count: the run that names the method makes them.
        facts = code.facts(name, file)
        roots += [imported.module for imported in facts.imports]
    needed = code.needed(roots)
    data = data_files(plan, needed, strings)
    return {"preset": preset, "modules": needed, "data": data}


def _plugins_of_run(
    plan: Plan, preset: dict[str, dict[str, Any]], item: Item
) -> list[str]:
    """Return the modules that announce the world and the models that a run's fields name."""
    fields: dict[str, Any] = {"world": "tiny", "model": "tiny"}
    fields |= preset.get("all", {})
    fields |= preset.get(item.method, {})
    fields |= item.config
    world, _, _ = str(fields["world"]).partition(":")
    models = fields["model"]
    if isinstance(models, str):
        models = [models]
    announced = modules(plan.root).announced
    worlds = announced.get("coevolve.worlds", {})
    folders = announced.get("coevolve.models", {})
    named = [worlds.get(world, world)]
    named += [folders[model] for model in models if model in folders]
    return named


def artefact_sources(plan: Plan, item: Item) -> Parts:
    """Collect the code and data that an artefact's notebook imports, and the methods it names."""
    code = modules(plan.root)
    # known.csv explains why printed averages differ, to every table of scores.
    strings = constants(repr(item.parameters)) | {item.paper, "known"}
    roots: set[str] = set()
    for cell in code_cells(plan.root / item.notebook):
        strings |= constants(cell.text)
        imports = code.imports(cell.text)
        roots |= {imported.module for imported in imports}
    preset = {}
    if "coevolve.training.config" in roots:
        methods = method_names(plan.root)
        named_methods = sorted(strings.intersection(methods))
        roots |= {method_module(plan, name) for name in named_methods}
        preset = preset_settings(plan, named_methods)
    needed = code.needed(roots)
    data = data_files(plan, needed, strings)
    return {"preset": preset, "modules": needed, "data": data}


def data_files(
    plan: Plan, needed: Collection[str], strings: set[str]
) -> dict[str, str]:
    """Hash the data files of these modules, and the printed numbers that the strings name.

    Prompts count only for code that reads prompts: those of the papers that are named, and those of
    inference strategies.
    """
    folder = plan.root / NUMBERS
    tables = [file.name for file in folder.glob("*.csv") if file.stem in strings]
    names = [f"{NUMBERS}/{name}" for name in tables]
    files_of = modules(plan.root).data
    for module in needed:
        for name in files_of.get(module, []):
            if name != PRESETS and "/prompts/" not in name:
                names.append(name)
    if PROMPTS_READER in needed:
        for prompts in _prompt_folders(plan, strings):
            files = sorted(file for file in prompts.rglob("*") if file.is_file())
            names += [str(file.relative_to(plan.root)) for file in files]
    return {name: digest_input(plan.root / name) for name in names}


def _prompt_folders(plan: Plan, strings: set[str]) -> list[Path]:
    folders = [plan.root / PROMPTS_OF_STRATEGIES]
    for folder in sorted((plan.root / METHODS_FOLDER).glob("*/prompts")):
        parent = folder.parent.name
        if PAPER_OF_FOLDER.get(parent, parent) in strings:
            folders.append(folder)
    return folders


def dependencies(plan: Plan, item: Item) -> Parts:
    """Collect everything that an item's result depends on, by name.

    What the item needs must be finished, as the hashes of its outputs are included.
    """
    notebook = []
    for cell in code_cells(plan.root / item.notebook):
        notebook.append([without_prose(cell.text), cell.tag])
    collect_sources = run_sources if item.kind == "run" else artefact_sources
    sources = collect_sources(plan, item)
    inputs = {name: digest_input(plan.root / name) for name in item.inputs}
    for need in item.needs:
        marker = read_marker(plan.folder / need)
        outputs = json.dumps(marker.get("outputs"), sort_keys=True)
        inputs[need] = digest(outputs.encode())
    return {
        "notebook": digest(json.dumps(notebook).encode()),
        "parameters": dict(item.parameters),
        **sources,
        "inputs": inputs,
        "outputs": list(item.outputs),
    }


def key_of(parts: Parts) -> str:
    """Hash the parts into the one key that decides whether a result is up to date."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return digest(text.encode())


def read_marker(folder: Path, name: str = MARKER) -> dict[str, Any]:
    """Read a JSON file of a result; a missing or damaged one is empty."""
    try:
        text = (folder / name).read_text(encoding="utf-8")
        return json.loads(text)
    except (OSError, ValueError):
        return {}


def output_hashes(item: Item, folder: Path) -> dict[str, str]:
    """Hash the item's outputs. A run's outputs are all files of its folder, without subfolders."""
    names = set(item.outputs)
    if item.kind == "artefact":
        names.add("notebook.html")
    else:
        for file in folder.iterdir():
            is_output = file.name not in NO_OUTPUTS and not file.name.startswith(".")
            if is_output and file.is_file():
                names.add(file.name)
    return {name: digest_path(folder / name) for name in sorted(names)}


def write_marker(item: Item, folder: Path, parts: Parts) -> None:
    """Record that the item is done. The marker is the last file of a result to be written."""
    from coevolve.runs.record import write_atomically

    outputs = output_hashes(item, folder)
    marker = {
        "id": item.id,
        "key": key_of(parts),
        "parts": parts,
        "outputs": outputs,
    }
    text = json.dumps(marker, indent=1, sort_keys=True, default=str)
    write_atomically(folder / MARKER, text + "\n")


def changes(plan: Plan, item: Item) -> list[str]:
    """List why the item must be made, one line for each reason; empty if it is up to date."""
    folder = plan.folder / item.id
    marker = read_marker(folder)
    if not marker:
        started = read_marker(folder, STARTED)
        resumes = started and started["key"] == key_of(dependencies(plan, item))
        if resumes:
            return ["was interrupted and will resume"]
        return ["was never finished"]
    lines = []
    recorded_hashes = marker.get("outputs", {})
    for name, recorded in recorded_hashes.items():
        if digest_path(folder / name) != recorded:
            lines.append(f"output {name} is missing or was changed")
    # As they would be read from a marker, where for example tuples are lists.
    current_text = json.dumps(dependencies(plan, item), default=str)
    current = json.loads(current_text)
    recorded_parts = marker.get("parts", {})
    return lines + differences("", recorded_parts, current)


def reasons(plan: Plan, items: Iterable[Item]) -> dict[str, list[str]]:
    """Return id -> reasons why the item must be made, for these items and all that they need.

    The list is empty if the item is done or never made.
    """
    reasons_of: dict[str, list[str]] = {}
    for item in with_needs(plan, {item.id for item in items}):  # needs come first
        if item.skip is not None:
            reasons_of[item.id] = []
            continue
        if item.fault is not None:
            reasons_of[item.id] = [item.fault]
            continue
        lines = changes(plan, item)
        for need in item.needs:
            if reasons_of[need]:
                lines.append(f"{need} is not done")
        reasons_of[item.id] = lines
    return reasons_of


def status(plan: Plan, item: Item, why: list[str]) -> str:
    """Name an item's state, given the reasons why it must be made.

    One of done, stale, failed, interrupted, todo, skipped and faulty.
    """
    if item.skip is not None:
        return "skipped"
    if item.fault is not None:
        return "faulty"
    if not why:
        return "done"
    folder = plan.folder / item.id
    if (folder / FAILED).exists():
        return "failed"
    if (folder / MARKER).exists():
        return "stale"
    if (folder / STARTED).exists():
        return "interrupted"
    return "todo"


def differences(path: str, old: Any, new: Any) -> list[str]:
    """Describe the leaves in which two trees of parts differ; `path` is the place in the tree."""
    if isinstance(old, dict) and isinstance(new, dict):
        lines = []
        for name in sorted(old.keys() | new.keys()):
            inner_path = f"{path}.{name}" if path else name
            before = old.get(name)
            after = new.get(name)
            lines += differences(inner_path, before, after)
        return lines
    if old == new:
        return []
    if path.startswith(("parameters", "outputs", "preset")):
        return [f"{path}: {json.dumps(old)} -> {json.dumps(new)}"]
    if old is None:
        return [f"{path}: added"]
    if new is None:
        return [f"{path}: removed"]
    return [f"{path}: changed"]
