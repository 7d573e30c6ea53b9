"""Checks of what a user chose: ValueError in one line that names the field, what is allowed and what was given."""

from collections.abc import Collection


def among(name: str, value: object, allowed: Collection[str]) -> None:
    """Raise ValueError unless the value is one of those that are allowed."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")


def at_least(holder: object, **lows: float) -> None:
    """Raise ValueError unless every field named reaches its lower bound; None is a field left to its default."""
    for name, low in lows.items():
        value = getattr(holder, name)
        if value is not None and not value >= low:  # not "<": nan reaches nothing
            raise ValueError(f"{name} must be at least {low}, got {value}")
