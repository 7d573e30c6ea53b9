"""Items as tasks of Ray, on this machine or a cluster; each is one `python -m reproduce.work` on some node.

Needs the extra `ray`. The nodes see the repository under the same path, as they do on a shared file system. Retries
and GPUs are Ray's business.
"""

import os
import secrets
import socket
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from reproduce import UserError
from reproduce.plan import Item, Plan
from reproduce.run import TICK
from reproduce.work import environment

HOME = str(Path(__file__).resolve().parents[1])
PROBE = 5.0  # seconds to wait for an address to answer


def check(address: str) -> None:
    """Refuse to start without Ray, or with an address where nothing listens: Ray itself would wait for minutes."""
    if find_spec("ray") is None:
        raise UserError("--executor ray: the package ray is not installed; pip install -e '.[ray]'")
    if address not in ("auto", "local"):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), PROBE).close()
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
        self.ray, self.plan, self.jobs = ray, plan, jobs
        self.variables = environment(plan.root, scratch)
        self.tasks: dict[Any, tuple[Item, float]] = {}  # the task's reference -> its item, when it began
        gpus = ray.cluster_resources().get("GPU", 0)
        if plan.preset.gpus > gpus and not jobs:
            wanted = f"presets.toml [{plan.name}]: gpus is {plan.preset.gpus}"
            raise UserError(f"{wanted}, but the cluster has {gpus:.0f}; if it grows on demand, say --jobs N")

    @property
    def live(self) -> list[Item]:
        """The items handed over and not yet back."""
        return [item for item, _ in self.tasks.values()]

    def has_room(self) -> bool:
        """Whether another item may be handed over; without --jobs Ray has the queue."""
        return not self.jobs or len(self.tasks) < self.jobs

    def begin(self, item: Item) -> None:
        """Hand the item to Ray. Tables and figures get no GPU."""
        registry = [str(self.plan.registry.resolve())] if self.plan.registry else []
        arguments = [str(self.plan.root), self.plan.name, item.id, *registry]
        gpus, retries = self.plan.preset.gpus if item.kind == "run" else 0, self.plan.preset.retries
        task = self.ray.remote(make).options(num_gpus=gpus, max_retries=retries, retry_exceptions=True, name=item.id)
        self.tasks[task.remote(arguments, HOME, self.variables)] = item, time.monotonic()

    def ended(self) -> list[tuple[Item, str | None, float]]:
        """Wait a moment and collect the tasks that have ended or were lost with their worker."""
        ready, _ = self.ray.wait(list(self.tasks), num_returns=len(self.tasks), timeout=TICK)
        endings = []
        for reference in ready:
            item, began = self.tasks.pop(reference)
            try:
                error = self.ray.get(reference)
            except self.ray.exceptions.RayTaskError as fault:
                error = str(fault.cause)
            except self.ray.exceptions.RayError as fault:
                error = f"its worker was lost ({type(fault).__name__})"
            endings.append((item, error, time.monotonic() - began))
        return endings

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
