"""What a run needs from outside, asked before anything long starts: packages, models and data of the hub, servers.

Each check raises ValueError in one line. The hub is asked once, without retries; what its cache holds is not asked for.
"""

import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from coevolve import track
from coevolve.config import assign
from coevolve.policies import find

if TYPE_CHECKING:
    from coevolve.config import Run

SECONDS = 10  # that the hub has for its answer
WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
ENGINES = {"vllm": "vllm", "unsloth": "unsloth"}  # part of an engine's name: its package
SERVERS = ("http://", "https://")


def check(run: "Run") -> None:
    """Raise ValueError unless a run's engine, tracker, models, data and servers are there; loads no model."""
    engine(run.engine)
    if run.track:
        track.package(run.track)
    models = dict.fromkeys(assign(run.protocol, run.model)[0].values())
    for name in models:
        if base_of(name) != name and run.engine != "torch":
            raise ValueError(
                f"model {name!r} is an adapter, which engine {run.engine!r} does not load: "
                f"`coevolve export {name} --to FOLDER` merges it into a whole model"
            )
        if not name.startswith(SERVERS):
            find(base_of(name))
    for name in models:
        model(name)
    data(run.protocol.world)
    for name in models:
        server(name)


def engine(kind: str) -> None:
    """Raise ValueError when a package that the engine needs is not installed."""
    for part, package in ENGINES.items():
        if part in kind.split("+") and find_spec(package) is None:
            raise ValueError(
                f"engine {kind!r} needs the package {package}, which is not installed; see environment.yml"
            )


def model(name: str) -> None:
    """Raise ValueError when a model is the hub's and cannot be had from there; an adapter's base counts as well."""
    name = base_of(name)
    if not name.startswith(SERVERS) and isinstance(find(name), str) and not cached(name):
        why = ask(name, "model", "config.json")
        if why:
            raise ValueError(f"model {name!r} {why}")


def base_of(name: str) -> str:
    """The model that a LoRA adapter's folder names as its base (which may be an adapter again); others themselves."""
    settings = Path(name) / "adapter_config.json"
    if not settings.is_file():
        return name
    return base_of(json.loads(settings.read_text(encoding="utf-8"))["base_model_name_or_path"])


def cached(name: str) -> bool:
    """Whether the hub's local cache holds a model's configuration and weights."""
    from huggingface_hub import try_to_load_from_cache

    there = [isinstance(try_to_load_from_cache(name, file), str) for file in ("config.json", *WEIGHTS)]
    return there[0] and any(there[1:])


def ask(name: str, kind: str, file: str) -> str:
    """Ask the hub for a file of a model or dataset: "" when it is there, else why not, to stand behind its name.

    Any other trouble of the hub's (too many requests, say) is left to the download, which tries again.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HfHubHTTPError,
        HTTPError,  # httpx's own: connections that fail
        RepositoryNotFoundError,
    )

    page = f"https://huggingface.co/{'datasets/' if kind == 'dataset' else ''}{name}"
    try:
        get_hf_file_metadata(hf_hub_url(name, file, repo_type=kind), timeout=SECONDS)
    except GatedRepoError:
        return f"is gated: accept its conditions on {page}, then set HF_TOKEN or `hf auth login`"
    except RepositoryNotFoundError:
        return f"is no {kind} of the hub, or a private one (set HF_TOKEN): {page}"
    except EntryNotFoundError:
        return f"holds no {file}: {page}" if kind == "model" else ""
    except HfHubHTTPError:
        return ""
    except (HTTPError, OSError) as error:
        return f"is not in the cache, and {unreachable(error)}"
    return ""


def unreachable(error: Exception) -> str:
    """Why the hub gave no answer, in one line."""
    from huggingface_hub.constants import is_offline_mode

    if is_offline_mode():
        return "HF_HUB_OFFLINE forbids asking the hub"
    why = (str(error).splitlines() or [""])[0] or type(error).__name__
    return f"the hub cannot be reached ({why})"


def data(world: object) -> None:
    """Raise ValueError when a published data set that a world names can be had neither here nor from the hub."""
    from published import sources
    from published.data import benchmark
    from published.world import DataWorld

    if isinstance(world, DataWorld):
        for key in dict.fromkeys([*world.its.tests, *world.its.seeds]):
            sources.check(benchmark(key))


def server(name: str) -> None:
    """Raise ValueError when a model is a server's, and none answers there or it has another one."""
    if name.startswith(SERVERS):
        from coevolve.policies import load

        load(name)


def made(folder: Path) -> list[Path]:
    """Make a run's folder and return what was made, the folder first; ValueError unless it can be written."""
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"out must be a folder, and {folder} cannot be made: {error.strerror}") from None
    if not os.access(folder, os.W_OK):
        raise ValueError(f"out must be a folder that can be written, and {folder} cannot")
    return new
