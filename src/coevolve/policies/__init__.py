"""Policies: language models that speak and can be trained. Importing this package loads no model library."""

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coevolve.policies.causal import Policy

__all__ = ["HUB_ID", "Policy", "load"]

HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")  # ORG/NAME


def __getattr__(name: str) -> Any:
    """Import `Policy`, and torch with it, only when it is asked for."""
    if name != "Policy":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from coevolve.policies.causal import Policy

    return Policy


def load(model: str, name: str = "shared", dtype: str = "") -> "Policy":
    """Load an embedded backbone by name, a model folder, a folder with a LoRA adapter (merged into its base), a
    model id of the hub (ORG/NAME), or a server's model (http://HOST/v1#MODEL).

    Raises ValueError in one line when there is none of them.
    """
    import json
    from pathlib import Path

    if str(model).startswith(("http://", "https://")):
        from coevolve.engines.server import ServedPolicy

        return ServedPolicy(model, name)
    from coevolve.policies.causal import Policy
    from tinyworld.recipe import find

    adapter = Path(model) / "adapter_config.json"
    if not adapter.is_file():
        return Policy.load(find(model), name, dtype=dtype)
    from coevolve.policies.adapters import merged

    base = json.loads(adapter.read_text(encoding="utf-8"))["base_model_name_or_path"]
    return merged(model, load(base, name, dtype))
