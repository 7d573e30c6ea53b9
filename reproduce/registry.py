"""What there is to reproduce: presets.toml and the TOML files of runs and artefacts, checked field by field.

Knows names and types of fields; does not know what the fields mean.
"""

import csv
import difflib
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from reproduce import UserError, one_line

SECRET = re.compile(r"(^|_)(secret|password|passwd|credentials?|api_?key|token)$", re.IGNORECASE)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def different(seeds: list[int]) -> list[int]:
    """Refuse seeds of which two are equal."""
    if len(set(seeds)) < len(seeds):
        raise ValueError("seeds must differ")
    return seeds


Seeds = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1), AfterValidator(different)]
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]


class Table(BaseModel):
    """A TOML table: no other fields than these, and values of exactly these types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Preset(Table):
    """One table of presets.toml: how the batch works, not what a method trains with."""

    seeds: Seeds
    jobs: int = Field(0, ge=0)  # items at once; 0: as many as there are cores
    timeout: int = Field(3600, ge=1)  # seconds per item, unless the item says otherwise
    hub: bool = False  # true: a model with a slash that is no folder is a model id of the hub
    gpus: int = Field(0, ge=0)  # that Ray reserves for each run
    retries: int = Field(0, ge=0)  # how often an item that failed is tried again


class Run(Table):
    """One training run: a method, and what differs from the preset's fields of that method."""

    paper: str  # the file's name, unless the table says otherwise
    protocol: str  # a method's name, or path/to/file.py:Class, the path as seen from the repository
    overrides: dict[str, Any] = {}
    presets: dict[str, dict[str, Any]] = {}  # preset -> overrides for it alone
    seeds: dict[str, Seeds] = {}  # preset -> seeds in place of the preset's own
    tags: list[str] = []
    outputs: list[FileName] = ["summary.json", "metrics.jsonl", "config.json"]
    timeout: int | None = Field(None, ge=1)


class Artefact(Table):
    """One table or figure: a notebook, the runs it reads and the files it writes; or why there is none."""

    paper: str
    skip: str | None = None
    notebook: str = ""
    runs: list[str] = []
    outputs: list[FileName] = []
    inputs: list[str] = []
    parameters: dict[str, Any] = {}
    timeout: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def whole(self) -> Self:
        """Refuse an artefact that neither can be made nor says why not."""
        if self.skip is None and not (self.notebook and self.outputs):
            raise ValueError("needs notebook and outputs, or skip")
        return self


@dataclass(frozen=True)
class Registry:
    """Everything that can be asked for. `index` holds the line of each id that a paper shows."""

    preset: Preset
    runs: dict[str, Run]
    artefacts: dict[str, Artefact]
    index: dict[str, dict[str, str]]


Model = TypeVar("Model", bound=Table)


def hint(name: str, known: Iterable[str]) -> str:
    """Name up to three close matches of a misspelt word, or all that is allowed when nothing is close."""
    known = sorted(known)
    if close := difflib.get_close_matches(name, known, n=3, cutoff=0.5):
        return f"did you mean {', '.join(close)}?"
    return f"allowed: {', '.join(known[:12]) or 'none'}{', ...' if len(known) > 12 else ''}"


def read_toml(path: Path) -> dict[str, Any]:
    """Parse one TOML file. Raises UserError with the reason in one line."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} does not exist") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UserError(f"{path.name}: {error}") from None


def check(kind: type[Model], where: str, table: Any) -> Model:
    """Return the table as a `kind`. Raises UserError that names the first wrong field."""
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        fault = error.errors()[0]
    field = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "extra_forbidden":
        raise UserError(f"{where}: unknown field {field!r}; {hint(field, kind.model_fields)}")
    raise UserError(one_line(f"{where}: {field or 'the table'}: {fault['msg']}, got {fault['input']!r}"))


def read(root: Path, preset: str, more: Path | None = None) -> Registry:
    """Read one preset, and the runs and artefacts of every TOML file in reproduce/ and of the file `more`."""
    folder = root / "reproduce"
    presets = read_toml(folder / "presets.toml")
    if preset not in presets:
        raise UserError(f"unknown preset {preset!r}; {hint(preset, presets)}")
    registry = Registry(check(Preset, f"presets.toml [{preset}]", presets[preset]), {}, {}, read_index(folder))
    for path in [*sorted(folder.glob("*.toml")), *([more] if more else [])]:
        if path.name != "presets.toml":
            add(registry, path, presets)
    return registry


def add(registry: Registry, path: Path, presets: Iterable[str]) -> None:
    """Add the runs and artefacts of one file."""
    tables = read_toml(path)
    for group, kind, known in (("runs", Run, registry.runs), ("artefacts", Artefact, registry.artefacts)):
        group_tables = tables.pop(group, {})
        if not isinstance(group_tables, dict):
            raise UserError(f"{path.name}: {group} must be tables [{group}.NAME]")
        for name, table in group_tables.items():
            where = f"{path.name} [{group}.{name}]"
            if not NAME.fullmatch(name):
                raise UserError(f"{where}: {name!r} is not a plain name ({NAME.pattern})")
            if name in known:
                raise UserError(f"{where}: another file has one of this name")
            if not isinstance(table, dict):
                raise UserError(f"{where}: must be a table, not {table!r}")
            known[name] = check(kind, where, {"paper": path.stem, **table})
            for preset in {*table.get("presets", ()), *(table.get("seeds", ()))} - {*presets}:
                raise UserError(f"{where}: unknown preset {preset!r}; {hint(preset, presets)}")
    if tables:
        raise UserError(f"{path.name}: unknown field {min(tables)!r}; allowed: artefacts, runs")


def read_index(folder: Path) -> dict[str, dict[str, str]]:
    """Read the list of everything the papers show: id -> line."""
    path = folder / "paper_numbers" / "index.csv"
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return {line["id"]: line for line in csv.DictReader(file)}
    except (OSError, KeyError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {one_line(str(error))}") from None
