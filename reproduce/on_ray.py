"""Items as tasks of Ray, on this machine or a cluster; each is one `python -m reproduce.work` on some node.

Needs the extra `ray`. The nodes see the repository under the same path, as they do on a shared file system. Retries
and GPUs are Ray's business.
"""

import math
import os
import secrets
import socket
from concurrent.futures import Future
from importlib.util import find_spec
from pathlib import Path

from reproduce import HOME, UserError
from reproduce.plan import Item, Plan
from reproduce.work import environment


def check(address: str) -> None:
    """Refuse to start without Ray, or with an address where nothing listens: Ray itself would wait for minutes."""
    if find_spec("ray") is None:
        raise UserError("--executor ray: the package ray is not installed; pip install -e '.[ray]'")
    if address not in ("auto", "local"):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
        except (OSError, ValueError, OverflowError) as error:
            wanted = "it must be auto, local or HOST:PORT of a node"
            raise UserError(f"address {address}: no Ray cluster answers there ({error}); {wanted}") from None


class Ray:
    """Tasks of the cluster at `address`; of an instance that lives as long as the command if that is `local`."""

    def __init__(self, plan: Plan, address: str, jobs: int, scratch: Path) -> None:
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}  # its ports are open to others
        settings = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_NUM_REDIS_GET_RETRIES": "1"}  # how often a token is tried
        for name, value in {**settings, **(token if address == "local" else {})}.items():
            os.environ.setdefault(name, value)  # Ray reads them once, when it is imported
        import ray

        alone = {"num_cpus": jobs or None, "include_dashboard": False, "_temp_dir": str(scratch)}
        options = {"log_to_driver": False, "logging_level": "ERROR", **(alone if address == "local" else {})}
        try:
            ray.init(address, **options)
        except Exception as error:  # noqa: BLE001  Ray raises bare ones too
            raise UserError(f"address {address}: {error} {error.__cause__ or ''}") from None
        self.ray, self.plan, self.at_once = ray, plan, jobs or math.inf  # without --jobs Ray has the queue
        self.variables = environment(plan.root, scratch)
        gpus = ray.cluster_resources().get("GPU", 0)
        if plan.preset.gpus > gpus and not jobs:
            wanted = f"presets.toml [{plan.name}]: gpus is {plan.preset.gpus}"
            raise UserError(f"{wanted}, but the cluster has {gpus:.0f}; if it grows on demand, say --jobs N")

    def submit(self, item: Item) -> Future[None]:
        """Hand the item to Ray. Tables and figures get no GPU."""
        registry = [str(self.plan.registry.resolve())] if self.plan.registry else []
        arguments = [str(self.plan.root), self.plan.name, item.id, *registry]
        gpus, retries = self.plan.preset.gpus if item.kind == "run" else 0, self.plan.preset.retries
        task = self.ray.remote(make).options(num_gpus=gpus, max_retries=retries, retry_exceptions=True, name=item.id)
        return task.remote(arguments, str(HOME), self.variables).future()

    def close(self) -> None:
        """Leave the cluster: tasks still at work are ended, and so is an instance of ours."""
        self.ray.shutdown()


def make(arguments: list[str], folder: str, variables: dict[str, str]) -> None:
    """Make an item on a node. Travels whole, so a node need not import this package; an error makes Ray try again."""
    import json
    import os
    import subprocess
    import sys

    child = subprocess.Popen(
        [sys.executable, "-m", "reproduce.work", *arguments],
        cwd=folder,
        env={**os.environ, **variables, "TMPDIR": "/tmp"},
        stdin=subprocess.PIPE,  # stays open until this process ends, and the item's process ends with it
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    lines = child.stdout.read().splitlines()
    error = json.loads(lines[-1])["error"] if lines else f"its process died (exit code {child.wait()})"
    if error is not None:
        raise RuntimeError(error)
