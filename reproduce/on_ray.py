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

from reproduce import UserError, one_line
from reproduce.plan import Item, Plan
from reproduce.run import TICK
from reproduce.work import environment

HOME = str(Path(__file__).resolve().parents[1])
PROBE = 5.0  # seconds to wait for an address to answer


def probe(address: str) -> None:
    """Refuse an address that is none, or where nothing listens: Ray itself would wait for minutes."""
    if address in ("auto", "local"):
        return
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UserError(f"address must be auto, local or HOST:PORT, not {address!r}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), PROBE).close()
    except OSError as error:
        raise UserError(f"address {address}: no Ray cluster answers there ({error.strerror or error})") from None


def check(address: str) -> None:
    """Refuse to start without Ray, or with an address where no cluster is."""
    if find_spec("ray") is None:
        raise UserError("--executor ray: the package ray is not installed; pip install -e '.[ray]'")
    probe(address)


class Ray:
    """Tasks of the cluster at `address`; of an instance that lives as long as the command if that is `local`."""

    def __init__(self, plan: Plan, address: str, jobs: int, scratch: Path) -> None:
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}  # its ports are open to others
        for name, value in {"RAY_USAGE_STATS_ENABLED": "0", **(token if address == "local" else {})}.items():
            os.environ.setdefault(name, value)  # Ray reads them once, when it is imported
        import ray

        local = {"num_cpus": jobs or None, "include_dashboard": False, "_temp_dir": str(scratch)}
        try:
            ray.init(address, log_to_driver=False, logging_level="ERROR", **(local if address == "local" else {}))
        except Exception as error:  # noqa: BLE001  Ray raises bare ones too
            raise UserError(f"address {address}: {one_line(f'{error} {error.__cause__ or str()}')}") from None
        self.ray, self.plan, self.jobs, self.scratch = ray, plan, jobs, scratch
        self.tasks: dict[Any, tuple[Item, float]] = {}  # the task's reference -> its item, when it began
        gpus = ray.cluster_resources().get("GPU", 0)
        if plan.preset.gpus > gpus and not jobs:
            raise UserError(
                f"presets.toml [{plan.name}]: gpus is {plan.preset.gpus}, but the cluster has {gpus:.0f}; "
                "if it grows on demand, say --jobs N"
            )

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
        arguments = ["-m", "reproduce.work", str(self.plan.root), self.plan.name, item.id, *registry]
        options = {
            "num_cpus": 1,
            "num_gpus": self.plan.preset.gpus if item.kind == "run" else 0,
            "max_retries": self.plan.preset.retries,
            "retry_exceptions": True,
            "name": item.id,
        }
        task = self.ray.remote(make).options(**options)
        self.tasks[task.remote(arguments, HOME, environment(self.plan.root, self.scratch))] = item, time.monotonic()

    def ended(self) -> list[tuple[Item, str | None, float]]:
        """Wait a moment and collect the tasks that have ended or were lost with their worker."""
        ready, _ = self.ray.wait(list(self.tasks), num_returns=len(self.tasks), timeout=TICK)
        endings = []
        for reference in ready:
            item, began = self.tasks.pop(reference)
            try:
                error = self.ray.get(reference)
            except self.ray.exceptions.RayTaskError as fault:
                error = one_line(str(fault.cause))
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
    import platform
    import signal
    import subprocess
    import sys

    if not os.path.isdir(folder):
        raise RuntimeError(f"node {platform.node()} has no {folder}; every node must see the repository there")
    pipe = subprocess.PIPE  # standard input stays open until this process ends, and the item's process with it
    child = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, **variables, "TMPDIR": "/tmp"},
        stdin=pipe,
        stdout=pipe,
        text=True,
        start_new_session=True,
    )
    try:
        lines = child.stdout.read().splitlines()
        child.wait()
    finally:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    try:
        error = json.loads(lines[-1])["error"]
    except (IndexError, ValueError, TypeError, KeyError):
        error = f"its process died (exit code {child.returncode})"
    if error is not None:
        raise RuntimeError(error)
