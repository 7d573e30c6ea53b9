"""Turn presets and TOML files into work items: runs (one per seed) and artefacts (one per id).

Knows what must be done and in which order; does not know what has been done already, nor how to do
it.
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
from reproduce.registry import ArtefactTable, Fault, Preset, RunTable, hint, read

TRAIN = "notebooks/train.ipynb"
UNTABLED = (
    "its notebook lays out the tiny world; use scores.csv and summary.json of the runs"
)
# The override that names a model; a value with a slash is a folder or a hub id.
MODEL = "model"
# In the overrides of a preset: every method.
ALL = "all"


@dataclass(frozen=True, kw_only=True)
class Item:
    """One notebook to execute. Its id is its folder under results/<preset>/."""

    id: str
    kind: str  # "run" or "artefact"
    paper: str
    notebook: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()  # ids of runs, and of artefacts that stand before it
    inputs: tuple[
        str, ...
    ] = ()  # files or folders below the root whose bytes are hashed
    outputs: tuple[str, ...] = ()
    skip: str | None = None  # why it is never made
    fault: str | None = (
        None  # why it cannot be made: a mistake in its entry or notebook
    )
    timeout: int = 3600  # seconds
    names: tuple[
        str, ...
    ] = ()  # other names that --only matches: the run's name, its tags
    method: str = ""
    # A run's overrides; an artefact's runs.
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """All items of one preset, runs first, in the order of the files."""

    root: Path
    name: str
    preset: Preset
    items: dict[str, Item]
    registry: Path | None = None  # a TOML file outside the repository's

    @property
    def folder(self) -> Path:
        """The preset's results folder."""
        return self.root / "results" / self.name


def relative(root: Path, notebook: str, target: str) -> str:
    """Return a path of the repository relative to the notebook's folder, where its kernel works."""
    return os.path.relpath(root / target, (root / notebook).parent)


def split_method(method: str) -> tuple[str, str]:
    """Split `path/to/file.py:Class` into file and class; a method's name has no file."""
    file, _, attribute = method.rpartition(":")
    return file, attribute


def run_items(plan: Plan, name: str, run: RunTable) -> list[Item]:
    """Make the items of one training run: one for each seed of the run or else of the preset."""
    of_all_runs = plan.preset.overrides.get(ALL, {})
    of_method = plan.preset.overrides.get(run.method, {})
    of_run = run.overrides | run.presets.get(plan.name, {})
    overrides = of_all_runs | of_method | of_run
    model = overrides.get(MODEL)
    backbones = plan.preset.backbones if model is None else []
    inputs: tuple[str, ...] = ()
    if _is_folder(plan, model):
        inputs = (model,)
        overrides[MODEL] = relative(plan.root, TRAIN, model)
    method = run.method
    file, attribute = split_method(method)
    if file:
        method = f"{relative(plan.root, TRAIN, file)}:{attribute}"
    items = []
    for seed in run.seeds.get(plan.name, plan.preset.seeds):
        id = f"runs/{name}-s{seed}"
        if backbones:
            overrides = overrides | {MODEL: backbones[seed % len(backbones)]}
        parameters = {
            "method": method,
            "preset": plan.name,
            "overrides": json.dumps(overrides, sort_keys=True, default=str),
            "seed": seed,
            "out": relative(plan.root, TRAIN, f"results/{plan.name}/{id}"),
        }
        item = Item(
            id=id,
            kind="run",
            paper=run.paper,
            notebook=TRAIN,
            parameters=parameters,
            inputs=inputs,
            outputs=tuple(run.outputs),
            timeout=run.timeout or plan.preset.timeout,
            names=(name, f"runs/{name}", *run.tags),
            method=run.method,
            config=overrides,
        )
        items.append(item)
    return items


def _is_folder(plan: Plan, model: object) -> bool:
    """Whether a model is a folder of the repository: it has a slash and is not a hub id."""
    if not isinstance(model, str) or "/" not in model:
        return False
    return (plan.root / model).exists() or not plan.preset.hub


def artefact_item(
    plan: Plan,
    id: str,
    table: ArtefactTable,
    runs: Mapping[str, list[Item]],
    earlier: Mapping[str, Item],
) -> Item:
    """Make the item of one table or figure.

    `runs` holds the items of the runs that it may read by name, `earlier` the artefacts above it.
    Raises UserError for an unknown run or artefact and for a notebook that cannot be read.
    """
    item = Item(id=id, kind="artefact", paper=table.paper)
    skip = table.skip
    if table.runs and table.paper in plan.preset.untabled:
        skip = UNTABLED
    if skip is not None:
        return replace(item, skip=one_line(skip) or "no reason given")
    _check_artefacts(id, table, earlier)
    run_seeds: dict[str, list[int]] = {}
    needs: list[str] = []
    for name in _names_of_runs(id, table, runs):
        for run in runs[name]:
            if run.fault is not None:
                raise UserError(f"needs {run.id}: {run.fault}")
        run_seeds[name] = [run.parameters["seed"] for run in runs[name]]
        needs += [run.id for run in runs[name]]
    return replace(
        item,
        notebook=table.notebook,
        parameters=_artefact_parameters(plan, id, table, run_seeds),
        needs=(*needs, *table.artefacts),
        inputs=tuple(table.inputs),
        outputs=tuple(table.outputs),
        timeout=table.timeout or plan.preset.timeout,
        config={"runs": run_seeds},
    )


def _check_artefacts(
    id: str, table: ArtefactTable, earlier: Mapping[str, Item]
) -> None:
    """Raise UserError unless the artefacts that an artefact reads stand above it and are made."""
    for name in table.artefacts:
        if name not in earlier:
            raise UserError(
                f"[artefacts.{id}]: no artefact {name!r} above it; {hint(name, earlier)}"
            )
        reason = earlier[name].skip or earlier[name].fault
        if reason is not None:
            raise UserError(f"needs {name}: {reason}")


def _names_of_runs(
    id: str, table: ArtefactTable, runs: Mapping[str, list[Item]]
) -> list[str]:
    """Return the names of an artefact's runs, each once; UserError for one that does not exist."""
    names: list[str] = []
    for pattern in table.runs:
        matches = [name for name in runs if fnmatchcase(name, pattern)]
        if not matches:
            raise UserError(
                f"[artefacts.{id}]: unknown run {pattern!r}; {hint(pattern, runs)}"
            )
        names += matches
    return list(dict.fromkeys(names))


def _artefact_parameters(
    plan: Plan, id: str, table: ArtefactTable, run_seeds: dict[str, list[int]]
) -> dict[str, Any]:
    """Return the table's parameters and those that the runner sets.

    `runs` gives the seeds of each run, so that a notebook ignores folders of seeds that the preset
    no longer has.
    """
    set_by_runner = {
        "preset": plan.name,
        "out": relative(plan.root, table.notebook, f"results/{plan.name}/.{id}.part"),
        "results": relative(plan.root, table.notebook, "results"),
        "runs": run_seeds,
    }
    conflicts = set_by_runner.keys() & table.parameters
    if conflicts:
        raise UserError(
            f"[artefacts.{id}]: parameter {min(conflicts)!r} is set by the runner"
        )
    if "runs" not in declared(plan.root / table.notebook):
        del set_by_runner["runs"]
    return table.parameters | set_by_runner


def load(root: Path, preset_name: str, more: Path | None = None) -> Plan:
    """Read all items of one preset, including those of the TOML file `more`.

    An item with a mistake in its entry or its notebook has a `fault`; the others are as without it.
    """
    preset, entries = read(root, preset_name, more)
    plan = Plan(root, preset_name, preset, {}, more)
    runs = {name: run_items(plan, name, run) for name, run in entries.runs.items()}
    faulty = [faulty_item(fault) for fault in entries.faults]
    for item in faulty:
        if item.kind == "run":
            runs[item.names[0]] = [item]
    own = entries if more is None else read(root, preset_name)[1]
    own_faults = {fault.name for fault in own.faults if fault.section == "runs"}
    own_names = own.runs.keys() | own_faults
    own_runs = {name: runs[name] for name in runs if name in own_names}
    artefacts: dict[str, Item] = {}
    for id, table in entries.artefacts.items():
        # A pattern of the repository's tables means the repository's runs: the file `more` makes
        # none of these tables stale.
        readable_runs = own_runs if id in own.artefacts else runs
        try:
            item = artefact_item(plan, id, table, readable_runs, artefacts)
        except UserError as error:
            item = Item(
                id=id, kind="artefact", paper=table.paper, fault=one_line(str(error))
            )
        artefacts[id] = item
    faulty_artefacts = [item for item in faulty if item.kind == "artefact"]
    for item in chain(*runs.values(), artefacts.values(), faulty_artefacts):
        plan.items[item.id] = item
    return plan


def faulty_item(fault: Fault) -> Item:
    """Make the item of an entry that cannot be used. It has no notebook."""
    name = one_line(fault.name) or repr(fault.name)
    is_run = fault.section == "runs"
    return Item(
        id=f"runs/{name}" if is_run else name,
        kind="run" if is_run else "artefact",
        paper=fault.paper,
        names=(fault.name,) if is_run else (),
        fault=one_line(fault.reason),
    )


def select(plan: Plan, patterns: str | None, option: str) -> set[str]:
    """Return the ids that an option selects by comma-separated patterns; all if it is not set.

    --paper matches papers; any other option matches ids, run names and tags.
    """
    if patterns is None:
        return set(plan.items)
    names_of = {id: _names(item, option) for id, item in plan.items.items()}
    chosen: set[str] = set()
    for pattern in patterns.split(","):
        pattern = pattern.strip()
        if not pattern:
            continue
        matches = {id for id, names in names_of.items() if _matches(names, pattern)}
        if not matches:
            all_names = set(chain(*names_of.values()))
            raise UserError(
                f"{option} {pattern}: nothing is called that; {hint(pattern, all_names)}"
            )
        chosen |= matches
    return chosen


def _names(item: Item, option: str) -> tuple[str, ...]:
    if option == "--paper":
        return (item.paper,)
    return (item.id, *item.names)


def _matches(names: tuple[str, ...], pattern: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)


def with_needs(plan: Plan, chosen: set[str]) -> list[Item]:
    """Return the chosen items and all that they need, in the plan's order: needs come first."""
    ids: set[str] = set()
    pending = set(chosen)
    while pending:
        id = pending.pop()
        ids.add(id)
        pending |= set(plan.items[id].needs) - ids
    return [item for id, item in plan.items.items() if id in ids]


def check_items(plan: Plan, items: list[Item]) -> None:
    """Check notebooks, parameters, inputs and overrides before anything starts.

    Raises UserError for the first mistake.
    """
    methods = [ALL, *method_names(plan.root)]
    for method in plan.preset.overrides:
        if method not in methods:
            raise UserError(
                f"presets.toml: [{plan.name}.overrides]: unknown method {method!r}; "
                f"{hint(method, methods)}"
            )
    for item in items:
        if item.fault is not None:
            raise UserError(item.fault)
        check_parameters(plan.root / item.notebook, item.parameters)
        for name in item.inputs:
            if not (plan.root / name).exists():
                raise UserError(f"{item.id}: {name} does not exist")
    # The seeds of a run share its overrides, so one of them is enough.
    runs = {item.names[0]: item for item in items if item.kind == "run"}
    for name, item in runs.items():
        _check_overrides(plan, name, item)


def _check_overrides(plan: Plan, name: str, item: Item) -> None:
    method = item.method
    file, attribute = split_method(method)
    if file:
        method = f"{plan.root / file}:{attribute}"
    try:
        configuration(plan.root).build(method, "none", out=".", overrides=item.config)
    except ValueError as error:
        raise UserError(f"[runs.{name}]: {error}") from None


def method_names(root: Path) -> Mapping[str, str]:
    """Return the methods of this repository: {name: module:Class}."""
    use_package_of(root)
    from coevolve.methods.registry import METHODS

    return METHODS


def configuration(root: Path) -> ModuleType:
    """Import coevolve.training.config of this repository: fields and their allowed values."""
    use_package_of(root)
    from coevolve.training import config

    return config


def use_package_of(root: Path) -> None:
    """Let a later `import coevolve` load the package of this repository.

    Modules of the batch import coevolve only inside functions, when the repository is known.
    """
    source = str(root / "src")
    if source not in sys.path:
        sys.path.insert(0, source)
