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
    """Load an embedded backbone by name, or a model folder; ValueError when there is neither."""
    from coevolve.policies.causal import Policy
    from coevolve.policies.tiny import find

    return Policy.load(find(model), name)
