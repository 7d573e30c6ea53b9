"""Loads a policy into this process."""

import json
from pathlib import Path

from coevolve.models.lora import merged
from coevolve.models.names import find
from coevolve.models.policy import Policy


def load_local(model: str | Path, name: str = "shared", dtype: str = "float32") -> Policy:
    """Load what `load` does, except for a server's model."""
    adapter = Path(model) / "adapter_config.json"
    if not adapter.is_file():
        return Policy.load(find(model), name, dtype=dtype)
    base = json.loads(adapter.read_text(encoding="utf-8")).get("base_model_name_or_path") or f"none for {model}"
    return merged(model, load_local(base, name, dtype))
