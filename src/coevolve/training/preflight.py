"""What a run needs from outside, asked before anything long starts: packages, models, servers, data, a folder.

Each check raises ValueError in one line. The hub is asked once, without retries; what its cache holds is not asked for.
"""

import json
import os
from importlib.util import find_spec
from pathlib import Path
from reprlib import repr as shortened

from coevolve.engines.loading import load_policy
from coevolve.models.names import find
from coevolve.runs import record
from coevolve.training.config import Run, assign_models, flatten

SECONDS = 10  # that the hub has for its answer
FREE = ("steps", "keep_episodes", "track", "save_every")  # may change at a resume: what is learnt does not


def check(run: Run) -> None:
    """Raise ValueError unless a run's packages, models, servers and data are there; loads no model."""
    for field, value, how in (("engine", run.engine, "docs/gpu.md says how"), ("track", run.track, "pip install it")):
        for package in value.split("+"):
            if package not in ("", "torch") and find_spec(package) is None:
                raise ValueError(f"{field} {value!r} needs the package {package}, which is not installed; {how}")
    for name in dict.fromkeys(assign_models(run.protocol, run.model)[0].values()):
        if run.engine != "torch" and base_of(name) != name:
            raise ValueError(f"model {name!r} is an adapter; merge it with `coevolve export` for engine {run.engine!r}")
        model(name)
    run.protocol.world.check()
    place = next(place for place in (run.out, *run.out.parents) if place.exists())
    if not (place.is_dir() and os.access(place, os.W_OK)):
        raise ValueError(f"out must be a folder that can be written, and {place} is not")


def finished(run: Run) -> bool:
    """Whether the folder holds a finished run of at least as many steps, and say so; ValueError for another run."""
    if not (run.out / "config.json").is_file():
        return False
    same(run, run.out)
    summary = run.out / "summary.json"
    if done := summary.is_file() and json.loads(summary.read_bytes())["steps"] >= run.steps:
        print(f"{run.out} is finished: another out folder makes another run, and more steps go on with this one")
    return bool(done)


def same(run: Run, folder: Path) -> None:
    """Raise ValueError, with both values, unless config.json is this run's but for what changes nothing learnt."""
    saved, mine = flatten(json.loads((folder / "config.json").read_bytes())), flatten(record.clean(run.describe()))
    names = mine if saved.get("method") == run.method else ["method"]  # of another method nothing else is told
    if changed := [name for name in names if name not in FREE and saved.get(name) != mine[name]]:
        told = "; ".join(f"{name} {shortened(saved.get(name))} there, {shortened(mine[name])} now" for name in changed)
        raise ValueError(f"{run.out} belongs to another run: {told}; take its values, or another out folder")


def model(name: str) -> None:
    """Raise ValueError unless a model is embedded, in a folder, on the hub, or on a server that answers."""
    found = load_policy(name) if "://" in name else find(base_of(name))
    if isinstance(found, str) and (why := ask(found, "model", "config.json")):
        raise ValueError(f"model {found!r} {why}")


def base_of(name: str) -> str:
    """Return the model that a LoRA adapter's folder names as its base, which may be an adapter again, or `name`."""
    settings = Path(name) / "adapter_config.json"
    if not settings.is_file():
        return name
    base = json.loads(settings.read_bytes()).get("base_model_name_or_path")
    return base_of(base or f"none, see {settings}")


def ask(name: str, kind: str, file: str, revision: str | None = None) -> str:
    """Return why the hub cannot serve a file of a model or dataset, or "" when it can or the cache holds the file."""
    from httpx import HTTPError
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError

    if isinstance(try_to_load_from_cache(name, file, repo_type=kind, revision=revision), str):
        return ""
    url = hf_hub_url(name, file, repo_type=kind, revision=revision)
    try:
        get_hf_file_metadata(url, timeout=SECONDS)
    except (EntryNotFoundError, HTTPError, OSError) as error:
        return f"cannot be had from the hub: {type(error).__name__} at {url}; a gated or private {kind} needs HF_TOKEN"
    return ""
