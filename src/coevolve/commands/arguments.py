"""Arguments that several commands share, and fields that may also be written as options."""

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from typer import Argument, Option
from typer.core import TyperCommand

from coevolve.methods import registry
from coevolve.training import config
from coevolve.validation import expand_home

METHOD_HELP = f"{', '.join(registry.METHODS)}, or your own: path/file.py:Class"
PRESET_HELP = (
    "smoke, quick, standard, full, real, one-gpu or gpu; none: the method's own"
)
POLICY_HELP = (
    "a model as in model=..., a run's folder, or RUN/policy/NAME for one of several"
)
TEMPERATURE_HELP = "0: greedy; none: the role's own, or else 1"

MethodName = Annotated[str, Argument(help=METHOD_HELP)]
Pairs = Annotated[
    list[str] | None,
    Argument(
        metavar="[FIELD=VALUE]...",
        help="fields of the run and the method, also as --field VALUE; see `coevolve fields`",
    ),
]
Preset = Annotated[str, Option(help=PRESET_HELP)]
Model = Annotated[str, Option(parser=expand_home, help=POLICY_HELP)]
Temperature = Annotated[float | None, Option(min=0, help=TEMPERATURE_HELP)]


class FieldsCommand(TyperCommand):
    """A command with FIELD=VALUE pairs, which may also be written --field VALUE."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Turn options that the command does not have into pairs, then parse as usual."""
        takes_value: dict[str, bool] = {}
        for parameter in self.get_params(ctx):
            is_flag = getattr(parameter, "is_flag", False)
            for name in (*parameter.opts, *parameter.secondary_opts):
                takes_value[name] = not is_flag
        try:
            arguments = fields_as_pairs(args, takes_value)
        except ValueError as error:
            ctx.fail(str(error))
        return super().parse_args(ctx, arguments)


def fields_as_pairs(
    arguments: Sequence[str], takes_value: Mapping[str, bool]
) -> list[str]:
    """Return arguments with each unknown option, --steps 10 or --steps=10, as steps=10 at the end.

    `takes_value` holds the command's own options and whether a value follows each of them. Raises
    ValueError for an unknown option without a value.
    """
    kept = []
    pairs = []
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        option, equals, value = argument.partition("=")
        if argument == "--":
            kept += [argument, *waiting]
            break
        if option in takes_value:
            kept.append(argument)
            if takes_value[option] and not equals and waiting:
                kept.append(waiting.pop(0))
            continue
        if not option.startswith("--"):
            kept.append(argument)
            continue
        if not equals:
            if not waiting or waiting[0].startswith("--"):
                raise ValueError(
                    f"No such option, and no field without a value: {option}"
                )
            value = waiting.pop(0)
        name = option.removeprefix("--").replace("-", "_")
        pairs.append(f"{name}={value}")
    return kept + pairs


def say_preset_section(method: str, preset: str) -> None:
    """Say on stderr that a user's method takes another one's values from a preset, if it does."""
    section = config.preset_section(method, preset)
    if section != method:
        print(
            f"{method} takes the values of {section} from the preset", file=sys.stderr
        )


def read_overrides(method: str, pairs: Sequence[str] | None) -> dict[str, Any]:
    """Read field=value pairs of a method."""
    text_fields = config.text_fields(registry.get_method(method))
    return config.parse_overrides(pairs or (), text_fields)
