"""Policies: language models that speak and can be trained. Importing this package loads no model library."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coevolve.engines.server import ServedPolicy
    from coevolve.policies.causal import Policy

HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")  # ORG/NAME
SERVERS = ("http://", "https://")


def find(model: str | Path) -> Path | str:
    """Return the folder of an embedded backbone, of SmolLM2 or of a model of your own, or a hub's model id as it is.

    SmolLM2's is made on first use. Raises ValueError in one line when `model` is none of them.
    """
    import tinyworld
    from published import smollm2

    folder = tinyworld.backbone(str(model)) or (smollm2.folder(str(model)) if model in smollm2.NAMES else Path(model))
    if (folder / "config.json").is_file() and not (folder / "policy").exists():  # a run has one that is no model's
        return folder
    if HUB_ID.fullmatch(str(model)) and not folder.exists():
        return str(model)
    kinds = "a model's folder (a run's: OUT/policy, or OUT/policy/NAME), a model id of the hub (ORG/NAME), or a server"
    names = ", ".join((*tinyworld.NAMES, *smollm2.NAMES))
    raise ValueError(f"model must be one of {names}, {kinds} (http://HOST/v1#MODEL), got {str(model)!r}")


def load(model: str | Path, name: str = "shared", dtype: str = "float32") -> "Policy | ServedPolicy":
    """Load an embedded backbone or smollm2 by name, a model folder, a folder with a LoRA adapter (merged into its
    base), a model id of the hub (ORG/NAME), or a server's model (http://HOST/v1#MODEL).

    Raises ValueError in one line when `model` is none of them.
    """
    if str(model).startswith(SERVERS):
        from coevolve.engines.server import ServedPolicy

        return ServedPolicy(str(model), name)
    return load_local(model, name, dtype)


def load_local(model: str | Path, name: str = "shared", dtype: str = "float32") -> "Policy":
    """Load what `load` does, except for a server's model."""
    from coevolve.policies.causal import Policy

    adapter = Path(model) / "adapter_config.json"
    if not adapter.is_file():
        return Policy.load(find(model), name, dtype=dtype)
    from coevolve.policies.adapters import merged

    base = json.loads(adapter.read_text(encoding="utf-8")).get("base_model_name_or_path") or f"none for {model}"
    return merged(model, load_local(base, name, dtype))
