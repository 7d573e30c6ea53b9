"""Finds models by name: embedded backbones, SmolLM2, folders, hub ids. Loads no model library."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coevolve import plugins
from coevolve.validation import suggestion, user_path

HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")  # ORG/NAME
HUB_NAME = re.compile(r"[\w-][\w.-]*")  # NAME alone
RUN_MARK = b'"method_fields"'  # in the config.json of a run, and in no model's
ADAPTER_CONFIG = "adapter_config.json"
SERVERS = ("http://", "https://")


def find(model: str | Path) -> Path | str:
    """Return the folder of a model, or its id if it is on the hub.

    `model` is the name of an embedded backbone or of SmolLM2 (whose folder is made on first use), a
    model's folder, a run's, or a hub id (ORG/NAME). A folder that is called like a backbone is
    written ./NAME. Raises ValueError if `model` is none of these.
    """
    announced = plugins.announced(plugins.MODELS)
    if _is_announced(model):
        folder: Path = plugins.load(plugins.MODELS, str(model))(str(model))
    else:
        folder = policy_folder(model)
    if (folder / "config.json").is_file():
        return folder
    if HUB_ID.fullmatch(str(model)) and not folder.exists():
        return str(model)
    if len(Path(model).parts) > 2 and not folder.exists():
        raise ValueError(
            f"model must be a folder that exists (of a model or of a run), got {str(model)!r}; "
            f"names without a folder are {', '.join(sorted(announced))}"
        )
    hint = suggestion(str(model), announced)
    if not hint and HUB_NAME.fullmatch(str(model)) and not folder.exists():
        hint = "; a model of the hub is written ORG/NAME, as in openai-community/gpt2"
    raise ValueError(
        f"model must be one of {', '.join(sorted(announced))}, a model's folder, the folder of a "
        "run (or RUN/policy/NAME), a model id of the hub (ORG/NAME), or a server "
        f"(http://HOST/v1#MODEL), got {str(model)!r}{hint}"
    )


def _is_announced(model: str | Path) -> bool:
    """Whether a model is an embedded backbone or SmolLM2, whatever folders there are."""
    return str(model) in plugins.announced(plugins.MODELS)


def policy_folder(model: str | Path) -> Path:
    """Return the folder of the policy of a run, if `model` is one, else `model` as a path.

    Raises ValueError for a run with several policies, and for one without any yet.
    """
    folder = user_path(model)
    config_file = folder / "config.json"
    is_run = config_file.is_file() and RUN_MARK in config_file.read_bytes()
    if not is_run and not (folder / "policy").is_dir():
        return folder
    trained = folder / "policy"
    if (trained / "config.json").is_file() or (trained / ADAPTER_CONFIG).is_file():
        return trained
    names = sorted(path.name for path in trained.glob("*/") if path.is_dir())
    if not names:
        raise ValueError(
            f"model {str(model)!r} is a run without a trained policy; has it finished?"
        )
    policies = ", ".join(str(trained / name) for name in names)
    raise ValueError(
        f"model {str(model)!r} is a run with several policies; write one of {policies}"
    )


@dataclass(frozen=True)
class Located:
    """A model's folder or hub id, and the folders of the adapters on it, the topmost first."""

    base: Path | str
    adapters: tuple[Path, ...] = ()


def locate(model: str | Path) -> Located:
    """Find a model, below its LoRA adapters if it is the folder of one.

    The base of an adapter may be another adapter. Raises ValueError as `find` does, and if an
    adapter names itself or no base.
    """
    adapters: list[Path] = []
    while not _is_announced(model):
        folder = policy_folder(model)
        if not (folder / ADAPTER_CONFIG).is_file():
            break
        if folder in adapters:
            raise ValueError(
                f"adapter {str(folder)!r} is its own base: base_model_name_or_path in "
                f"{ADAPTER_CONFIG} must name the model that it was trained on"
            )
        adapters.append(folder)
        model = adapter_settings(folder)["base_model_name_or_path"]
    try:
        return Located(find(model), tuple(adapters))
    except ValueError as error:
        if not adapters:
            raise
        raise ValueError(
            f"adapter {str(adapters[-1])!r}: its base (base_model_name_or_path in "
            f"{ADAPTER_CONFIG}) cannot be found: {error}"
        ) from None


def adapter_settings(folder: str | Path) -> dict[str, Any]:
    """Return the configuration of a LoRA adapter. Raises ValueError if it names no base."""
    path = user_path(folder) / ADAPTER_CONFIG
    try:
        settings = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from None
    if not settings.get("base_model_name_or_path"):
        raise ValueError(f"{path}: base_model_name_or_path is missing")
    return dict(settings)
