"""What the batch asks of the package: the methods, and whether a run's fields are known."""

from coevolve.methods.registry import METHODS


def build(protocol: str, preset: str, *, out: str, overrides: dict) -> None:
    if protocol not in METHODS and not protocol.endswith(".py:Own"):
        raise ValueError(f"unknown protocol {protocol!r}; allowed: toy")
    for name in overrides:
        if name not in ("steps", "fault", "model", "devices", "hold"):
            raise ValueError(
                f"unknown field {name!r}; allowed: devices, fault, hold, model, steps"
            )
