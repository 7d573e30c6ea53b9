"""Turn presets and the papers' TOMLs into work items: runs (one per seed) and artefacts (one per id).

Knows what must be done and in which order; does not know what has been done already, nor how to do it.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from reproduce import UserError, one_line
from reproduce.parameters import check_parameters, declared
from reproduce.tables import SECRET, Preset, hint, read_index, read_papers, read_preset

TRAIN = "notebooks/train.ipynb"
RUN_OUTPUTS = ("summary.json", "metrics.jsonl", "config.json")
MODEL = "model"  # the override that names a model; with a slash it is a folder, or a hub id


@dataclass(frozen=True)
class Item:
    """One notebook to execute. Its id is its folder under results/<preset>/."""

    id: str
    kind: str  # "run", "artefact", or "unclaimed": an id of the index that no TOML claims
    notebook: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()  # files or folders, relative to the root, whose bytes are part of the key
    outputs: tuple[str, ...] = ()
    skip: str | None = None
    timeout: int = 3600
    names: tuple[str, ...] = ()  # what else --only may call it: the run's name, its tags
    paper: str = ""
    protocol: str = ""
    seeds: tuple[int, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)  # a run's overrides; an artefact's runs


@dataclass(frozen=True)
class Plan:
    """All items of one preset, runs first, in the order of the files."""

    root: Path
    preset: Preset
    items: Mapping[str, Item]

    @property
    def folder(self) -> Path:
        """The preset's results folder."""
        return self.root / "results" / self.preset.name


def relative(root: Path, notebook: str, target: str) -> str:
    """Write a path of the repository as seen from the notebook's folder, which is where its kernel works."""
    return os.path.relpath(root / target, (root / notebook).parent)


def run_items(root: Path, preset: Preset, where: str, name: str, table: dict[str, Any]) -> list[Item]:
    """Make the items of one training run: one per seed, the preset's or its own for that preset."""
    overrides = {
        **preset.defaults.get(table["protocol"], {}),
        **table.get("overrides", {}),
        **table.get("presets", {}).get(preset.name, {}),
    }
    for key in overrides:
        if SECRET.search(key):
            raise UserError(f"{where}: {key!r} looks like a secret, and results are public")
    inputs: tuple[str, ...] = ()
    model = overrides.get(MODEL)
    if isinstance(model, str) and "/" in model and not (preset.hub and not (root / model).exists()):
        inputs = (model,)
        if not os.path.isabs(model):
            overrides[MODEL] = relative(root, TRAIN, model)
    outputs, timeout = tuple(table.get("outputs", RUN_OUTPUTS)), table.get("timeout", preset.timeout)
    names = (name, f"runs/{name}", *table.get("tags", ()))
    items = []
    for seed in table.get("seeds", {}).get(preset.name, preset.seeds):
        id = f"runs/{name}-s{seed}"
        parameters = {
            "protocol": table["protocol"],
            "preset": preset.name,
            "seed": seed,
            "overrides": json.dumps(overrides, sort_keys=True, default=str),
            "out": relative(root, TRAIN, f"results/{preset.name}/{id}"),
        }
        items.append(
            Item(
                id,
                "run",
                TRAIN,
                parameters,
                (),
                inputs,
                outputs,
                None,
                timeout,
                names,
                table["paper"],
                table["protocol"],
                (seed,),
                overrides,
            )
        )
    return items


def artefact_item(
    root: Path, preset: Preset, id: str, table: dict[str, Any], runs: Mapping[str, list[Item]], row: Mapping[str, str]
) -> Item:
    """Make the item of one table or figure; `row` is its line of the index."""
    where = f"[artefacts.{id}]"
    if "skip" in table:
        return Item(id, "artefact", skip=one_line(table["skip"]) or "no reason given", paper=row["paper"])
    for name in table.get("runs", ()):
        if name not in runs:
            raise UserError(f"{where}: unknown run {name!r}; {hint(name, runs)}")
    for name in table.get("parameters", {}):
        if name in ("preset", "out", "results", "runs") or SECRET.search(name):
            raise UserError(f"{where}: parameter {name!r} is set by the runner or looks like a secret")
    notebook = table["notebook"]
    used = {name: [item.seeds[0] for item in runs[name]] for name in table.get("runs", ())}
    parameters = {
        **table.get("parameters", {}),
        "preset": preset.name,
        "out": relative(root, notebook, f"results/{preset.name}/.{id}.part"),
        "results": relative(root, notebook, "results"),
    }
    if (root / notebook).is_file() and "runs" in declared(root / notebook):
        parameters["runs"] = used  # so that folders of seeds that the preset no longer has are left alone
    numbers = f"reproduce/paper_numbers/{row.get('numbers_file')}"
    inputs = ([numbers] if row.get("numbers_file") and (root / numbers).exists() else []) + table.get("inputs", [])
    seeds = tuple(sorted({seed for group in used.values() for seed in group}))
    needs = tuple(item.id for name in used for item in runs[name])
    return Item(
        id,
        "artefact",
        notebook,
        parameters,
        needs,
        tuple(dict.fromkeys(inputs)),
        tuple(table["outputs"]),
        None,
        table.get("timeout", preset.timeout),
        paper=row["paper"],
        seeds=seeds,
        config={"runs": used},
    )


def unclaimed(root: Path, id: str, paper: str) -> Item:
    """Make the entry of an id that no TOML claims, with the reason."""
    built = (root / "reproduce" / f"{paper}.toml").exists()
    reason = (
        f"not claimed in reproduce/{paper}.toml"
        if built
        else f"belongs to a method that is not built yet: {paper.upper()}"
    )
    return Item(id, "unclaimed", skip=reason, paper=paper)


def load(root: Path, preset_name: str) -> Plan:
    """Read the whole registry of one preset."""
    index = read_index(root)
    runs, artefacts = read_papers(root, index)
    protocols = {table["protocol"] for table in runs.values()} | {row["paper"] for row in index.values()}
    preset = read_preset(root, preset_name, protocols)
    by_run = {name: run_items(root, preset, f"[runs.{name}]", name, table) for name, table in runs.items()}
    items = {item.id: item for group in by_run.values() for item in group}
    for id, row in index.items():
        if id in artefacts:
            items[id] = artefact_item(root, preset, id, artefacts[id], by_run, row)
        else:
            items[id] = unclaimed(root, id, row["paper"])
    return Plan(root, preset, items)


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
    if not chosen:
        raise UserError(f"{option} names nothing")
    return chosen


def with_needs(plan: Plan, chosen: set[str]) -> list[Item]:
    """Return the chosen items and the runs they need, in the plan's order."""
    wanted = chosen | {need for id in chosen for need in plan.items[id].needs}
    return [item for id, item in plan.items.items() if id in wanted]


def check_items(plan: Plan, items: Iterable[Item]) -> None:
    """Stop before anything starts if an item's notebook, parameters, inputs or overrides are wrong."""
    for item in items:
        if item.skip is None:
            check_parameters(plan.root / item.notebook, item.parameters)
            for name in item.inputs:
                if not (plan.root / name).exists():
                    what = "checkpoint" if item.kind == "run" else "input"
                    raise UserError(f"{item.id}: {what} {name} does not exist")
    runs = {(item.protocol, item.parameters["overrides"]): item for item in items if item.kind == "run"}
    if runs:
        check = protocol_check(plan.root)
        for item in runs.values():
            try:
                check(item.protocol, dict(item.config))
            except ValueError as error:
                raise UserError(f"[runs.{item.names[0]}]: {error}") from None


def protocol_check(root: Path) -> Callable[[str, dict[str, Any]], None]:
    """Import the package's own check of protocol names and fields, late, so that listing stays fast."""
    if (source := str(root / "src")) not in sys.path:
        sys.path.insert(0, source)
    try:
        from coevolve.config import check
    except ImportError as error:
        raise UserError(f"cannot import the package: {error}; install it with pip install -e .") from None
    return check
