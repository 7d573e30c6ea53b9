"""Policies: language models that speak and can be trained. Importing this package loads no model library."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coevolve.policies.causal import Policy

__all__ = ["Policy", "load"]


def __getattr__(name: str) -> Any:
    """Import `Policy`, and torch with it, only when it is asked for."""
    if name != "Policy":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from coevolve.policies.causal import Policy

    return Policy


def load(model: str, name: str = "shared") -> "Policy":
    """Load an embedded backbone by name, a model folder, or a folder with a LoRA adapter (merged into its base).

    Raises ValueError when there is none of them.
    """
    import json
    from pathlib import Path

    from coevolve.policies.causal import Policy
    from coevolve.policies.tiny import find

    adapter = Path(model) / "adapter_config.json"
    if not adapter.is_file():
        return Policy.load(find(model), name)
    from coevolve.policies.adapters import merged

    return merged(model, load(json.loads(adapter.read_text(encoding="utf-8"))["base_model_name_or_path"], name))
