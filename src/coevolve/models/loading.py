"""Loads a policy into this process."""

import json
from pathlib import Path

from coevolve.models.lora import load_merged
from coevolve.models.names import find
from coevolve.models.policy import Policy
from coevolve.validation import expand_home


def load_local(
    model: str | Path, name: str = "shared", dtype: str = "float32"
) -> Policy:
    """Load a policy by the name, folder or id of its model; a LoRA adapter is merged into its base.

    `coevolve.engines.loading.load_policy` loads models on a server as well. Raises ValueError if
    `model` is none of these.
    """
    model = expand_home(model)
    adapter = Path(model) / "adapter_config.json"
    if not adapter.is_file():
        return Policy.load(find(model), name, dtype=dtype)
    config = json.loads(adapter.read_text(encoding="utf-8"))
    base = config.get("base_model_name_or_path") or f"none for {model}"
    return load_merged(model, load_local(base, name, dtype))
