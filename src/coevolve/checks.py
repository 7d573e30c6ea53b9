"""Checks of what a user chose: ValueError in one line that names the field, what is allowed and what was given."""

import difflib
from collections.abc import Iterable
from typing import Any, get_args

from pydantic import ConfigDict, TypeAdapter, ValidationError

STRICT = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)


def among(name: str, value: object, allowed: Iterable[Any]) -> None:
    """Raise ValueError, suggesting the closest match, if `value` is not allowed."""
    allowed = list(allowed)
    if value not in allowed:
        near = difflib.get_close_matches(str(value), [one for one in allowed if isinstance(one, str)], 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        names = ", ".join(str(one or repr(one)) for one in allowed)
        raise ValueError(f"{name} must be one of {names}, got {value!r}{hint}")


def at_least(holder: object, **lows: float) -> None:
    """Raise ValueError unless every field named reaches its lower bound; None is a field left to its default."""
    for name, low in lows.items():
        value = getattr(holder, name)
        if value is not None and not value >= low:  # not "<": nan reaches nothing
            raise ValueError(f"{name} must be at least {low}, got {value}")


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
        allowed = " or ".join(dict.fromkeys(texts or faults + none))
        raise ValueError(f"{name} must be {allowed}, got {value!r}") from None
