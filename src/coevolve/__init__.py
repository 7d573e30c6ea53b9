"""Language models that improve by playing roles: the public names.

Each name is imported on first use, so that `import coevolve` loads no torch.
"""

import warnings
from importlib import import_module

__version__ = "0.2.0"

# In a notebook without widgets, tqdm shows bars as text.
warnings.filterwarnings("ignore", "IProgress not found")

_HOMES = {
    "Method": "methods.base",
    "Outcome": "types",
    "Parts": "types",
    "Policy": "models.policy",
    "Reply": "types",
    "Role": "types",
    "Run": "training.config",
    "Sample": "types",
    "EpisodeStepper": "rollout.stepper",
    "Turn": "types",
    "load_policy": "engines.loading",
    "play": "rollout.scheduler",
    "train": "training.loop",
}
__all__ = list(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(
            f"coevolve has no attribute {name!r}; its public names: {', '.join(_HOMES)}"
        )
    return getattr(import_module(f"coevolve.{_HOMES[name]}"), name)
