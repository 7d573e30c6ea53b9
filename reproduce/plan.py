"""Turn presets and TOML files into work items: runs (one per seed) and artefacts (one per id).

Knows what must be done and in which order; does not know what has been done already, nor how to do it.
"""

import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType
from typing import Any

from reproduce import UserError, one_line
from reproduce.notebooks import check_parameters, declared
from reproduce.registry import ArtefactTable, Preset, RunTable, hint, read

TRAIN = "notebooks/train.ipynb"
UNTABLED = "its notebook lays out the tiny world; runs on published data have scores.csv and summary.json"
MODEL = "model"  # the override that names a model; with a slash it is a folder, or a hub id


@dataclass(frozen=True)
class Item:
    """One notebook to execute. Its id is its folder under results/<preset>/."""

    id: str
    kind: str  # "run" or "artefact"
    paper: str
    notebook: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()  # files or folders, relative to the root, whose bytes are part of the key
    outputs: tuple[str, ...] = ()
    skip: str | None = None
    timeout: int = 3600
    names: tuple[str, ...] = ()  # what else --only may call it: the run's name, its tags
    protocol: str = ""
    seeds: tuple[int, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)  # a run's overrides; an artefact's runs


@dataclass(frozen=True)
class Plan:
    """All items of one preset, runs first, in the order of the files."""

    root: Path
    name: str
    preset: Preset
    items: Mapping[str, Item]
    registry: Path | None = None  # a TOML file beside those of the repository

    @property
    def folder(self) -> Path:
        """The preset's results folder."""
        return self.root / "results" / self.name


def relative(root: Path, notebook: str, target: str) -> str:
    """Write a path of the repository as seen from the notebook's folder, which is where its kernel works."""
    return os.path.relpath(root / target, (root / notebook).parent)


def run_items(root: Path, preset_name: str, preset: Preset, name: str, run: RunTable) -> list[Item]:
    """Make the items of one training run: one per seed, the preset's or its own for that preset."""
    overrides = {**run.overrides, **run.presets.get(preset_name, {})}
    model, inputs = overrides.get(MODEL), ()
    if isinstance(model, str) and "/" in model and not (preset.hub and not (root / model).exists()):
        inputs = (model,)
        overrides[MODEL] = relative(root, TRAIN, model)
    file, _, attribute = run.protocol.rpartition(":")
    protocol = f"{relative(root, TRAIN, file)}:{attribute}" if file else run.protocol
    shared = Item(
        "",
        "run",
        run.paper,
        TRAIN,
        inputs=inputs,
        outputs=tuple(run.outputs),
        timeout=run.timeout or preset.timeout,
        names=(name, f"runs/{name}", *run.tags),
        protocol=run.protocol,
        config=overrides,
    )
    items = []
    for seed in run.seeds.get(preset_name, preset.seeds):
        id = f"runs/{name}-s{seed}"
        parameters = {
            "protocol": protocol,
            "preset": preset_name,
            "seed": seed,
            "overrides": json.dumps(overrides, sort_keys=True, default=str),
            "out": relative(root, TRAIN, f"results/{preset_name}/{id}"),
        }
        items.append(replace(shared, id=id, parameters=parameters, seeds=(seed,)))
    return items


def artefact_item(
    root: Path, preset_name: str, preset: Preset, id: str, table: ArtefactTable, runs: Mapping[str, list[Item]]
) -> Item:
    """Make the item of one table or figure. `runs` holds all runs' items by name."""
    skip = UNTABLED if table.runs and table.paper in preset.untabled else table.skip
    if skip is not None:
        return Item(id, "artefact", table.paper, skip=one_line(skip) or "no reason given")
    for name in table.runs:
        if name not in runs:
            raise UserError(f"[artefacts.{id}]: unknown run {name!r}; {hint(name, runs)}")
    used = {name: [item.seeds[0] for item in runs[name]] for name in table.runs}
    own = {
        "preset": preset_name,
        "out": relative(root, table.notebook, f"results/{preset_name}/.{id}.part"),
        "results": relative(root, table.notebook, "results"),
        "runs": used,  # so that folders of seeds that the preset no longer has are left alone
    }
    if taken := own.keys() & table.parameters:
        raise UserError(f"[artefacts.{id}]: parameter {min(taken)!r} is set by the runner")
    if not (root / table.notebook).is_file() or "runs" not in declared(root / table.notebook):
        del own["runs"]
    return Item(
        id,
        "artefact",
        table.paper,
        table.notebook,
        {**table.parameters, **own},
        needs=tuple(item.id for name in used for item in runs[name]),
        inputs=tuple(table.inputs),
        outputs=tuple(table.outputs),
        timeout=table.timeout or preset.timeout,
        seeds=tuple(sorted({seed for group in used.values() for seed in group})),
        config={"runs": used},
    )


def load(root: Path, preset_name: str, more: Path | None = None) -> Plan:
    """Read all items of one preset, those of the TOML file `more` among them."""
    preset, runs, artefacts = read(root, preset_name, more)
    by_run = {name: run_items(root, preset_name, preset, name, run) for name, run in runs.items()}
    made = [artefact_item(root, preset_name, preset, id, table, by_run) for id, table in artefacts.items()]
    items = [*(item for group in by_run.values() for item in group), *made]
    return Plan(root, preset_name, preset, {item.id: item for item in items}, more)


def select(plan: Plan, patterns: str | None, option: str = "--only") -> set[str]:
    """Return the ids that an option asks for, by patterns separated by commas, or all.

    --paper compares papers; any other option ids, run names and tags.
    """
    if patterns is None:
        return set(plan.items)
    names = {id: (item.paper,) if option == "--paper" else (id, *item.names) for id, item in plan.items.items()}
    chosen: set[str] = set()
    for pattern in filter(None, (part.strip() for part in patterns.split(","))):
        found = {id for id in names if any(fnmatchcase(name, pattern) for name in names[id])}
        if not found:
            known = {name for group in names.values() for name in group}
            raise UserError(f"{option} {pattern}: nothing is called that; {hint(pattern, known)}")
        chosen |= found
    return chosen


def with_needs(plan: Plan, chosen: set[str]) -> list[Item]:
    """Return the chosen items and the runs they need, in the plan's order."""
    wanted = chosen | {need for id in chosen for need in plan.items[id].needs}
    return [item for id, item in plan.items.items() if id in wanted]


def check_items(plan: Plan, items: Iterable[Item]) -> None:
    """Stop before anything starts if an item's notebook, parameters, inputs or overrides are wrong."""
    checked = set()
    for item in items:
        check_parameters(plan.root / item.notebook, item.parameters)
        for name in item.inputs:
            if not (plan.root / name).exists():
                raise UserError(f"{item.id}: {name} does not exist")
        setting = (item.protocol, item.parameters.get("overrides"))
        if item.kind == "run" and setting not in checked:
            checked.add(setting)
            file, _, attribute = item.protocol.rpartition(":")
            name = f"{plan.root / file}:{attribute}" if file else item.protocol
            try:
                configuration(plan.root).check(name, dict(item.config))
            except ValueError as error:
                raise UserError(f"[runs.{item.names[0]}]: {error}") from None


def configuration(root: Path) -> ModuleType:
    """Import coevolve.config of this repository, late: it knows the methods, their fields and what these may hold."""
    if (source := str(root / "src")) not in sys.path:
        sys.path.insert(0, source)
    try:
        from coevolve import config
    except ImportError as error:
        raise UserError(f"cannot import the package: {error}; install it with pip install -e .") from None
    return config
