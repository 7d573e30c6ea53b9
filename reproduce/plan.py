"""Turn presets and TOML files into work items: runs (one per seed) and artefacts (one per id).

Knows what must be done and in which order; does not know what has been done already, nor how to do it.
"""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import chain
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
    config: Mapping[str, Any] = field(default_factory=dict)  # a run's overrides; an artefact's runs


@dataclass(frozen=True)
class Plan:
    """All items of one preset, runs first, in the order of the files."""

    root: Path
    name: str
    preset: Preset
    items: dict[str, Item]
    registry: Path | None = None  # a TOML file beside those of the repository

    @property
    def folder(self) -> Path:
        """The preset's results folder."""
        return self.root / "results" / self.name


def relative(root: Path, notebook: str, target: str) -> str:
    """Write a path of the repository as seen from the notebook's folder, which is where its kernel works."""
    return os.path.relpath(root / target, (root / notebook).parent)


def run_items(plan: Plan, name: str, run: RunTable) -> list[Item]:
    """Make the items of one training run: one per seed, the preset's or its own for that preset."""
    overrides = {**run.overrides, **run.presets.get(plan.name, {})}
    model, inputs = overrides.get(MODEL), ()
    if isinstance(model, str) and "/" in model and ((plan.root / model).exists() or not plan.preset.hub):
        inputs = (model,)
        overrides[MODEL] = relative(plan.root, TRAIN, model)
    file, _, attribute = run.protocol.rpartition(":")
    shared = Item(
        "",
        "run",
        run.paper,
        TRAIN,
        {
            "protocol": f"{relative(plan.root, TRAIN, file)}:{attribute}" if file else run.protocol,
            "preset": plan.name,
            "overrides": json.dumps(overrides, sort_keys=True, default=str),
        },
        inputs=inputs,
        outputs=tuple(run.outputs),
        timeout=run.timeout or plan.preset.timeout,
        names=(name, f"runs/{name}", *run.tags),
        protocol=run.protocol,
        config=overrides,
    )
    items = []
    for seed in run.seeds.get(plan.name, plan.preset.seeds):
        id = f"runs/{name}-s{seed}"
        own = {"seed": seed, "out": relative(plan.root, TRAIN, f"results/{plan.name}/{id}")}
        items.append(replace(shared, id=id, parameters={**shared.parameters, **own}))
    return items


def artefact_item(plan: Plan, id: str, table: ArtefactTable, runs: Mapping[str, list[Item]]) -> Item:
    """Make the item of one table or figure. `runs` holds all runs' items by name."""
    skip = UNTABLED if table.runs and table.paper in plan.preset.untabled else table.skip
    if skip is not None:
        return Item(id, "artefact", table.paper, skip=one_line(skip) or "no reason given")
    for name in table.runs:
        if name not in runs:
            raise UserError(f"[artefacts.{id}]: unknown run {name!r}; {hint(name, runs)}")
    used = {name: [item.parameters["seed"] for item in runs[name]] for name in table.runs}
    own = {
        "preset": plan.name,
        "out": relative(plan.root, table.notebook, f"results/{plan.name}/.{id}.part"),
        "results": relative(plan.root, table.notebook, "results"),
        "runs": used,  # so that folders of seeds that the preset no longer has are left alone
    }
    if taken := own.keys() & table.parameters:
        raise UserError(f"[artefacts.{id}]: parameter {min(taken)!r} is set by the runner")
    if "runs" not in declared(plan.root / table.notebook):
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
        timeout=table.timeout or plan.preset.timeout,
        config={"runs": used},
    )


def load(root: Path, preset_name: str, more: Path | None = None) -> Plan:
    """Read all items of one preset, those of the TOML file `more` among them."""
    preset, tables = read(root, preset_name, more)
    plan = Plan(root, preset_name, preset, {}, more)
    runs = {name: run_items(plan, name, run) for name, run in tables.runs.items()}
    made = [artefact_item(plan, id, table, runs) for id, table in tables.artefacts.items()]
    plan.items.update({item.id: item for item in [*chain(*runs.values()), *made]})
    return plan


def select(plan: Plan, patterns: str | None, option: str) -> set[str]:
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


def check_items(plan: Plan, items: list[Item]) -> None:
    """Stop before anything starts if an item's notebook, parameters, inputs or overrides are wrong."""
    for item in items:
        check_parameters(plan.root / item.notebook, item.parameters)
        for name in item.inputs:
            if not (plan.root / name).exists():
                raise UserError(f"{item.id}: {name} does not exist")
    for name, item in {item.names[0]: item for item in items if item.kind == "run"}.items():  # one seed of each
        file, _, attribute = item.protocol.rpartition(":")
        method = f"{plan.root / file}:{attribute}" if file else item.protocol
        try:
            configuration(plan.root).build(method, "none", out=".", overrides=item.config)
        except ValueError as error:
            raise UserError(f"[runs.{name}]: {error}") from None


def configuration(root: Path) -> ModuleType:
    """Import coevolve.training.config of this repository, late: it knows the methods, their fields and what these may hold."""
    if (source := str(root / "src")) not in sys.path:
        sys.path.insert(0, source)
    from coevolve.training import config

    return config
