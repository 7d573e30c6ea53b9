"""Checks before anything long starts: packages, models, servers, data and the output folder.

Each check raises ValueError in one line. The hub is asked once, without retries, and not at all for
files in its cache.
"""

import json
import os
from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from reprlib import repr as shortened

from coevolve.engines.loading import load_policy
from coevolve.methods.base import Method
from coevolve.models.names import locate
from coevolve.runs import record
from coevolve.training import machine
from coevolve.training.config import Run, assign_models, field_defaults, flatten

HUB_TIMEOUT_SECONDS = 10
# Values of fields that are not a package's name, with the package that they need.
PACKAGES = {"4bit": "bitsandbytes", "adamw_8bit": "bitsandbytes", "adamw": ""}
# Fields that may differ from the checkpoint's: none of them changes what is learnt. So may the
# steps, unless the learning rate falls to 0 at the last one.
MAY_CHANGE_ON_RESUME = (
    "keep_episodes",
    "track",
    "save_every",
    "vllm_server",
)


@dataclass(frozen=True)
class PackageChoice:
    """A field whose value names the packages that it needs, joined by "+"."""

    field: str
    value: str
    how_to_install: str


def check(run: Run) -> None:
    """Raise ValueError unless a run's packages, models, servers, data and folder are available.

    Loads no model.
    """
    _check_packages(run)
    machine.check(run)
    _check_shards(run)
    models, _ = assign_models(run.method, run.model)
    for name in dict.fromkeys(models.values()):
        if run.engine != "torch" and locate(name).adapters:
            raise ValueError(
                f"model {name!r} is an adapter; merge it with `coevolve export` "
                f"for engine {run.engine!r}"
            )
        check_model(name)
    if run.vllm_server:
        _check_server(run)
    run.method.world.check()
    _check_folder(run.out)


def _check_packages(run: Run) -> None:
    choices = (
        PackageChoice("engine", run.engine, "docs/gpu.md says how"),
        PackageChoice("track", run.track, "pip install it"),
        PackageChoice("quantize", run.quantize, "pip install it"),
        PackageChoice("optimizer", run.optimizer, "pip install it"),
    )
    for choice in choices:
        for part in choice.value.split("+"):
            package = PACKAGES.get(part, part)
            is_builtin = package in ("", "torch")
            if not is_builtin and find_spec(package) is None:
                raise ValueError(
                    f"{choice.field} {choice.value!r} needs the package {package}, "
                    f"which is not installed; {choice.how_to_install}"
                )


def _check_shards(run: Run) -> None:
    """Raise ValueError if FSDP or DeepSpeed would have to shard weights of 4 bits."""
    if run.quantize and machine.shards() > 1:
        raise ValueError(
            f"quantize must be '' where weights are sharded, got {run.quantize!r}; launch with "
            "`accelerate launch --multi_gpu`, so that each process keeps them whole"
        )


def _check_server(run: Run) -> None:
    """Raise ValueError unless vllm_server answers, with the model that this run trains."""
    from coevolve.engines import vllm_server

    assigned, trained = assign_models(run.method, run.model)
    vllm_server.check(run.vllm_server, assigned[trained[0]])


def _check_folder(out: Path) -> None:
    """Raise ValueError unless the first existing folder on the way to `out` is writable."""
    existing = machine.existing_folder(out)
    if not (existing.is_dir() and os.access(existing, os.W_OK)):
        raise ValueError(
            f"out must be a folder that can be written, and {existing} is not"
        )


def is_finished(run: Run) -> bool:
    """Whether the folder holds this run with at least as many steps; print a line if it does.

    Raises ValueError if it holds another run.
    """
    if not (run.out / "config.json").is_file():
        return False
    check_same_run(run, run.out)
    summary = run.out / "summary.json"
    if not summary.is_file():
        return False
    steps_finished = json.loads(summary.read_bytes())["steps"]
    if steps_finished < run.steps:
        return False
    how_to_extend = ""
    if _can_be_extended(run):
        how_to_extend = " To extend it, set a larger steps=N."
    print(
        f"{run.out} is already finished.{how_to_extend} "
        "To start a new run, choose another --out."
    )
    return True


def _can_be_extended(run: Run) -> bool:
    """Whether a finished run continues if it gets a larger number of steps."""
    trains_nothing = run.method.PAPER_RUN_VALUES.get("steps") == 0
    has_own_trainer = type(run.method).fit is not Method.fit
    return run.schedule == "constant" and not (trains_nothing or has_own_trainer)


def check_same_run(run: Run, folder: Path) -> None:
    """Raise ValueError if the folder's config.json differs in a field that changes what is learnt.

    The error shows the values of both. For another method it names the method alone.
    """
    saved_config = json.loads((folder / "config.json").read_bytes())
    current_config = record.clean(run.describe())
    current_sources = current_config.pop("method_sources")
    # Runs of earlier releases have none.
    saved_sources = saved_config.pop("method_sources", current_sources)
    saved = flatten(saved_config)
    # Runs of earlier releases name no trainer.
    saved = {"trainer": "own", "trl": {}} | saved
    current = flatten(current_config)
    compared = [name for name in current if name not in MAY_CHANGE_ON_RESUME]
    if run.schedule == "constant":
        compared.remove("steps")
    if saved.get("method") != run.method_name:
        compared = ["method"]
    # A field that a release has added has its default in runs that are older.
    defaults = record.clean(field_defaults(Run))
    changes = []
    for name in compared:
        if name not in saved and name in defaults and defaults[name] == current[name]:
            continue
        if saved.get(name) != current[name]:
            old = shortened(saved.get(name))
            new = shortened(current[name])
            change = f"{name} {old} there, {new} now"
            if name == "steps":
                change += f" (schedule {run.schedule!r} depends on them)"
            changes.append(change)
    if changes:
        raise ValueError(
            f"{run.out} holds a run with other settings: {'; '.join(changes)}; "
            "use its values, or choose another out folder"
        )
    changed = _changed_files(saved_sources, current_sources)
    if changed:
        raise ValueError(
            f"{run.out}: changed since step {record.last_step(folder)}: {', '.join(changed)}; "
            "start again with --fresh (in Python: train(run, fresh=True)), or choose another out "
            "folder"
        )


def _changed_files(saved: dict[str, str], current: dict[str, str]) -> list[str]:
    """Return the names of a user's files whose code differs from the run's, new ones included.

    Both are {path: hash of the code}. A file is known by its name without folders and its code: a
    folder may move, and several files may have one name.
    """
    known = Counter((Path(path).name, code) for path, code in saved.items())
    changed = []
    for path, code in current.items():
        name = Path(path).name
        if known[name, code]:
            known[name, code] -= 1
        else:
            changed.append(name)
    return changed


def check_model(name: str) -> None:
    """Raise ValueError unless a model is embedded, in a folder, on the hub or on a live server."""
    if "://" in name:
        load_policy(name)  # asks the server
        return
    place = locate(name).base
    if isinstance(place, Path):
        return
    fault = why_hub_cannot_serve(place, "model", "config.json")
    if fault:
        raise ValueError(f"model {place!r} {fault}")


def why_hub_cannot_serve(
    name: str, kind: str, file: str, revision: str | None = None
) -> str:
    """Return why the hub cannot serve a file of a model or dataset, "" if it can.

    A file in the cache needs no hub. `kind` is "model" or "dataset".
    """
    from httpx import HTTPError
    from huggingface_hub import (
        get_hf_file_metadata,
        hf_hub_url,
        try_to_load_from_cache,
    )
    from huggingface_hub.errors import EntryNotFoundError

    cached = try_to_load_from_cache(name, file, repo_type=kind, revision=revision)
    if isinstance(cached, str):
        return ""
    url = hf_hub_url(name, file, repo_type=kind, revision=revision)
    try:
        get_hf_file_metadata(url, timeout=HUB_TIMEOUT_SECONDS)
    except (EntryNotFoundError, HTTPError, OSError) as error:
        return (
            f"cannot be had from the hub: {type(error).__name__} at {url}; "
            f"a gated or private {kind} needs HF_TOKEN"
        )
    return ""
