"""Models by name: embedded backbones, SmolLM2, folders, hub ids. Loads no model library."""

import re
from pathlib import Path

from coevolve import plugins

HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")  # ORG/NAME
SERVERS = ("http://", "https://")


def find(model: str | Path) -> Path | str:
    """Return the folder of an embedded backbone, of SmolLM2 or of a model of your own, or a hub's model id as it is.

    SmolLM2's is made on first use. Raises ValueError in one line when `model` is none of them.
    """
    announced = plugins.announced(plugins.MODELS)
    folder = Path(model)
    if str(model) in announced:
        folder = plugins.load(plugins.MODELS, str(model))(str(model))
    # A finished run has a config.json as well, but that describes no model.
    if (folder / "config.json").is_file() and not (folder / "policy").exists():
        return folder
    if HUB_ID.fullmatch(str(model)) and not folder.exists():
        return str(model)
    raise ValueError(
        f"model must be one of {', '.join(sorted(announced))}, a model's folder (a run's: OUT/policy, or "
        "OUT/policy/NAME), a model id of the hub (ORG/NAME), or a server (http://HOST/v1#MODEL), "
        f"got {str(model)!r}"
    )
