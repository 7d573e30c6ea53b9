"""What a run is: the flat `Run`, the methods by name, presets, and checks that need no model.

Imports no torch, so a wrong field is reported before anything heavy loads.
"""

import inspect
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from itertools import cycle
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from coevolve.engines.limits import VLLM_RANKS
from coevolve.evaluation.strategies import SETUPS
from coevolve.methods.base import Method
from coevolve.methods.registry import get_method
from coevolve.training.settings import Learning
from coevolve.validation import among, typed

REAL = {"prompt": "full", "world": "data"}  # of every paper; the fields' defaults are the tiny world's
# Where and how often it runs, looks and saves is no departure, nor are numbers that no paper prints.
UNCOUNTED = "seed track snapshots engine micro_tokens eval_every eval_items save_every keep_episodes".split()
MEANING = re.compile(r"    (\w+): [^#]*(?:# type: ignore\S* +)?# (.+)")  # a field and the comment behind it

Models = Annotated[str | tuple[str, ...], Field(min_length=1), "a name or a list of names"]
Lora = Annotated[
    tuple[()] | tuple[PositiveInt, NonNegativeInt | NonNegativeFloat, Annotated[float, Field(ge=0, lt=1)]],
    "[] or [rank at least 1, alpha, dropout below 1]",
]
World = Annotated[str, "tiny, data, data:KEY,KEY, gym:FAMILY,FAMILY or package.module:Class"]


@dataclass(kw_only=True)
class Run(Learning):
    """One training run. The protocol carries the paper's numbers; these, and those of `Learning`, are the trainer's."""

    method: str  # as it was asked for: a name in METHODS, path/file.py:Class or package.module:Class
    protocol: Method = field(repr=False)
    out: Path
    model: Models = "tiny"  # embedded backbone, smollm2, model folder, hub id or server; several: the policies' in turn
    lora: Lora = ()  # (rank, alpha, dropout): one adapter per policy on a frozen base; empty: train all weights
    engine: Annotated[str, ("torch", "vllm", "unsloth", "unsloth+vllm")] = "torch"  # vllm samples, unsloth trains LoRA
    seed: NonNegativeInt = 0  # of all that is drawn
    steps: NonNegativeInt = 300  # each plays a batch of episodes and learns from it
    batch_size: PositiveInt = 128  # episodes a step
    learning_rate: PositiveFloat = 1e-6  # of AdamW, constant; sft and srlm let it fall to 0
    weight_decay: NonNegativeFloat = 0.01  # of AdamW
    temperature: PositiveFloat = 1.0  # of sampling, for roles without one of their own
    eval_every: NonNegativeInt = 20  # steps between looks at the validation split; 0: never
    eval_items: PositiveInt = 40  # items per family, validation and test
    save_every: PositiveInt = 20  # steps between checkpoints
    keep_episodes: NonNegativeInt = 2  # episodes a step that are recorded word for word
    track: Annotated[str, ("", "tensorboard", "trackio", "wandb")] = ""  # a sink for metrics beside the files

    def __post_init__(self) -> None:
        """Bring every field into its type. Raises ValueError in one line for a wrong value or combination."""
        super().__post_init__()
        for name in self.protocol.setups:
            among("setups", name, SETUPS)
        if self.lora and self.engine.endswith("vllm") and self.lora[0] > VLLM_RANKS[-1]:
            raise ValueError(f"lora must have a rank of at most {VLLM_RANKS[-1]} with vLLM, got {self.lora[0]}")
        if self.steps and self.protocol.TRAINING.get("steps") == 0:
            raise ValueError(f"steps must be 0 for {self.method}, which trains nothing, got {self.steps}")
        if not assign(self.protocol, self.model)[1]:
            names = ", ".join(self.protocol.policies)
            raise ValueError(f"method must leave a policy to train, and {self.method} freezes all: {names}")

    def describe(self) -> dict[str, Any]:
        """Return the whole configuration as plain values, the protocol's fields among them."""
        mine = {name: getattr(self, name) for name in ("method", *settable(Run))}
        return {**mine, "protocol": settings(self.protocol)}


def settable(cls: type) -> dict[str, Any]:
    """Return the fields of a Run or a method that a configuration can set, with their defaults (None where none)."""
    own = [f for f in fields(cls) if f.init and f.name not in ("protocol", "out", "method")]
    return {f.name: None if f.default is MISSING else f.default for f in own}


def settings(protocol: Method) -> dict[str, Any]:
    """Return a method's settable fields and their values; a world goes by its name."""
    return {name: getattr(protocol, name) for name in settable(type(protocol))} | {"world": protocol.world.name}


def flat(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `Run.describe` says with the method's fields beside the run's."""
    return {**{name: value for name, value in described.items() if name != "protocol"}, **described.get("protocol", {})}


def presets() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the presets: by name and method (`all`: every method) the fields that differ from the defaults.

    `quick` trains as `standard` does but for fewer steps.
    """
    tables = tomllib.loads(Path(__file__).with_name("presets.toml").read_text(encoding="utf-8"))
    return tables | {"quick": {name: long | tables["quick"].get(name, {}) for name, long in tables["standard"].items()}}


def build(name: str, preset: str, *, seed: int = 0, out: str | Path, overrides: Mapping[str, Any] | None = None) -> Run:
    """Make a checked Run of a method: the paper's defaults, then the preset's fields, then `overrides`.

    The preset "none" sets nothing. Raises ValueError in one line for an unknown name or field, or a wrong value.
    """
    cls, tables = get_method(name), presets() | {"none": {}}
    among("preset", preset, tables)
    chosen = {"seed": seed, **tables[preset].get("all", {}), **tables[preset].get(name, {}), **(overrides or {})}
    theirs, annotations = settable(cls), get_type_hints(cls, include_extras=True) | {"world": World}
    for key in chosen:
        among("field", key, sorted({*settable(Run), *theirs}))
    mine = {key: value for key, value in chosen.items() if key not in theirs}
    protocol = cls(**{key: typed(key, chosen[key], annotations[key]) for key in chosen if key in theirs})
    return Run(method=name, protocol=protocol, out=Path(out), **{**protocol.TRAINING, **mine})


def assign(protocol: Method, model: str | Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return {policy: model} and the policies to train, as the method names them; models are dealt in turn.

    Raises ValueError for more models than policies.
    """
    given = [model] if isinstance(model, str) else list(model)
    free = [name for name in protocol.policies if name not in protocol.models]
    if len(given) > max(1, len(free)):
        raise ValueError(f"model must be one name or at most {len(free)} (one per policy), got {given}")
    models = protocol.models | dict(zip(free, cycle(given), strict=False))
    trained = tuple(name for name in protocol.policies if name not in protocol.frozen)
    return {name: models[name] for name in protocol.policies}, trained


def parse_overrides(pairs: Iterable[str]) -> dict[str, Any]:
    """Read field=value pairs of a command line; values are JSON where they can be, else text."""
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise ValueError(f"expected field=value, got {pair!r}")
        values[name] = text
        with suppress(json.JSONDecodeError):
            values[name] = json.loads(text)
    return values


def differences(run: Run) -> list[tuple[str, Any, Any]]:
    """Return where a run departs from its paper: (field, the paper's value, the run's); none without a paper.

    The paper's values are the defaults, but for what the method's TRAINING and PAPER say; its model is the one of
    the preset gpu.
    """
    if not run.protocol.paper:
        return []
    gpu = {**presets()["gpu"]["all"], **presets()["gpu"].get(run.method, {})}
    paper = settable(Run) | {"model": gpu["model"], **run.protocol.TRAINING}
    paper |= settable(type(run.protocol)) | REAL | dict(run.protocol.PAPER)
    mine = flat(run.describe())
    counted = [name for name in mine if name in paper and name not in UNCOUNTED]
    return [(name, paper[name], mine[name]) for name in counted if mine[name] != paper[name]]


def meanings(cls: type) -> dict[str, str]:
    """Return what the fields of a run and of a method mean: the comments behind them in the source."""
    homes = [home for home in (*Run.__mro__, *cls.__mro__)[::-1] if is_dataclass(home)]
    lines = [line for home in homes for line in inspect.getsource(home).splitlines()]
    return {found[1]: found[2] for found in map(MEANING.match, lines) if found}
