"""Finds models by name: embedded backbones, SmolLM2, folders, hub ids. Loads no model library."""

import re
from pathlib import Path

from coevolve import plugins
from coevolve.validation import user_path

HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")  # ORG/NAME
SERVERS = ("http://", "https://")


def find(model: str | Path) -> Path | str:
    """Return the folder of a model, or its id if it is on the hub.

    `model` is the name of an embedded backbone or of SmolLM2 (whose folder is made on first use), a
    model's folder, or a hub id (ORG/NAME). Raises ValueError if it is none of them.
    """
    announced = plugins.announced(plugins.MODELS)
    folder = user_path(model)
    if str(model) in announced:
        folder = plugins.load(plugins.MODELS, str(model))(str(model))
    # A finished run also has a config.json, but not a model's.
    if (folder / "config.json").is_file() and not (folder / "policy").exists():
        return folder
    if HUB_ID.fullmatch(str(model)) and not folder.exists():
        return str(model)
    trained = folder / "policy"
    if trained.is_dir():
        raise ValueError(
            f"model {str(model)!r} is the folder of a run; its trained model is {trained}, "
            "or one of several in there"
        )
    raise ValueError(
        f"model must be one of {', '.join(sorted(announced))}, a model's folder (a run's: "
        "OUT/policy, or OUT/policy/NAME), a model id of the hub (ORG/NAME), or a server "
        f"(http://HOST/v1#MODEL), got {str(model)!r}"
    )
