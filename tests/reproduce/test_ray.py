"""Ray on a toy repository: a real cluster on this machine, with a worker that is killed.

Ray makes byte for byte what the processes of this machine make. Run by `make test-executors`.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
from toy_repository import ROOT, Toy

from reproduce import UserError, on_ray

needs_ray = pytest.mark.skipif(
    find_spec("ray") is None, reason="Ray is not installed: make test-executors"
)
# Several Python programs start for every item, and the machine may be busy.
pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def local_products(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Everything made by processes of this machine."""
    toy = Toy(tmp_path_factory.mktemp("local") / "toy")
    assert "ran 6" in toy()
    return toy.products()


def test_a_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_ray, "find_spec", lambda name: None)
    message = r"package ray is not installed; pip install -e '.\[ray\]'"
    with pytest.raises(UserError, match=message):
        on_ray.check("local")


BAD_ADDRESSES = ["nonsense", "127.0.0.1:0", "127.0.0.1:99999", "ray://127.0.0.1:1"]


@pytest.mark.parametrize("address", BAD_ADDRESSES)
def test_a_bad_address_is_named(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_ray, "find_spec", lambda name: "installed")
    message = "no Ray cluster answers there .*; it must be auto, local or HOST:PORT"
    with pytest.raises(UserError, match=message):
        on_ray.check(address)


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Cluster:
    """A running Ray cluster of one node that has two CPUs and claims to have two GPUs."""

    def __init__(self) -> None:
        # Sockets need a short path.
        self.folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
        port = free_port()
        self.options = ["--executor", "ray", "--address", f"127.0.0.1:{port}"]
        self.variables = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": "0" * 64,
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        command = [
            sys.executable,
            "-m",
            "ray.scripts.scripts",
            "start",
            "--head",
            "--block",
            "--num-cpus=2",
            "--num-gpus=2",
            f"--port={port}",
            "--include-dashboard=false",
            "--disable-usage-stats",
            f"--temp-dir={self.folder}",
            "--object-store-memory=80000000",
        ]
        log_path = Path(self.folder, "started.log")
        self.log = log_path.open("w+")
        self.process = subprocess.Popen(
            command,
            env=os.environ | self.variables,
            cwd=ROOT,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )
        while "Ray runtime started" not in log_path.read_text():
            assert self.process.poll() is None, log_path.read_text()
            time.sleep(0.2)

    def __call__(
        self, toy: Toy, *arguments: str, code: int = 0, **variables: str
    ) -> str:
        """Run the batch on the cluster and return what it prints."""
        return toy(*self.options, *arguments, code=code, **self.variables | variables)

    def start(self, toy: Toy) -> subprocess.Popen[str]:
        """Start the batch on the cluster, with one of its runs held."""
        toy.hold()
        return toy.start(*self.options, "--only", "toy_table2", **self.variables)

    def close(self) -> None:
        """End every process of the cluster."""
        workers = psutil.Process(self.process.pid).children(recursive=True)
        self.process.terminate()
        self.process.wait(30)
        for worker in workers:
            if worker.is_running():
                worker.kill()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster that all tests share."""
    cluster = Cluster()
    yield cluster
    cluster.close()


@needs_ray
def test_ray_makes_what_local_processes_make(
    toy: Toy, cluster: Cluster, local_products: dict[str, bytes]
) -> None:
    assert "ran 6, cached 0, failed 0, blocked 0, skipped 1" in cluster(toy)
    assert toy.products() == local_products
    assert "ran 0, cached 6" in cluster(toy)
    assert "ran 0, cached 6" in toy()
    toy.edit("notebooks/tables/toy_table.ipynb", "folder =", "1 / 0; folder =")
    out = cluster(toy, code=1)
    assert "failed toy_table1: ZeroDivisionError: division by zero (see " in out
    assert "ran 0, cached 4, failed 2" in out


def ray_worker_of(toy: Toy, run: str) -> psutil.Process:
    """Return the Ray worker that is making a run."""
    for process in toy.processes():
        if f"runs/{run}" in process.cmdline():
            return process.parent()
    raise AssertionError(f"no process makes {run}")


@needs_ray
def test_ray_survives_a_killed_worker(toy: Toy, cluster: Cluster) -> None:
    toy.edit("reproduce/presets.toml", "jobs = 2", "retries = 1")
    process = cluster.start(toy)
    held = toy.wait_for_hold(process)
    worker = ray_worker_of(toy, held)
    assert "ray::" in worker.cmdline()[0]
    family = [worker, *worker.children(recursive=True)]
    worker.kill()
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not alive, "a process that the worker started lives on"
    toy.release()
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, out + err
    assert err == ""
    assert "ran 3, cached 0, failed 0" in out
    assert toy.resumed_from(held) == "3"
    assert toy.table("toy_table2")[1] == "odd,0,45.0"


@needs_ray
@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_command_leaves_nothing_on_the_cluster(
    toy: Toy, cluster: Cluster, signal_number: int
) -> None:
    process = cluster.start(toy)
    held = toy.wait_for_hold(process)
    assert "another command is at work" in toy(code=2)
    toy.check_kill_and_resume(process, signal_number, held)


@needs_ray
def test_ray_reserves_gpus_for_runs(toy: Toy, cluster: Cluster) -> None:
    one_step = "overrides = { steps = 1 }"
    toy.edit(
        "reproduce/toy.toml", one_step, "overrides = { steps = 1, devices = true }"
    )
    toy.edit("reproduce/presets.toml", "jobs = 2", "gpus = 1")
    assert "ran 2" in cluster(toy, "--only", "odd")
    for seed in (0, 1):
        devices = toy.result(f"runs/odd-s{seed}/devices").read_text()
        assert devices in {"0", "1"}


@needs_ray
def test_more_gpus_than_the_cluster_has_are_refused(toy: Toy, cluster: Cluster) -> None:
    toy.edit("reproduce/presets.toml", "jobs = 2", "gpus = 3")
    message = "gpus is 3, but the cluster has 2; if it grows"
    assert message in cluster(toy, "--only", "odd", code=2)


@needs_ray
def test_a_wrong_token_is_refused(toy: Toy, cluster: Cluster) -> None:
    variables = cluster.variables | {"RAY_AUTH_TOKEN": "1" * 64}
    process = toy.start(*cluster.options, **variables)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 2
    assert "oken" in err
    # Ray prints more lines before the batch's own.
    assert err.splitlines()[-1].startswith("reproduce: address ")


@needs_ray
def test_ray_without_a_cluster(toy: Toy, local_products: dict[str, bytes]) -> None:
    address = f"127.0.0.1:{free_port()}"
    err = toy("--executor", "ray", code=2, RAY_ADDRESS=address)
    assert f"address {address}: no Ray cluster answers there" in err
    out = toy("--executor", "ray", "--address", "local", "--jobs", "2")
    assert "ran 6, cached 0, failed 0" in out
    assert toy.products() == local_products
    toy.wait_until_gone()
    assert toy.hidden_results() == [".lock"]
