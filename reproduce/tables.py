"""Read presets.toml, the papers' TOMLs and the index of what the papers show; refuse what the schema lacks.

Knows names and types of fields; does not know what the fields mean.
"""

import csv
import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reproduce import UserError, one_line

SLUG = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
SECRET = re.compile(r"(^|_)(secret|password|passwd|credentials?|api_?key|token)$", re.IGNORECASE)
PRESET_FIELDS = {"seeds": [int], "kernel": str, "jobs": int, "timeout": int, "hub": bool, "gpus": int, "retries": int}
LEAST = {"jobs": 0, "timeout": 1, "gpus": 0, "retries": 0}  # the smallest value of a preset's field
RUN_FIELDS = {
    "protocol": str,
    "overrides": dict,
    "presets": dict,
    "seeds": dict,
    "tags": [str],
    "outputs": [str],
    "timeout": int,
}
ARTEFACT_FIELDS = {
    "notebook": str,
    "runs": [str],
    "outputs": [str],
    "inputs": [str],
    "parameters": dict,
    "skip": str,
    "timeout": int,
}
Fields = Mapping[str, type | list[type]]  # name -> type of the value; [type] is a list of them


@dataclass(frozen=True)
class Preset:
    """One table of presets.toml."""

    name: str
    seeds: tuple[int, ...] = (0,)
    kernel: str = "python3"
    jobs: int = 0  # 0: as many as there are cores
    timeout: int = 3600  # seconds per item, unless the item says otherwise
    hub: bool = False  # True: a policy with a slash that is no folder is a model id of the hub
    gpus: int = 0  # that a cluster reserves for each run
    retries: int = 0  # how often an item that failed is tried again
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # protocol -> overrides


def hint(name: str, known: Iterable[str]) -> str:
    """Name up to three close matches of a misspelt word, or all that is allowed when nothing is close."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return f"did you mean {', '.join(close)}?"
    return f"allowed: {', '.join(known[:12]) or 'none'}{', ...' if len(known) > 12 else ''}"


def read_toml(path: Path) -> dict[str, Any]:
    """Parse one TOML file, or say in one line what is wrong with it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} does not exist") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UserError(f"{path.name}: {error}") from None


def check_fields(where: str, table: Any, fields: Fields, required: tuple[str, ...] = ()) -> None:
    """Refuse a table with an unknown, missing or wrongly typed field."""
    if not isinstance(table, dict):
        raise UserError(f"{where}: must be a table, not {table!r}")
    for name, value in table.items():
        if name not in fields:
            raise UserError(f"{where}: unknown field {name!r}; allowed: {', '.join(sorted(fields))}")
        kind = fields[name]
        if isinstance(kind, list):
            good = isinstance(value, list) and all(type(entry) is kind[0] for entry in value)
            wanted = f"a list of {kind[0].__name__}"
        else:
            good, wanted = type(value) is kind, kind.__name__
        if not good:
            raise UserError(f"{where}: {name} must be {wanted}, not {value!r}")
    if missing := [name for name in required if name not in table]:
        raise UserError(f"{where}: {missing[0]} is missing")


def check_name(where: str, name: str, pattern: re.Pattern[str] = SLUG) -> None:
    """Refuse a name that could not be a folder or file of its own under results/."""
    if not pattern.fullmatch(name):
        raise UserError(f"{where}: {name!r} is not a plain name ({pattern.pattern})")


def check_seeds(where: str, seeds: Any) -> None:
    """Refuse anything but a list of one or more different whole numbers from 0."""
    good = isinstance(seeds, list) and seeds and all(type(seed) is int and seed >= 0 for seed in seeds)
    if not good or len(set(seeds)) < len(seeds):
        raise UserError(f"{where}: seeds must be one or more different whole numbers from 0, not {seeds!r}")


def read_preset(root: Path, name: str, protocols: set[str]) -> Preset:
    """Read one preset; tables in it are default overrides of the protocol they are called after."""
    tables = read_toml(root / "reproduce" / "presets.toml")
    if name not in tables:
        raise UserError(f"unknown preset {name!r}; allowed: {', '.join(sorted(tables))}")
    where = f"presets.toml [{name}]"
    check_name("presets.toml", name)
    table = tables[name] if isinstance(tables[name], dict) else {}
    defaults = {key: value for key, value in table.items() if key in protocols}
    settings = {key: value for key, value in table.items() if key not in protocols}
    for key, value in table.items():
        if key in protocols and not isinstance(value, dict):
            raise UserError(f"{where}: {key} must be a table of default overrides, not {value!r}")
    check_fields(where, settings, PRESET_FIELDS | dict.fromkeys(protocols, dict), required=("seeds",))
    preset = Preset(name, **settings | {"seeds": tuple(settings["seeds"])}, defaults=defaults)
    if preset.kernel not in ("warm", "python3"):
        raise UserError(f"{where}: kernel must be warm or python3, not {preset.kernel!r}")
    check_seeds(where, list(preset.seeds))
    for key, least in LEAST.items():
        if (value := getattr(preset, key)) < least:
            raise UserError(f"{where}: {key} must be at least {least}, not {value}")
    return preset


def read_index(root: Path) -> dict[str, dict[str, str]]:
    """Read the list of everything the papers show: id -> row."""
    path = root / "reproduce" / "paper_numbers" / "index.csv"
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return {row["id"]: row for row in csv.DictReader(file)}
    except (OSError, KeyError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {one_line(str(error))}") from None


def read_papers(root: Path, index: Mapping[str, Mapping[str, str]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read and check every paper's TOML. Returns runs, each with its paper, and artefacts: name -> table."""
    presets = read_toml(root / "reproduce" / "presets.toml")
    runs: dict[str, Any] = {}
    artefacts: dict[str, Any] = {}
    for path in sorted((root / "reproduce").glob("*.toml")):
        if path.stem == "presets":
            continue
        tables = read_toml(path)
        check_fields(path.name, tables, {"runs": dict, "artefacts": dict})
        for name, table in tables.get("runs", {}).items():
            where = f"{path.name} [runs.{name}]"
            check_name(where, name)
            check_fields(where, table, RUN_FIELDS, required=("protocol",))
            if name in runs:
                raise UserError(f"{where}: another file has a run of this name")
            for preset, overrides in table.get("presets", {}).items():
                if preset not in presets or not isinstance(overrides, dict):
                    raise UserError(f"{where}: presets holds tables of overrides by preset; {hint(preset, presets)}")
            for preset, seeds in table.get("seeds", {}).items():
                if preset not in presets:
                    raise UserError(f"{where}: seeds for an unknown preset; {hint(preset, presets)}")
                check_seeds(where, seeds)
            runs[name] = table | {"paper": path.stem}
        for id, table in tables.get("artefacts", {}).items():
            where = f"{path.name} [artefacts.{id}]"
            if index.get(id, {}).get("paper") != path.stem:
                own = [known for known, row in index.items() if row["paper"] == path.stem]
                raise UserError(f"{where}: the index has no such id of this paper; {hint(id, own)}")
            check_fields(where, table, ARTEFACT_FIELDS, () if "skip" in table else ("notebook", "outputs"))
            artefacts[id] = table
        for table in (*tables.get("runs", {}).values(), *tables.get("artefacts", {}).values()):
            for output in table.get("outputs", ()):
                check_name(f"{path.name}: output", output, FILE)
    return runs, artefacts
