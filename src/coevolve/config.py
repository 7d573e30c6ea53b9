"""What a run is: the flat `Run`, the methods by name, presets, and checks that need no model.

Imports no torch, so a wrong field is reported before anything heavy loads.
"""

import importlib
import json
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from itertools import cycle
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from coevolve.advantages import ESTIMATORS, WITH_KL
from coevolve.checks import among
from coevolve.choices import ENGINES, LENGTH_NORMS, LOSSES, OLD_LOGPROBS, VLLM_RANKS
from coevolve.setups import SETUPS

REAL = {"prompt": "full", "world": "data"}  # of every paper; the fields' defaults are the tiny world's
UNCOUNTED = ("seed", "track", "snapshots")  # where and how often it runs and what it keeps is no departure
PRESETS_FILE = Path(__file__).with_name("presets.toml")
METHODS = {  # what can be trained: a protocol, or a baseline that has its own way
    "mae": "coevolve.papers.mae.method:MAE",
    "sage": "coevolve.papers.sage.method:SAGE",
    "spice": "coevolve.papers.spice.method:SPICE",
    "comas": "coevolve.papers.comas.method:CoMAS",
    "conl": "coevolve.papers.conl.method:CoNL",
    "base": "coevolve.baselines.base:Base",
    "azr": "coevolve.baselines.azr:AZR",
    "sft": "coevolve.baselines.sft:SFT",
    "strong_challenger": "coevolve.baselines.strong_challenger:StrongChallenger",
    "rzero": "coevolve.baselines.rzero:RZero",
    "srlm": "coevolve.baselines.srlm:SRLM",
    "maporl": "coevolve.baselines.maporl:MAPoRL",
    "ttrl": "coevolve.baselines.ttrl:TTRL",
    "srt": "coevolve.baselines.srt:SRT",
    "ground_truth": "coevolve.baselines.ground_truth:GroundTruth",
}


@dataclass(kw_only=True)
class Run:
    """One training run. The protocol carries the paper's numbers; these are the trainer's."""

    method: str  # name of the protocol
    protocol: Any = field(repr=False)
    out: Path
    model: str | tuple[str, ...] = "tiny"  # embedded backbone or model folder; several: the policies' in turn
    lora: tuple = ()  # (rank, alpha, dropout): one adapter per policy on a frozen base; empty: train all weights
    engine: str = "torch"  # torch or vllm samples; unsloth and unsloth+vllm: Unsloth trains a LoRA adapter
    four_bit: bool = False  # the frozen base in 4 bits (unsloth with lora, on a GPU)
    seed: int = 0
    steps: int = 300
    batch_size: int = 128  # episodes a step
    learning_rate: float = 1e-6
    weight_decay: float = 0.01
    grad_clip: float = 1.0
    loss: str = "ppo"
    clip: tuple[float, float] = (0.2, 0.28)  # below and above ratio 1
    old: str = "sampler"  # who computes the old log-probabilities of the ratio; learner: before the step
    entropy_coef: float = 0.001
    length_norm: str = "token_mean"  # constant divides by max_tokens (DrGRPO)
    temperature: float = 1.0
    max_tokens: int = 8192
    micro_tokens: int = 16384  # tokens in one forward and backward pass
    eval_every: int = 20  # steps between looks at the validation split; 0: never
    eval_items: int = 40  # items per family, validation and test
    save_every: int = 20
    keep_episodes: int = 2  # episodes a step that are recorded word for word
    track: str = ""  # tensorboard, trackio or wandb beside the files

    def __post_init__(self) -> None:
        for name, low in (
            ("steps", 0),
            ("batch_size", 1),
            ("max_tokens", 1),
            ("micro_tokens", 1),
            ("eval_every", 0),
            ("eval_items", 1),
            ("save_every", 1),
            ("keep_episodes", 0),
            ("seed", 0),
            ("weight_decay", 0),
        ):
            if getattr(self, name) < low:
                raise ValueError(f"{name} must be at least {low}, got {getattr(self, name)}")
        for name in ("learning_rate", "grad_clip", "temperature"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")
        _check_numbers("clip", self.clip, (0, 0), "[low, high], each at least 0")
        if self.lora:
            _check_numbers("lora", self.lora, (1, 0, 0), "[] or [rank at least 1, alpha, dropout below 1]")
            if type(self.lora[0]) is not int or self.lora[2] >= 1:
                raise ValueError(f"lora must be [] or [rank at least 1, alpha, dropout below 1], got {self.lora}")
            if getattr(self.protocol, "lora_rank", 0):
                raise ValueError(f"lora must be [] for {self.method}, whose own adapter is lora_rank, got {self.lora}")
        if self.method == "base" and self.steps:
            raise ValueError(f"steps must be 0 for base, which trains nothing, got {self.steps}")
        among("engine", self.engine, ENGINES)
        if self.four_bit and not (self.lora and self.engine.startswith("unsloth")):
            raise ValueError(f"four_bit needs engine unsloth or unsloth+vllm and lora, got {self.engine}, {self.lora}")
        if self.lora and self.engine.endswith("vllm") and self.lora[0] > VLLM_RANKS[-1]:
            raise ValueError(f"lora must have a rank of at most {VLLM_RANKS[-1]} with vLLM, got {self.lora[0]}")
        among("loss", self.loss, LOSSES)
        among("old", self.old, OLD_LOGPROBS)
        among("length_norm", self.length_norm, LENGTH_NORMS)
        among("track", self.track, ("", "tensorboard", "trackio", "wandb"))
        if not self.model:
            raise ValueError("model must be a name or a list of names, got none")
        for name in getattr(self.protocol, "setups", ()):
            among("setups", name, SETUPS)
        among("estimator", getattr(self.protocol, "estimator", "task_relative"), ESTIMATORS)
        if getattr(self.protocol, "kl_coef", 0.0):
            among("estimator with a kl_coef", self.protocol.estimator, WITH_KL)

    def describe(self) -> dict[str, Any]:
        """The whole configuration as plain values, the protocol's fields among them."""
        mine = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("protocol", "out")}
        return {**mine, "protocol": settings(self.protocol)}


def _check_numbers(name: str, values: Sequence, lows: Sequence[float], allowed: str) -> None:
    numbers = len(values) == len(lows) and all(type(value) in (int, float) for value in values)
    if not numbers or not all(value >= low for value, low in zip(values, lows, strict=True)):
        raise ValueError(f"{name} must be {allowed}, got {list(values)}")


def method(name: str) -> type:
    """The class of a method by its name."""
    among("protocol", name, METHODS)
    module, _, attribute = METHODS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def settable(cls: type) -> dict[str, Any]:
    """Fields of a dataclass that a configuration file can set, with their defaults; a world goes by its name."""
    known = {}
    for f in fields(cls):
        if f.name not in ("protocol", "out", "method"):
            known[f.name] = f.default if f.default is not MISSING else "tiny" if f.name == "world" else None
    return known


def settings(protocol: Any) -> dict[str, Any]:
    """A protocol's settable fields and their values."""
    values = {name: getattr(protocol, name) for name in settable(type(protocol))} if is_dataclass(protocol) else {}
    return values | ({"world": values["world"].name} if "world" in values else {})


def _coerce(cls: type, name: str, value: Any) -> Any:
    """Check a value against its field's annotation; lists become tuples."""
    hint = str if name == "world" else get_type_hints(cls)[name]
    kinds = [get_origin(kind) or kind for kind in (get_args(hint) if isinstance(hint, UnionType) else [hint])]
    if isinstance(value, list) and tuple in kinds:
        return tuple(value)
    if type(value) is int and float in kinds:
        return float(value)
    if type(value) not in kinds:
        allowed = " or ".join(kind.__name__.removesuffix("Type") for kind in kinds)
        raise ValueError(f"{name} must be {allowed}, got {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}")
    return value


def split(protocol: str, overrides: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Sort overrides into the run's and the protocol's fields; raise ValueError for an unknown one."""
    ours, theirs = settable(Run), settable(method(protocol))
    mine, its = {}, {}
    for name, value in overrides.items():
        among("field", name, sorted({*ours, *theirs}))
        if name in theirs:
            its[name] = _coerce(method(protocol), name, value)
        else:
            mine[name] = _coerce(Run, name, value)
    if "world" in its:
        from published import world as dataworld  # only here: it brings every scorer

        its["world"] = dataworld.world(its["world"], protocol, its.get("paper"))
    return mine, its


def presets(path: Path = PRESETS_FILE) -> dict[str, dict[str, dict[str, Any]]]:
    """Presets by name: for each method the fields that differ from the paper's defaults."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def build(
    protocol: str, preset: str, *, seed: int = 0, out: str | Path, overrides: Mapping[str, Any] | None = None
) -> Run:
    """Make a checked Run: the paper's defaults, then the preset's fields, then `overrides`."""
    known = presets()
    among("preset", preset, known)
    table = {**known[preset].get("all", {}), **known[preset].get(protocol, {}), **(overrides or {})}
    mine, its = split(protocol, table)
    mine = {"seed": seed, **training(method(protocol)), **mine}
    return Run(method=protocol, protocol=method(protocol)(**its), out=Path(out), **mine)


def training(cls: type) -> dict[str, Any]:
    """The paper's values of the run's fields, where a method's paper has its own (its `TRAINING`)."""
    return dict(getattr(cls, "TRAINING", {}))


def check(protocol: str, overrides: Mapping[str, Any]) -> None:
    """Raise ValueError with one line if a method does not take these fields or values."""
    mine, its = split(protocol, overrides)
    Run(method=protocol, protocol=method(protocol)(**its), out=Path("."), **{**training(method(protocol)), **mine})


def assign(protocol: object, model: str | Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return {policy: model} and the policies to train, as the protocol names them; models are dealt in turn.

    A protocol without `policies` has one, "shared". Raises ValueError for more models than policies.
    """
    names = tuple(getattr(protocol, "policies", ("shared",)))
    fixed, frozen = getattr(protocol, "models", {}), getattr(protocol, "frozen", ())
    given = [model] if isinstance(model, str) else list(model)
    open_names = [name for name in names if name not in fixed]
    if len(given) > max(1, len(open_names)):
        raise ValueError(f"model must be one name or at most {len(open_names)} (one per policy), got {given}")
    dealt = dict(zip(open_names, cycle(given), strict=False))
    models = {name: fixed.get(name) or dealt[name] for name in names}
    return models, tuple(name for name in names if name not in frozen)


def parse_overrides(pairs: Iterable[str]) -> dict[str, Any]:
    """Read field=value pairs of a command line; values are JSON where they can be, else text."""
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise ValueError(f"expected field=value, got {pair!r}")
        try:
            values[name] = json.loads(text)
        except json.JSONDecodeError:
            values[name] = text
    return values


def differences(run: Run) -> list[tuple[str, Any, Any]]:
    """Where a run departs from its paper: (field, the paper's value, the run's).

    The paper's values are the defaults, unless the method's `PAPER` says that they are not; its model is the one of
    the preset gpu.
    """
    cls, gpu = type(run.protocol), presets()["gpu"]
    paper = {**settable(Run), "model": gpu[run.method].get("model", gpu["all"]["model"]), **training(cls)}
    paper |= settable(cls) | {name: value for name, value in REAL.items() if name in settable(cls)}
    paper |= getattr(run.protocol, "PAPER", {})
    mine = run.describe()
    mine |= mine.pop("protocol")
    return [
        (name, paper[name], mine[name])
        for name in mine
        if name in paper and name not in UNCOUNTED and mine[name] != paper[name]
    ]


def as_json(run: Run) -> str:
    """The configuration as JSON text."""
    return json.dumps(run.describe(), indent=1, default=lambda v: asdict(v) if is_dataclass(v) else str(v))
