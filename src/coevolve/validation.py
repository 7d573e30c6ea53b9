"""Checks of what a user chose: ValueError in one line that names the field, what is allowed and what was given.

What some fields of a run may be is listed here, for the code that checks them and the code that acts on them.
"""

import difflib
from collections.abc import Iterable
from dataclasses import fields
from typing import Annotated, Any, get_args, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

STRICT = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)

Share = Annotated[float, Field(ge=0, le=1)]


def among(name: str, value: object, allowed: Iterable[Any]) -> None:
    """Raise ValueError if `value` is not allowed; it suggests the only one that begins so, or the closest match."""
    allowed = list(allowed)
    if value not in allowed:
        names = [str(one or repr(one)) for one in allowed]
        begun = [one for one in names if one.startswith(str(value))]
        near = begun if len(begun) == 1 else difflib.get_close_matches(str(value), names, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{name} must be one of {', '.join(names)}, got {value!r}{hint}")


def settle(made: Any, *but: str) -> None:
    """Bring every field of a dataclass, `but` some, into the type of its annotation; ValueError as for `typed`."""
    annotations = get_type_hints(type(made), include_extras=True)
    for name in (field.name for field in fields(made) if field.name not in but):
        setattr(made, name, typed(name, getattr(made, name), annotations[name]))


def typed(name: str, value: Any, annotation: Any) -> Any:
    """Return a field's value in the type of its annotation: a list becomes a tuple, an int a float, nothing else.

    The annotation may hold bounds (pydantic's PositiveInt), a tuple of the values allowed, and a text that says what
    is allowed: `Annotated[tuple[float, float], "[low, high]"]`. Raises ValueError in one line for any other value.
    """
    for part in get_args(annotation):
        if isinstance(part, tuple):
            among(name, value, part)
    try:
        given = tuple(value) if isinstance(value, list) else value
        return TypeAdapter(annotation, config=STRICT).validate_python(given)
    except ValidationError as error:
        texts = [part for part in get_args(annotation) if isinstance(part, str)]
        faults = [fault["msg"].removeprefix("Input should be ") for fault in error.errors()]
        none = ["null"] if type(None) in get_args(annotation) else []
        allowed = " or ".join(dict.fromkeys(texts or faults + none)).replace("valid tuple", "list")
        raise ValueError(f"{name} must be {allowed}, got {value!r}") from None
