"""Checks of what a user chose: ValueError in one line that names the field, what is allowed and what was given."""

import difflib
from collections.abc import Iterable


def among(name: str, value: object, allowed: Iterable[str]) -> None:
    """Raise ValueError unless the value is one of those that are allowed; the closest of them is offered."""
    allowed = list(allowed)
    if value not in allowed:
        near = difflib.get_close_matches(str(value), allowed, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{name} must be one of {', '.join(one or repr(one) for one in allowed)}, got {value!r}{hint}")


def at_least(holder: object, **lows: float) -> None:
    """Raise ValueError unless every field named reaches its lower bound; None is a field left to its default."""
    for name, low in lows.items():
        value = getattr(holder, name)
        if value is not None and not value >= low:  # not "<": nan reaches nothing
            raise ValueError(f"{name} must be at least {low}, got {value}")
