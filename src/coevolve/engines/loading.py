"""Loads a policy by name: into this process, or as the client of a server.

Importing this module loads no model library.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from coevolve.models.names import SERVERS

if TYPE_CHECKING:
    from coevolve.engines.openai_server import ServedPolicy
    from coevolve.models.policy import Policy


def load_policy(
    model: str | Path, name: str = "shared", dtype: str = "float32"
) -> "Policy | ServedPolicy":
    """Load a policy that answers turns as `name`.

    `model` is the name of an embedded backbone or of SmolLM2, a model's folder, a folder with a
    LoRA adapter (which is merged into its base), a model id of the hub (ORG/NAME), or a server's
    model (http://HOST/v1#MODEL). Raises ValueError if it is none of them.
    """
    if str(model).startswith(SERVERS):
        from coevolve.engines.openai_server import ServedPolicy

        return ServedPolicy(str(model), name)
    from coevolve.models.loading import load_local

    return load_local(model, name, dtype)
