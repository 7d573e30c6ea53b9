"""What there is to reproduce: presets.toml and the TOML files of runs and artefacts, validated.

Knows names and types of fields; does not know what the fields mean.
"""

import difflib
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from reproduce import UserError, one_line, user_path

# Files of reproduce/ without runs and artefacts.
OTHER_FILES = (
    "presets.toml",
    "claims.toml",
    "papers.toml",
)
SECRET = re.compile(
    r"(^|_)(secret|password|passwd|credentials?|api_?key|token)$", re.IGNORECASE
)
MAX_LISTED = 12  # names in an error message
parse_toml = cache(tomllib.loads)


def public(name: str) -> str:
    """Return a name unless it looks like a secret's: values are written into public results."""
    if SECRET.search(name):
        raise ValueError(f"{name!r} looks like a secret, and results are public")
    return name


def expand_home(text: str) -> str:
    """Return a path, or path/to/file.py:Class, with a leading ~ replaced by the home folder."""
    return str(user_path(text)) if text.startswith("~") else text


def expand_model(values: dict[str, Any]) -> dict[str, Any]:
    """Return overrides whose `model`, where it is one name, has no leading ~."""
    model = values.get("model")
    return values | {"model": expand_home(model)} if isinstance(model, str) else values


def all_different(seeds: list[int]) -> list[int]:
    """Return the seeds unless two of them are equal."""
    if len(set(seeds)) < len(seeds):
        raise ValueError("seeds must differ")
    return seeds


Seed = Annotated[int, Field(ge=0)]
Seeds = Annotated[list[Seed], Field(min_length=1), AfterValidator(all_different)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
PublicName = Annotated[str, AfterValidator(public)]
Values = dict[PublicName, Any]
Grid = dict[PublicName, Annotated[list[Any], Field(min_length=1)]]
Overrides = Annotated[Values, AfterValidator(expand_model)]
PathText = Annotated[str, AfterValidator(expand_home)]
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]


class Table(BaseModel):
    """A TOML table: no other fields than these, and values of exactly these types."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Preset(Table):
    """One table of presets.toml: how the batch works, not what a method trains with."""

    seeds: Seeds
    # Runs that name no model take these in turn, by their seed; empty: the training preset's model.
    backbones: list[str] = []
    jobs: int = Field(0, ge=0)  # items at once; 0: one per core
    timeout: int = Field(3600, ge=1)  # seconds per item, unless the item sets its own
    hub: bool = False  # true: a model with a slash that is not a folder is a model id of the hub
    gpus: int = Field(0, ge=0)  # reserved by Ray for each run
    retries: int = Field(0, ge=0)  # how often Ray retries an item
    untabled: list[str] = []  # papers whose tables and figures of runs are skipped
    # Method, or all -> fields of its runs, in place of the training preset's.
    overrides: dict[str, Overrides] = {}


class RunTable(Table):
    """One training run: a method, and the fields in which it differs from the preset's."""

    paper: str = ""  # defaults to the file's name
    # A method's name, or path/to/file.py:Class relative to the repository.
    method: PathText
    overrides: Overrides = {}
    # Field -> values: one run for each combination, named after the run and its values.
    grid: Grid = {}
    grids: dict[str, Grid] = {}  # preset -> values in place of those of the grid
    presets: dict[str, Overrides] = {}  # preset -> overrides for it alone
    seeds: dict[str, Seeds] = {}  # preset -> seeds in place of the preset's
    tags: list[str] = []
    outputs: list[FileName] = ["summary.json", "metrics.jsonl", "config.json"]
    timeout: int | None = Field(None, ge=1)


class ArtefactTable(Table):
    """A table or figure: its notebook, the runs it reads, the files it writes; or a skip reason."""

    paper: str = ""
    skip: str | None = None
    notebook: PathText = ""
    runs: list[str] = []  # names, or patterns such as judge_mae-*
    artefacts: list[str] = []  # artefacts above it whose files its notebook reads
    outputs: list[FileName] = []
    inputs: list[PathText] = []
    parameters: Values = {}
    timeout: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def can_be_made_or_is_skipped(self) -> Self:
        """Refuse an artefact that lacks a notebook or outputs and gives no reason for it."""
        if self.skip is None and not (self.notebook and self.outputs):
            raise ValueError("needs notebook and outputs, or skip")
        return self


class File(Table):
    """A TOML file: tables of runs and artefacts by name."""

    runs: dict[Name, RunTable] = {}
    artefacts: dict[Name, ArtefactTable] = {}


@dataclass(frozen=True)
class Fault:
    """An entry of a TOML file that cannot be used. Other entries are not affected."""

    section: str  # runs or artefacts
    name: str
    paper: str
    reason: str  # in one line


@dataclass(frozen=True)
class Entries:
    """The runs and artefacts of all TOML files by name, and the entries that cannot be used."""

    runs: dict[str, RunTable] = field(default_factory=dict)
    artefacts: dict[str, ArtefactTable] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def fault(self, section: str, name: str) -> Fault | None:
        """Return what is wrong with an entry, None if nothing is or if there is no such entry."""
        for fault in self.faults:
            if (fault.section, fault.name) == (section, name):
                return fault
        return None


TABLES = {"runs": RunTable, "artefacts": ArtefactTable}


def hint(name: str, allowed: Iterable[str]) -> str:
    """Name up to three close matches of a misspelt name, or what is allowed if none is close."""
    allowed = sorted(allowed)
    matches = difflib.get_close_matches(name, allowed, n=3, cutoff=0.5)
    if matches:
        return f"did you mean {', '.join(matches)}?"
    listed = ", ".join(allowed[:MAX_LISTED]) or "none"
    rest = ", ..." if len(allowed) > MAX_LISTED else ""
    return f"allowed: {listed}{rest}"


def read_toml(path: Path) -> dict[str, Any]:
    """Parse one TOML file. Raises UserError with the reason."""
    try:
        return parse_toml(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UserError(f"{path.name} cannot be read: {error}") from None


def validate(kind: Any, path: Path, content: Any) -> Any:
    """Return content of a TOML file as a `kind`. Raises UserError for the first wrong field."""
    try:
        return TypeAdapter(kind).validate_python(content)
    except ValidationError as error:
        fault = error.errors()[0]
    location = [str(part) for part in fault["loc"]]
    place = ".".join(location)
    if fault["type"] == "extra_forbidden":
        allowed = _allowed_fields(location)
        suggestion = hint(location[-1], allowed)
        raise UserError(f"{path.name}: unknown field {place!r}; {suggestion}")
    message = fault["msg"]
    value = fault["input"]
    raise UserError(one_line(f"{path.name}: {place}: {message}, got {value!r}"))


def _allowed_fields(location: list[str]) -> Iterable[str]:
    """Return the names that may stand in place of an unknown field, by where it was."""
    if len(location) == 1:
        return TABLES
    table = TABLES.get(location[0], Preset)
    return table.model_fields


def read(root: Path, preset: str, more: Path | None = None) -> tuple[Preset, Entries]:
    """Read one preset, and the runs and artefacts of every TOML file of the repository.

    `more` is one more such file, anywhere. An entry with a wrong field becomes a `Fault`. Raises
    UserError for an unknown preset, a file that is no TOML, or a name that two files use.
    """
    path = root / "reproduce/presets.toml"
    presets = validate(dict[str, Preset], path, read_toml(path))
    if preset not in presets:
        raise UserError(f"unknown preset {preset!r}; {hint(preset, presets)}")
    paths = _registries(root)
    if more:
        paths.append(more)
    entries = Entries()
    for path in paths:
        _add_file(path, entries, preset)
    for name, run in list(entries.runs.items()):
        named = run.presets.keys() | run.seeds.keys() | run.grids.keys()
        unknown = sorted(named - presets.keys())
        if unknown:
            suggestion = hint(unknown[0], presets)
            reason = f"[runs.{name}]: unknown preset {unknown[0]!r}; {suggestion}"
            entries.faults.append(Fault("runs", name, run.paper, reason))
            del entries.runs[name]
    return presets[preset], entries


def _registries(root: Path) -> list[Path]:
    """Return the repository's TOML files of runs and artefacts."""
    folder = root / "reproduce"
    paths = sorted(folder.glob("*.toml"))
    return [path for path in paths if path.name not in OTHER_FILES]


def _add_file(path: Path, entries: Entries, preset: str) -> None:
    """Add the tables of one file, each validated alone; the file's name is the default paper."""
    content = read_toml(path)
    for section, tables in content.items():
        if section not in TABLES or not isinstance(tables, dict):
            validate(File, path, {section: tables})  # raises
        for name, table in tables.items():
            if name in getattr(entries, section) or entries.fault(section, name):
                raise UserError(
                    f"{path.name}: {name}: another file has one of this name"
                )
            try:
                file = validate(File, path, {section: {name: table}})
            except UserError as error:
                entries.faults.append(Fault(section, name, path.stem, str(error)))
                continue
            (added,) = getattr(file, section).values()
            added.paper = added.paper or path.stem
            if section == "runs":
                entries.runs.update(spread(name, added, preset))
            else:
                entries.artefacts[name] = added


def spread(name: str, run: RunTable, preset: str) -> dict[str, RunTable]:
    """Return a run for each combination of the values in its grid; without a grid, the run itself.

    The name of the run is a tag of all of them.
    """
    grid = run.grid | run.grids.get(preset, {})
    if not grid:
        return {name: run}
    runs = {}
    for values in product(*grid.values()):
        words = [str(value).replace(".", "_") for value in values]
        chosen = dict(zip(grid, values, strict=True))
        changes = {
            "overrides": run.overrides | chosen,
            "tags": [*run.tags, name],
            "grid": {},
        }
        runs["-".join([name, *words])] = run.model_copy(update=changes)
    return runs
