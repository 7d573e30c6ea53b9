"""The Ray executor: every item is a task of a Ray cluster, and every task is one `python -m reproduce cell`.

Needs the extra `ray`. The nodes see the repository under the same path, as they do on a shared file system.
"""

import os
import secrets
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from reproduce import UserError, keys, one_line, provenance
from reproduce.alone import cell_command
from reproduce.plan import Item, Plan
from reproduce.run import TICK, Ending, read_line

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_NUM_REDIS_GET_RETRIES": "1",
}  # how often an address that does not answer as Ray does is tried
LONGEST = 40  # characters of a local instance's folder: the address of a socket in it has at most 107
PROBE = 5.0  # seconds to wait for an address to answer


class Ray:
    """Tasks of a cluster, or of an instance on this machine that lives as long as the command."""

    apart = True

    def __init__(self, plan: Plan, home: Path, address: str | None, jobs: int) -> None:
        """Connect to the cluster at the address, if one is given. jobs 0: as many as the cluster has room for."""
        if find_spec("ray") is None:
            raise UserError("--executor ray: the package ray is not installed; pip install -e '.[ray]'")
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}  # its ports are open to others
        for name, value in {**SETTINGS, **({} if address else token)}.items():
            os.environ.setdefault(name, value)  # Ray reads them once, when it is imported
        self.plan, self.home, self.address, self.jobs = plan, home, address, jobs
        self.tasks: dict[Any, tuple[Item, float]] = {}  # the task's reference -> its item, when it began
        self.folder: Path | None = None
        self.connected = False
        if address is not None:
            self.connect()
        else:
            self.check_gpus(len(provenance.machine()["gpus"]))

    @property
    def live(self) -> list[Item]:
        """The items handed over and not yet back."""
        return [item for item, _ in self.tasks.values()]

    def connect(self, **options: Any) -> None:
        """Join the cluster at the address, or start an instance here; refuse one that cannot make the runs."""
        import ray

        if self.address is not None:
            probe(self.address)

        handler = signal.getsignal(signal.SIGTERM)
        try:
            with hushed():
                ray.init(address=self.address or "local", log_to_driver=False, logging_level="ERROR", **options)
            self.connected = True
        except Exception as error:  # noqa: BLE001  Ray raises bare ones too
            cause = f"{error} {error.__cause__ or ''}"
            reason = str(error)
            if "InvalidAuthToken" in cause or "AuthenticationError" in cause:
                reason = "the cluster wants a token: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"
            elif "timed out during startup" in reason:
                reason = "Ray did not come up in half a minute; this machine may be too busy, try again"
            raise UserError(f"address {self.address or 'local'}: {one_line(reason)}") from None
        finally:
            signal.signal(signal.SIGTERM, handler)  # ray.init puts its own
        self.measure()
        self.check_gpus(max((node["Resources"].get("GPU", 0) for node in ray.nodes() if node["Alive"]), default=0))

    def check_gpus(self, most: float) -> None:
        """Refuse a preset whose runs would wait for ever; with --jobs the cluster may grow on demand."""
        preset = self.plan.preset
        if not self.jobs and preset.gpus > most:
            raise UserError(
                f"presets.toml [{preset.name}]: gpus is {preset.gpus}, but no node has more than "
                f"{most:.0f}; if the cluster grows on demand, say --jobs N"
            )

    def measure(self) -> None:
        """See what the cluster has now; it may grow and shrink."""
        import ray

        self.capacity = ray.cluster_resources()

    def open(self, scratch: Path, items: list[Item]) -> None:
        """Start an instance on this machine unless there is a cluster."""
        import ray

        if self.address is None:
            self.folder = scratch if len(str(scratch)) <= LONGEST else Path(tempfile.mkdtemp(dir="/tmp", prefix="ray-"))
            self.connect(num_cpus=self.jobs or None, include_dashboard=False, _temp_dir=str(self.folder))
        self.remote = ray.remote(task())

    def gpus(self, item: Item) -> int:
        """Return how many GPUs the item gets: artefacts need none."""
        return self.plan.preset.gpus if item.kind == "run" else 0

    def free(self, item: Item) -> bool:
        """Say whether the cluster has room; beyond that our own order counts, not that of Ray's queue."""
        if self.jobs:
            return len(self.tasks) < self.jobs
        gpus = self.gpus(item)
        taken = sum(self.gpus(other) for other in self.live)
        return not self.tasks or (
            len(self.tasks) < self.capacity.get("CPU", 0) and (not gpus or taken + gpus <= self.capacity.get("GPU", 0))
        )

    def begin(self, item: Item, found: keys.Parts, fresh: bool) -> None:
        """Hand the item to Ray; retries are the batch's, as with every executor."""
        command = cell_command(self.plan, item, fresh)
        options = {"num_cpus": 1, "num_gpus": self.gpus(item), "max_retries": 0, "name": item.id}
        self.tasks[self.remote.options(**options).remote(command, str(self.home))] = item, time.monotonic()

    def ended(self) -> list[Ending]:
        """Wait a moment and collect the tasks that have ended or were lost with their worker."""
        import ray

        if not self.tasks:
            return []
        ready, _ = ray.wait(list(self.tasks), num_returns=len(self.tasks), timeout=TICK)
        endings = []
        for reference in ready:
            item, began = self.tasks.pop(reference)
            try:
                said = ray.get(reference)
            except ray.exceptions.RayError as error:
                said = f"its worker was lost ({type(error).__name__})"
            error, seconds, _ = read_line(said)
            endings.append((item, error, seconds or time.monotonic() - began))
        self.measure()
        return endings

    def close(self) -> None:
        """Leave the cluster: tasks still at work are ended, and so is an instance of ours."""
        if self.connected:
            import ray

            ray.shutdown()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def hushed() -> Iterator[None]:
    """Drop what native code writes to stderr: what is wrong comes as an exception too."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def probe(address: str) -> None:
    """Refuse an address that is none, or where nothing listens: Ray itself would wait for minutes."""
    host, _, port = address.rpartition(":")
    if address == "auto":
        return
    if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UserError(f"address must be auto, local or HOST:PORT, not {address!r}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), PROBE).close()
    except OSError as error:
        raise UserError(f"address {address}: no Ray cluster answers there ({error.strerror or error})") from None


def task() -> Callable[[list[str], str], str]:
    """Return what a node does; a function in a function travels whole, so nodes need not import this package."""

    def make(command: list[str], folder: str) -> str:
        import os
        import platform
        import subprocess
        import sys

        if not os.path.isdir(folder):
            return f"node {platform.node()} has no {folder}; every node must see the repository under this path"
        command = [sys.executable, *command, "--parent", str(os.getpid())]
        done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        lines = (done.stdout if done.returncode < 2 else done.stderr).strip().splitlines()
        return lines[-1] if lines else f"its process died (exit code {done.returncode})"

    return make
