"""Items as tasks of Ray, on this machine or a cluster; each runs `python -m reproduce.work`.

Needs the extra `ray`. All nodes see the repository under the same path, as on a shared file system.
Ray is responsible for retries and GPUs.
"""

import math
import os
import secrets
import socket
from concurrent.futures import Future
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from reproduce import HOME, UserError
from reproduce.plan import Item, Plan
from reproduce.work import environment

CONNECT_SECONDS = 5


def check(address: str) -> None:
    """Raise UserError if Ray is not installed or nothing listens at the address.

    Ray itself would wait for minutes.
    """
    if find_spec("ray") is None:
        raise UserError(
            "--executor ray: the package ray is not installed; pip install -e '.[ray]'"
        )
    if address in ("auto", "local"):
        return
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, ValueError, OverflowError) as error:
        raise UserError(
            f"address {address}: no Ray cluster answers there ({error}); "
            "it must be auto, local or HOST:PORT of a node"
        ) from None


class Ray:
    """An engine of tasks on the cluster at `address`.

    With the address `local`, on a new instance that lives as long as the command.
    """

    def __init__(self, plan: Plan, address: str, jobs: int, scratch: Path) -> None:
        self.plan = plan
        self.at_once = jobs or math.inf  # without --jobs, Ray keeps the queue
        self.variables = environment(plan.root, scratch)
        self.ray = make_engine(address, jobs, scratch)
        available = self.ray.cluster_resources().get("GPU", 0)
        if plan.preset.gpus > available and not jobs:
            raise UserError(
                f"presets.toml [{plan.name}]: gpus is {plan.preset.gpus}, "
                f"but the cluster has {available:.0f}; if it grows on demand, say --jobs N"
            )

    def submit(self, item: Item) -> Future[None]:
        """Hand the item to Ray. Only runs get GPUs; tables and figures get none."""
        arguments = [str(self.plan.root), self.plan.name, item.id]
        if self.plan.registry:
            arguments.append(str(self.plan.registry.resolve()))
        task = self.ray.remote(make_on_node).options(
            num_gpus=self.plan.preset.gpus if item.kind == "run" else 0,
            max_retries=self.plan.preset.retries,
            retry_exceptions=True,
            name=item.id,
        )
        return task.remote(arguments, str(HOME), self.variables).future()

    def close(self) -> None:
        """Leave the cluster; this ends unfinished tasks, and an instance started here."""
        self.ray.shutdown()


def make_engine(address: str, jobs: int, scratch: Path) -> Any:
    """Connect to a cluster, or start an instance, and return the module ray.

    Raises UserError if Ray refuses.
    """
    is_local = address == "local"
    # Ray reads its variables once, when it is imported.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # How often a token is tried.
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")
    if is_local:  # other users of this machine can reach its ports
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    import ray

    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if is_local:
        options["num_cpus"] = jobs or None
        options["include_dashboard"] = False
        options["_temp_dir"] = str(scratch)
    try:
        ray.init(address, **options)
    except Exception as error:  # noqa: BLE001  Ray also raises bare exceptions
        raise UserError(f"address {address}: {error} {error.__cause__ or ''}") from None
    return ray


def make_on_node(arguments: list[str], folder: str, variables: dict[str, str]) -> None:
    """Make an item on a node; an exception makes Ray try again.

    Ray ships the whole function, which uses nothing of this module: a node need not import it.
    """
    import json
    import os
    import subprocess
    import sys

    child = subprocess.Popen(
        [sys.executable, "-m", "reproduce.work", *arguments],
        cwd=folder,
        env={**os.environ, **variables, "TMPDIR": "/tmp"},
        stdin=subprocess.PIPE,  # closes when this process ends, which ends the item's process
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    lines = child.stdout.read().splitlines()
    if lines:
        error = json.loads(lines[-1])["error"]
    else:
        error = f"its process died (exit code {child.wait()})"
    if error is not None:
        raise RuntimeError(error)
