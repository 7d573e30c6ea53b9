"""What there is to reproduce: presets.toml and the TOML files of runs and artefacts, checked field by field.

Knows names and types of fields; does not know what the fields mean.
"""

import difflib
import re
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from reproduce import UserError, one_line

OTHER_FILES = ("presets.toml", "claims.toml")  # of reproduce/, without runs and artefacts
parsed = cache(tomllib.loads)
SECRET = re.compile(r"(^|_)(secret|password|passwd|credentials?|api_?key|token)$", re.IGNORECASE)


def public(name: str) -> str:
    """Refuse a name that looks like a secret's: values are written into results, which are public."""
    if SECRET.search(name):
        raise ValueError(f"{name!r} looks like a secret, and results are public")
    return name


def different(seeds: list[int]) -> list[int]:
    """Refuse seeds of which two are equal."""
    if len(set(seeds)) < len(seeds):
        raise ValueError("seeds must differ")
    return seeds


Seeds = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1), AfterValidator(different)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
Values = dict[Annotated[str, AfterValidator(public)], Any]
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]


class Table(BaseModel):
    """A TOML table: no other fields than these, and values of exactly these types."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Preset(Table):
    """One table of presets.toml: how the batch works, not what a method trains with."""

    seeds: Seeds
    jobs: int = Field(0, ge=0)  # items at once; 0: as many as there are cores
    timeout: int = Field(3600, ge=1)  # seconds per item, unless the item says otherwise
    hub: bool = False  # true: a model with a slash that is no folder is a model id of the hub
    gpus: int = Field(0, ge=0)  # that Ray reserves for each run
    retries: int = Field(0, ge=0)  # how often Ray tries an item again
    untabled: list[str] = []  # papers whose tables and figures of runs are skipped


class RunTable(Table):
    """One training run: a method, and what differs from the preset's fields of that method."""

    paper: str = ""  # the file's name, unless the table says otherwise
    protocol: str  # a method's name, or path/to/file.py:Class, the path as seen from the repository
    overrides: Values = {}
    presets: dict[str, Values] = {}  # preset -> overrides for it alone
    seeds: dict[str, Seeds] = {}  # preset -> seeds in place of the preset's own
    tags: list[str] = []
    outputs: list[FileName] = ["summary.json", "metrics.jsonl", "config.json"]
    timeout: int | None = Field(None, ge=1)


class ArtefactTable(Table):
    """One table or figure: a notebook, the runs it reads and the files it writes; or why there is none."""

    paper: str = ""
    skip: str | None = None
    notebook: str = ""
    runs: list[str] = []
    outputs: list[FileName] = []
    inputs: list[str] = []
    parameters: Values = {}
    timeout: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def whole(self) -> Self:
        """Refuse an artefact that neither can be made nor says why not."""
        if self.skip is None and not (self.notebook and self.outputs):
            raise ValueError("needs notebook and outputs, or skip")
        return self


class File(Table):
    """A TOML file: tables of runs and artefacts by name."""

    runs: dict[Name, RunTable] = {}
    artefacts: dict[Name, ArtefactTable] = {}


KINDS = {"runs": RunTable, "artefacts": ArtefactTable}


def hint(name: str, known: Iterable[str]) -> str:
    """Name up to three close matches of a misspelt word, or all that is allowed when nothing is close."""
    known = sorted(known)
    if close := difflib.get_close_matches(name, known, n=3, cutoff=0.5):
        return f"did you mean {', '.join(close)}?"
    return f"allowed: {', '.join(known[:12]) or 'none'}{', ...' if len(known) > 12 else ''}"


def read_toml(path: Path) -> dict[str, Any]:
    """Parse one TOML file. Raises UserError with the reason in one line."""
    try:
        return parsed(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UserError(f"{path.name} cannot be read: {error}") from None


def check(kind: Any, path: Path) -> Any:
    """Return a TOML file as a `kind`. Raises UserError that names the first wrong field."""
    try:
        return TypeAdapter(kind).validate_python(read_toml(path))
    except ValidationError as error:
        fault = error.errors()[0]
    place = [str(part) for part in fault["loc"]]
    field = ".".join(place)
    if fault["type"] == "extra_forbidden":
        allowed = KINDS.get(place[0], Preset).model_fields if len(place) > 1 else KINDS
        raise UserError(f"{path.name}: unknown field {field!r}; {hint(place[-1], allowed)}")
    raise UserError(one_line(f"{path.name}: {field}: {fault['msg']}, got {fault['input']!r}"))


def read(root: Path, preset: str, more: Path | None = None) -> tuple[Preset, File]:
    """Read one preset, and the runs and artefacts of every TOML file in reproduce/ and of the file `more`."""
    presets = check(dict[str, Preset], root / "reproduce/presets.toml")
    if preset not in presets:
        raise UserError(f"unknown preset {preset!r}; {hint(preset, presets)}")
    found = File()
    files = [path for path in sorted((root / "reproduce").glob("*.toml")) if path.name not in OTHER_FILES]
    for path in [*files, *([more] if more else [])]:
        file = check(File, path)
        for known, tables in ((found.runs, file.runs), (found.artefacts, file.artefacts)):
            if twice := known.keys() & tables:
                raise UserError(f"{path.name}: {min(twice)}: another file has one of this name")
            for name, table in tables.items():
                table.paper = table.paper or path.stem
                known[name] = table
    for name, run in found.runs.items():
        if unknown := {*run.presets, *run.seeds} - {*presets}:
            raise UserError(f"[runs.{name}]: unknown preset {min(unknown)!r}; {hint(min(unknown), presets)}")
    return presets[preset], found
