"""Several roles, one policy: the public names, each imported on first use.

Importing the package loads no torch, so tables and figures start fast. `coevolve.driver` and `coevolve.loop`
are the verbs; their modules' other names come with `from coevolve.driver import ...`.
"""

import sys
from importlib import import_module
from types import ModuleType

__version__ = "0.1.0"
__all__ = ["Policy", "Run", "Steps", "play", "train"]

_HOMES = {
    "Policy": "coevolve.policies.causal",
    "Run": "coevolve.config",
    "Steps": "coevolve.driver",
    "play": "coevolve.driver",
    "train": "coevolve.loop",
}


class _Package(ModuleType):
    # Importing the submodule coevolve.loop sets the attribute `train` to the module, so the order of imports
    # would decide what `from coevolve import train` means. The verb wins, always.
    def __setattr__(self, name: str, value: object) -> None:
        verb = isinstance(value, ModuleType) and name in _HOMES
        super().__setattr__(name, getattr(value, name) if verb else value)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"coevolve has no attribute {name!r}; its public names: {', '.join(__all__)}")
    value = getattr(import_module(_HOMES[name]), name)
    setattr(sys.modules[__name__], name, value)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


sys.modules[__name__].__class__ = _Package
