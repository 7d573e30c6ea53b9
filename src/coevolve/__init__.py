"""Several roles, one policy: the public names, each imported on first use, so that importing loads no torch."""

import warnings
from importlib import import_module

__version__ = "0.2.0"

warnings.filterwarnings("ignore", "IProgress not found")  # in a notebook without widgets tqdm shows bars as text

_HOMES = {"Run": "config", "Steps": "driver", "play": "driver", "train": "loop", "Method": "method"}
_HOMES |= {"Policy": "policies.causal"} | dict.fromkeys(("Outcome", "Reply", "Role", "Sample", "Turn"), "types")
__all__ = list(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"coevolve has no attribute {name!r}; its public names: {', '.join(_HOMES)}")
    return getattr(import_module(f"coevolve.{_HOMES[name]}"), name)
