"""Checks of a user's settings: one line that names the field, what is allowed and what was given.

Holds the base class of everything that a user configures.
"""

import difflib
import inspect
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.fields import FieldInfo


@dataclass(frozen=True)
class Allowed:
    """Metadata of a field: the words in which an error message says what is allowed.

    Needed only where pydantic's own words are unclear:
    `Annotated[tuple[int, int], Allowed("[first, last]")]`.
    """

    text: str


@dataclass(frozen=True)
class Operational:
    """Metadata of a field that is not compared with the paper.

    Such a field says where a run works, how often it evaluates and saves, or how it uses memory.
    """


def expand_home(path: str | Path) -> str:
    """Return a path with a leading ~ or ~USER replaced by that user's home folder.

    A shell does this for `--out ~/x`, but not for `--out=~/x`, `out=~/x` or a notebook's `"~/x"`.
    Everything that a user can give a path to passes it through here. Any other text, such as the
    name of a model, is returned unchanged, and so is ~USER if there is no such user.
    """
    return os.path.expanduser(path)


def user_path(path: str | Path) -> Path:
    """Return a path that a user gave, with ~ replaced as `expand_home` does.

    A second call changes nothing, as "./~/x", a folder that is really called ~, becomes absolute.
    """
    expanded = Path(expand_home(path))
    return Path.cwd() / expanded if str(expanded).startswith("~") else expanded


# A list of more choices follows the suggestion in an error.
MANY_CHOICES = 20
# Types of defaults whose name is a good annotation.
PLAIN_TYPES = (bool, int, float, str)
Share = Annotated[float, Field(ge=0, le=1)]
# The type of a field with a path, or with a name that may be one.
PathText = Annotated[str, AfterValidator(expand_home)]


class Settings(BaseModel):
    """A pydantic model whose wrong fields are reported in one line.

    Values must have the type of their field. An int counts as a float, and a list, which is how
    TOML and JSON write a tuple, as a tuple. The docstring under a field is its help text.
    """

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        arbitrary_types_allowed=True,
        validate_default=True,
        use_attribute_docstrings=True,
    )

    def __init__(self, **values: Any) -> None:
        """Set and check the fields; raise ValueError in one line for an unknown or wrong one."""
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise one_line_error(error, type(self), values) from None

    @field_validator("*", mode="before")
    @classmethod
    def read_list_as_tuple(cls, value: Any, info: ValidationInfo) -> Any:
        """Turn a list into a tuple, unless the field is a list."""
        field = cls.model_fields[info.field_name or ""]
        is_list_field = get_origin(field.annotation) is list
        return tuple(value) if isinstance(value, list) and not is_list_field else value


def check_choice(name: str, value: object, choices: Iterable[Any]) -> None:
    """Raise ValueError, with a suggestion if there is one, unless the value is a choice."""
    choices = list(choices)
    if value not in choices:
        raise choice_error(name, value, choices)


def choice_error(name: str, value: object, choices: Iterable[Any]) -> ValueError:
    """Return the error for a value that is none of the choices, with a suggestion.

    A long list of choices stands after the suggestion, where it hides nothing.
    """
    labels = [str(choice or repr(choice)) for choice in choices]
    hint = suggestion(str(value), labels)
    if hint and len(labels) > MANY_CHOICES:
        return ValueError(
            f"{name} {value!r} is unknown{hint} {name} must be one of {', '.join(labels)}"
        )
    return ValueError(f"{name} must be one of {', '.join(labels)}, got {value!r}{hint}")


def field_error(name: str, model: type[BaseModel], fields: Iterable[str]) -> ValueError:
    """Return the error for a name that is none of the fields of a model or its run.

    The name may be a class attribute that its author forgot to annotate.
    """
    default = inspect.getattr_static(model, name, None)
    owners = [cls for cls in model.__mro__ if name in vars(cls)]
    overrides = len(owners) > 1
    is_constant = name in model.__class_vars__
    if overrides or is_constant or not isinstance(default, PLAIN_TYPES):
        return choice_error("field", name, sorted(fields))
    annotation = type(default).__name__
    return ValueError(
        f"{name} is not a field of {model.__name__}: annotate it to make it one, "
        f"`{name}: {annotation} = {default!r}`"
    )


def suggestion(value: str, labels: Iterable[str]) -> str:
    """Return "; did you mean ...?" with the label that a value is most like, "" if it is like none.

    That is the only one that starts with the value, or else the closest match.
    """
    labels = list(labels)
    similar = [label for label in labels if value and label.startswith(value)]
    if len(similar) != 1:
        similar = difflib.get_close_matches(value, labels, 1)
    return f"; did you mean {similar[0]!r}?" if similar else ""


def one_line_error(
    error: ValidationError, model: type[BaseModel], values: Mapping[str, Any]
) -> Exception:
    """Return pydantic's first complaint about a model's values as an error of one line.

    An error that a model's own check raised is returned unchanged, traceback included.
    """
    fault = error.errors()[0]
    cause: Exception | None = fault.get("ctx", {}).get("error")
    if not fault["loc"]:
        return cause or ValueError(fault["msg"])
    name = str(fault["loc"][0])
    if fault["type"] == "extra_forbidden":
        return field_error(name, model, model.model_fields)
    if name not in values and fault["type"] == "missing":
        return ValueError(f"{name} must be given")
    field = model.model_fields[name]
    text = allowed_text(field)
    if not text and fault["type"] == "literal_error":
        position = "".join(
            f"[{part}]" for part in fault["loc"][1:] if isinstance(part, int)
        )
        choices = literal_choices(field.annotation)
        return choice_error(f"{name}{position}", fault["input"], choices)
    if not text and cause is not None:
        return cause
    if not text:
        # A union has a complaint from each of its members.
        complaints = [
            other["msg"] for other in error.errors() if other["loc"][0] == name
        ]
        text = requirement(complaints, field)
    return ValueError(f"{name} must be {text}, got {values.get(name, field.default)!r}")


def allowed_text(field: FieldInfo) -> str:
    """Return the words of a field's `Allowed`, or ""."""
    return next((mark.text for mark in field.metadata if isinstance(mark, Allowed)), "")


def requirement(complaints: Iterable[str], field: FieldInfo) -> str:
    """Return what a field must be, from pydantic's complaints such as "Input should be ..."."""
    allowed = [complaint.removeprefix("Input should be ") for complaint in complaints]
    if type(None) in get_args(field.annotation):
        allowed.append("null")
    return " or ".join(dict.fromkeys(allowed)).replace("valid tuple", "list")


def is_operational(field: FieldInfo) -> bool:
    """Whether a field is marked as `Operational`."""
    return any(isinstance(mark, Operational) for mark in field.metadata)


def literal_choices(annotation: Any) -> tuple[Any, ...]:
    """Return the values of the first Literal in a type, such as `tuple[Literal["a", "b"], ...]`."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return next(filter(None, map(literal_choices, get_args(annotation))), ())


def leaf_types(annotation: Any) -> set[Any]:
    """Return the types of the single values that an annotation allows, such as str and None."""
    if get_origin(annotation) is Literal:
        return {type(choice) for choice in get_args(annotation)}
    members = get_args(annotation)
    if get_origin(annotation) is Annotated:
        members = members[:1]
    if not members:
        return {annotation}
    return set().union(*map(leaf_types, members))
