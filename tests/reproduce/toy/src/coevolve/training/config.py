"""What the batch asks of the package: the methods, and whether a run's fields are known."""

from coevolve.methods.registry import METHODS


def build(method: str, preset: str, *, out: str, overrides: dict) -> None:
    if method not in METHODS and not method.endswith(".py:Own"):
        raise ValueError(f"unknown method {method!r}; allowed: toy")
    for name in overrides:
        if name not in ("steps", "fault", "model", "devices", "hold"):
            raise ValueError(
                f"unknown field {name!r}; allowed: devices, fault, hold, model, steps"
            )
