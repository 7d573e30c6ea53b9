"""Configuration: the flat `Run`, methods by name, presets, and checks that need no model.

Imports no torch, so a wrong field is reported before anything heavy loads.
"""

import ast
import json
import re
import tomllib
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from coevolve import plugins
from coevolve.methods.base import Method
from coevolve.methods.registry import METHODS, get_method, make_method
from coevolve.models.names import SERVERS
from coevolve.training import engine_options, own_trainer, trl_options
from coevolve.training.controls import control as control_arms
from coevolve.training.controls.dial import LOWEST_ACCURACY, Errors
from coevolve.training.schedule import Schedule
from coevolve.training.settings import OptimizationConfig
from coevolve.validation import (
    Allowed,
    Operational,
    PathText,
    check_choice,
    field_error,
    is_operational,
    leaf_types,
    user_path,
)

HERE = Path(__file__).parent
# Two fields whose defaults fit the tiny world, with the value that every paper uses.
EVERY_PAPER = {"prompt": "full", "world": "data"}
PRESETS_FILE = HERE / "presets.toml"
# Values as Python writes them and JSON does not.
CONSTANTS = {"True": True, "False": False, "None": None}
DIGITS = r"\d+(?:_\d+)*"
INTEGER = re.compile(rf"[+-]?{DIGITS}", re.ASCII)
DECIMAL = re.compile(
    rf"[+-]?(?:{DIGITS}\.?(?:{DIGITS})?|\.{DIGITS})(?:[eE][+-]?{DIGITS})?", re.ASCII
)
# Fields of a Run that no preset can set.
ARGUMENTS_OF_BUILD = ("method_name", "method", "out")

Preset = dict[str, dict[str, Any]]  # {method, or "all": {field: value}}
Dropout = Annotated[float, Field(ge=0, lt=1)]
Models = Annotated[
    PathText | tuple[PathText, ...],
    Field(min_length=1),
    Allowed("a name or a list of names"),
]
ServerAddress = Annotated[
    str,
    Field(pattern=r"^(https?://[^/\s]+)?$"),
    Allowed("http://HOST:PORT"),
]
VllmOptions = dict[str, PositiveInt | PositiveFloat]
Lora = Annotated[
    tuple[()] | tuple[PositiveInt, NonNegativeInt | NonNegativeFloat, Dropout],
    Allowed("[] or [rank at least 1, alpha, dropout below 1]"),
]


class Run(OptimizationConfig):
    """One training run: the trainer's fields, those of `OptimizationConfig`, and the method."""

    method_name: str
    """The method's name: one of METHODS, path/file.py:Class or package.module:Class."""

    method: Method = Field(repr=False)
    """The method itself, with the paper's numbers."""

    out: Annotated[Path, AfterValidator(user_path)]
    """The folder of the run."""

    model: Models = "tiny"
    """Embedded backbone, smollm2, model folder, hub id or server; a list: the policies' in turn."""

    lora: Lora = ()
    """[rank, alpha, dropout]: one adapter per policy on a frozen base; []: train all weights."""

    engine: Annotated[
        Literal["torch", "vllm", "unsloth", "unsloth+vllm"], Operational()
    ] = "torch"
    """vllm samples with vLLM; unsloth trains LoRA with Unsloth; torch samples in a Python loop."""

    vllm: Annotated[VllmOptions, Operational()] = Field(default_factory=dict)
    """Arguments of vLLM, such as {"max_num_seqs": 128}, in place of those that coevolve chooses."""

    vllm_server: Annotated[ServerAddress, Operational()] = ""
    """Address of `vllm serve` on other GPUs, http://HOST:PORT, which then does the sampling."""

    quantize: Literal["", "4bit"] = ""
    """4bit: the frozen base of LoRA has weights of 4 bits (QLoRA, bitsandbytes); not with vllm."""

    template_options: dict[str, bool | int | float | str] = Field(default_factory=dict)
    """Variables of the model's chat template, such as {"enable_thinking": false}."""

    trainer: Annotated[Literal["own", "trl"], Operational()] = "own"
    """own: the readable trainer; trl: TRL's GRPOTrainer, for FSDP2 and ZeRO-3 (docs/trl.md)."""

    trl: Annotated[dict[str, Any], Operational()] = {}
    """Further options of TRL's GRPOConfig, as a JSON object; needs trainer=trl."""

    seed: Annotated[NonNegativeInt, Operational()] = 0
    """Seed of all random draws."""

    steps: NonNegativeInt = 300
    """Training steps; each plays a batch of episodes and learns from it."""

    batch_size: PositiveInt = 128
    """Episodes per step."""

    learning_rate: PositiveFloat = 1e-6
    """Learning rate of AdamW; sft and srlm decay it to 0."""

    schedule: Schedule = "constant"
    """How the rate changes after the warm-up: constant, or linear or cosine, which fall to 0."""

    warmup_steps: NonNegativeInt = 0
    """Steps in which the learning rate rises to its value."""

    optimizer: Literal["adamw", "adamw_8bit"] = "adamw"
    """adamw_8bit keeps the moments of AdamW in 8 bits (bitsandbytes)."""

    weight_decay: NonNegativeFloat = 0.01
    """Weight decay of AdamW."""

    temperature: PositiveFloat = 1.0
    """Sampling temperature of the roles that set none."""

    eval_every: Annotated[NonNegativeInt, Operational()] = 20
    """Steps between evaluations on the validation split; 0: never."""

    eval_items: Annotated[PositiveInt, Operational()] = 40
    """Validation questions per family, and test questions unless test_items is set."""

    test_items: Annotated[NonNegativeInt, Operational()] = 0
    """Test questions per family, asked before and after training; 0: as many as eval_items."""

    save_every: Annotated[PositiveInt, Operational()] = 20
    """Steps between checkpoints."""

    keep_episodes: Annotated[NonNegativeInt, Operational()] = 2
    """Episodes per step that are recorded word for word."""

    control: control_arms.ControlName = ""
    """A control arm: random, shuffled or format rewards, or an oracle as judge; empty: none."""

    oracle_accuracy: Annotated[float, Field(ge=LOWEST_ACCURACY, le=1)] = 1.0
    """How often the verdicts of control=oracle are right, from 0.5, like a coin, to 1."""

    oracle_errors: Errors = "random"
    """Which of them are wrong: random, question (always the same) or level (hard ones)."""

    track: Annotated[Literal["", "tensorboard", "trackio", "wandb"], Operational()] = ""
    """An experiment tracker that receives the metrics as well."""

    @model_validator(mode="after")
    def check_engine(self) -> Self:
        """Refuse what the run's engine cannot do, before any model loads."""
        assigned, _ = assign_models(self.method, self.model)
        loaded = [name for name in assigned if not assigned[name].startswith(SERVERS)]
        engine_options.check_engine(self, loaded)
        return self

    @model_validator(mode="after")
    def check_steps(self) -> Self:
        """Refuse steps of a method that does not train, or that has neither episodes nor `fit`."""
        if self.steps and self.method.PAPER_RUN_VALUES.get("steps") == 0:
            raise ValueError(
                f"steps must be 0 for {self.method_name}, which trains nothing, got {self.steps}"
            )
        has_trainer = type(self.method).fit is not Method.fit
        if self.steps and not (self.has_episodes or has_trainer):
            raise ValueError(
                f"{self.method_name} must define episode(self, rng), which plays an episode"
            )
        return self

    @model_validator(mode="after")
    def check_solver(self) -> Self:
        """Refuse a method without a role for test questions."""
        self.method.answering  # noqa: B018  raises ValueError
        return self

    @model_validator(mode="after")
    def check_trainer(self) -> Self:
        """Refuse what TRL's trainer cannot do, before any model loads."""
        _, trained = assign_models(self.method, self.model)
        trl_options.check_trainer(self, trained)
        return self

    @model_validator(mode="after")
    def check_control(self) -> Self:
        """Refuse a control that the method cannot have, and a dial without its oracle."""
        control_arms.check(self.control, self.method, self.method_name)
        for name in ("oracle_accuracy", "oracle_errors"):
            given = getattr(self, name)
            default = type(self).model_fields[name].default
            if self.control != "oracle" and given != default:
                raise ValueError(
                    f"{name} must be {default!r} unless control is 'oracle', got {given!r}"
                )
        return self

    @model_validator(mode="after")
    def check_trained_policies(self) -> Self:
        """Refuse too many models, and a method that trains none of its policies."""
        _, trained = assign_models(self.method, self.model)
        if not trained:
            names = ", ".join(self.method.policies)
            raise ValueError(
                f"method must leave a policy to train, and {self.method_name} freezes all: {names}"
            )
        return self

    @property
    def has_episodes(self) -> bool:
        """Whether the method plays episodes; else TRL trains it, or nothing does."""
        return type(self.method).episode is not Method.episode

    def check_episodes(self) -> None:
        """Raise ValueError unless the method plays episodes."""
        if not self.has_episodes:
            raise ValueError(
                f"{self.method_name} plays no episodes: it is trained by TRL, or not at all"
            )

    def describe(self) -> dict[str, Any]:
        """Return the configuration as plain values, the method's fields under `method_fields`.

        `method_sources` has a hash of each of a user's files that the method is made of.
        """
        fields = self.model_dump(exclude={*ARGUMENTS_OF_BUILD})
        return {
            "method": self.method_name,
            **fields,
            "method_fields": self.method.describe(),
            "method_sources": plugins.hashes_of_sources(type(self.method)),
        }


def field_defaults(cls: type[BaseModel]) -> dict[str, Any]:
    """Return the defaults of the fields of a Run or method that a configuration can set.

    A field without a default has None.
    """
    defaults = {}
    for name, field in cls.model_fields.items():
        if name not in ARGUMENTS_OF_BUILD:
            default = field.get_default(call_default_factory=True, validated_data={})
            defaults[name] = None if field.is_required() else default
    return defaults


def field_help(cls: type[Method]) -> dict[str, str]:
    """Return the help of every field of a run and of a method: the docstring under the field."""
    fields = Run.model_fields | cls.model_fields
    return {
        name: " ".join((field.description or "").split())
        for name, field in fields.items()
    }


def flatten(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of `Run.describe` with the method's fields beside the run's."""
    run_fields = {
        name: value for name, value in description.items() if name != "method_fields"
    }
    return {**run_fields, **description.get("method_fields", {})}


def load_presets(file: Path = PRESETS_FILE) -> dict[str, Preset]:
    """Read the presets: for each method (`all`: every method) the fields that differ from defaults.

    A preset that `extends` another, which must stand above it, starts from the other's fields.
    """
    presets: dict[str, Preset] = {}
    for name, preset in tomllib.loads(file.read_text(encoding="utf-8")).items():
        parent: Preset = {}
        if "extends" in preset:
            parent_name = preset.pop("extends")
            check_choice(f"extends of preset {name}", parent_name, presets)
            parent = presets[parent_name]
        methods = dict.fromkeys([*parent, *preset])
        presets[name] = {
            key: parent.get(key, {}) | preset.get(key, {}) for key in methods
        }
    return presets


def _registered_name(cls: type) -> str:
    """Return the name by which a class is registered as a method, "" if it is not."""
    for name, place in METHODS.items():
        module, _, class_name = place.partition(":")
        is_inside = f"{cls.__module__}.".startswith(f"{module}.")
        if is_inside and cls.__qualname__ == class_name:
            return name
    return ""


def preset_section(name: str, preset: str) -> str:
    """Return whose values a method takes from a preset: its own, or those of the method below it.

    A user's subclass of a paper's method takes that method's.
    """
    if name in METHODS:
        return name
    sections = load_presets().get(preset, {})
    for base in get_method(name).__mro__:
        section = _registered_name(base)
        if section in sections:
            return section
    return name


def build(
    name: str,
    preset: str,
    *,
    seed: int = 0,
    out: str | Path,
    overrides: Mapping[str, Any] | None = None,
) -> Run:
    """Make a Run of a method: the paper's defaults, then the preset's fields, then `overrides`.

    The preset "none" sets nothing. Raises ValueError in one line for an unknown name or field, a
    wrong value, or an override that the method's own trainer does not read.
    """
    cls = get_method(name)
    presets = load_presets() | {"none": {}}
    check_choice("preset", preset, presets)
    values: dict[str, Any] = {"seed": seed}
    values |= presets[preset].get("all", {})
    values |= presets[preset].get(preset_section(name, preset), {})
    values |= overrides or {}
    known_fields = {*field_defaults(Run), *cls.model_fields}
    for field in values:
        if field not in known_fields:
            raise field_error(field, cls, known_fields)
    own_trainer.check_fields(name, cls, overrides or ())
    method_values = {
        field: value for field, value in values.items() if field in cls.model_fields
    }
    run_values = {
        field: value for field, value in values.items() if field not in method_values
    }
    method = make_method(name, **method_values)
    return Run(
        method_name=name,
        method=method,
        out=Path(out),
        **{**method.PAPER_RUN_VALUES, **run_values},
    )


def assign_models(
    method: Method, model: str | Sequence[str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return {policy: model} and the policies to train, as the method names them.

    Policies without a fixed model take the given models in turn. Raises ValueError for more
    models than policies.
    """
    names = [model] if isinstance(model, str) else list(model)
    free = [policy for policy in method.policies if policy not in method.models]
    if len(names) > max(1, len(free)):
        limit = f"at most {len(free)} (one per policy)"
        raise ValueError(f"model must be one name or {limit}, got {names}")
    models = method.models | dict(zip(free, cycle(names), strict=False))
    trained = tuple(policy for policy in method.policies if policy not in method.frozen)
    return {policy: models[policy] for policy in method.policies}, trained


def parse_overrides(
    pairs: Sequence[str], text_fields: Container[str] = ()
) -> dict[str, Any]:
    """Read field=value pairs of a command line; values are JSON where they can be, else text.

    Values may also be written as in Python: .5, 5., +3, 1_000, [.5, 1], True. The numbers in
    the values of `text_fields` stay text: model=2024 is the folder of that name.
    """
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not (name and equals):
            blanks = "; write it without blanks around =" if "=" in pairs else ""
            raise ValueError(f"expected field=value, got {pair!r}{blanks}")
        parse = parse_text if name in text_fields else parse_value
        values[name] = parse(text)
    return values


def parse_value(text: str) -> Any:
    """Return JSON, or a number, list or constant as Python writes it; other text as it is."""
    with suppress(json.JSONDecodeError):
        return json.loads(text)
    if text in CONSTANTS:
        return CONSTANTS[text]
    if text.startswith("["):
        with suppress(SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
            return ast.literal_eval(text)
    if INTEGER.fullmatch(text):
        return int(text)
    if DECIMAL.fullmatch(text):
        return float(text)
    return text


def parse_text(text: str) -> Any:
    """Return a list, a quoted text or null of JSON; any other text, numbers too, as it is."""
    with suppress(json.JSONDecodeError):
        value = json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
        if not isinstance(value, bool):
            return value
    return text


def text_fields(cls: type[Method]) -> set[str]:
    """Return the fields of a run and of a method that take text and no numbers, or lists of it."""
    fields = Run.model_fields | cls.model_fields
    return {name for name, field in fields.items() if _is_text(field.annotation)}


def _is_text(annotation: Any) -> bool:
    members = leaf_types(annotation)
    return str in members and not members & {int, float, bool}


def paper_values(run: Run) -> dict[str, Any]:
    """Return the paper's value of every field that is compared with the paper.

    These are the defaults, except for what PAPER_RUN_VALUES and PAPER_METHOD_VALUES of the method
    say. The paper's model is that of the preset gpu.
    """
    method = run.method
    gpu = load_presets()["gpu"]
    values = field_defaults(Run)
    values["model"] = gpu.get(method.paper_name, {}).get("model", gpu["all"]["model"])
    values |= method.PAPER_RUN_VALUES
    values |= field_defaults(type(method))
    values |= EVERY_PAPER
    values |= method.PAPER_METHOD_VALUES
    fields = Run.model_fields | type(method).model_fields
    compared = [name for name, field in fields.items() if not is_operational(field)]
    return {name: values[name] for name in compared if name in values}


@dataclass(frozen=True)
class Difference:
    """A field whose value in a run is not the paper's."""

    field: str
    paper: Any
    run: Any


def differences(run: Run) -> list[Difference]:
    """Return the fields in which a run differs from its paper, none if the method has no paper."""
    if not run.method.paper_name:
        return []
    paper = paper_values(run)
    changed = []
    for name, value in flatten(run.describe()).items():
        if name in paper and value != paper[name]:
            changed.append(Difference(name, paper[name], value))
    return changed
