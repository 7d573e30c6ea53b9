"""Loads a policy into this process."""

from pathlib import Path

from coevolve import plugins
from coevolve.models.lora import load_merged
from coevolve.models.names import locate
from coevolve.models.policy import Policy


def load_local(
    model: str | Path, name: str = "shared", dtype: str = "float32"
) -> Policy:
    """Load a policy by the name, folder or id of its model; a LoRA adapter is merged into its base.

    `coevolve.engines.loading.load_policy` loads models on a server as well. Raises ValueError if
    `model` is none of these.
    """
    located = locate(model)
    # The embedded models are tested; others are asked, see `probe`.
    is_embedded = str(model) in plugins.announced(plugins.MODELS)
    policy = Policy.load(located.base, name, dtype=dtype, probed=is_embedded)
    for adapter in reversed(located.adapters):
        policy = load_merged(adapter, policy)
    return policy
