"""Ray on a toy repository: a real cluster on this machine, a killed worker included. `make test-executors` has it.

Ray makes byte for byte what the processes of this machine make.
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

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: make test-executors")
pytestmark = pytest.mark.timeout(1200)  # several Python programs start for every item, and the machine may be busy


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Make everything with processes of this machine."""
    toy = Toy(tmp_path_factory.mktemp("local"))
    assert "ran 6" in toy()
    return toy.products()


def test_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_ray, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="package ray is not installed; pip install -e '.\\[ray\\]'"):
        on_ray.check("local")


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:0", "127.0.0.1:99999", "ray://127.0.0.1:1"])
def test_bad_address_is_named(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_ray, "find_spec", lambda name: "there")
    with pytest.raises(UserError, match="no Ray cluster answers there .*; it must be auto, local or HOST:PORT"):
        on_ray.check(address)


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Cluster:
    """A running Ray cluster of one node with two CPUs and, it says, two GPUs."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # sockets need a short path
        port = free_port()
        self.variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64, "RAY_USAGE_STATS_ENABLED": "0"}
        options = f"start --head --block --num-cpus=2 --num-gpus=2 --port={port} --include-dashboard=false".split()
        options += ["--disable-usage-stats", f"--temp-dir={self.folder}", "--object-store-memory=80000000"]
        self.options = ["--executor", "ray", "--address", f"127.0.0.1:{port}"]
        self.log = Path(self.folder, "started.log").open("w+")
        command, variables = [sys.executable, "-m", "ray.scripts.scripts", *options], os.environ | self.variables
        apart = {"stdout": self.log, "stderr": self.log, "start_new_session": True}
        self.process = subprocess.Popen(command, env=variables, cwd=ROOT, **apart)
        while "Ray runtime started" not in Path(self.log.name).read_text():
            assert self.process.poll() is None, Path(self.log.name).read_text()
            time.sleep(0.2)

    def __call__(self, toy: Toy, *arguments: str, code: int = 0, **variables: str) -> str:
        """Run the batch on the cluster."""
        return toy(*self.options, *arguments, code=code, **self.variables | variables)

    def start(self, toy: Toy) -> subprocess.Popen[str]:
        """Start the batch on the cluster, with one of its runs held."""
        toy.hold()
        return toy.start(*self.options, "--only", "toy_table2", **self.variables)

    def close(self) -> None:
        """End every process of the cluster."""
        processes = [self.process, *psutil.Process(self.process.pid).children(recursive=True)]
        self.process.terminate()
        self.process.wait(30)
        for process in processes[1:]:
            if process.is_running():
                process.kill()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Start a cluster, once."""
    cluster = Cluster()
    yield cluster
    cluster.close()


@needs_ray
def test_ray_makes_what_local_processes_make(toy: Toy, cluster: Cluster, local: dict[str, bytes]) -> None:
    assert "ran 6, cached 0, failed 0, blocked 0, skipped 1" in cluster(toy)
    assert toy.products() == local
    assert "ran 0, cached 6" in cluster(toy) and "ran 0, cached 6" in toy()
    toy.edit("notebooks/tables/toy_table.ipynb", "folder =", "1 / 0; folder =")
    out = cluster(toy, code=1)
    assert "failed toy_table1: ZeroDivisionError: division by zero (see " in out and "ran 0, cached 4, failed 2" in out


@needs_ray
def test_ray_survives_a_killed_worker(toy: Toy, cluster: Cluster) -> None:
    toy.edit("reproduce/presets.toml", "jobs = 2", "retries = 1")
    process = cluster.start(toy)
    held = toy.wait_for_hold(process)
    working = next(one for one in toy.processes() if f"runs/{held}" in one.cmdline())
    worker = working.parent()
    assert "ray::" in worker.cmdline()[0]
    family = worker.children(recursive=True)
    worker.kill()
    assert not psutil.wait_procs([worker, *family], timeout=60)[1], "nothing that it started lives on"
    (toy.root / "hold").unlink()
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0 and err == "" and "ran 3, cached 0, failed 0" in out, out + err
    assert toy.result(f"runs/{held}/resumed_from").read_text() == "3"
    assert toy.result("toy_table2/table.csv").read_text().splitlines()[1] == "odd,0,45.0"


@needs_ray
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_command_leaves_nothing_on_the_cluster(toy: Toy, cluster: Cluster, sign: int) -> None:
    process = cluster.start(toy)
    held = toy.wait_for_hold(process)
    assert "another command is at work" in toy(code=2)
    toy.ends_and_is_resumed(process, sign, held)


@needs_ray
def test_ray_reserves_gpus_for_runs(toy: Toy, cluster: Cluster) -> None:
    toy.edit("reproduce/toy.toml", "overrides = { steps = 1 }", "overrides = { steps = 1, devices = true }")
    toy.edit("reproduce/presets.toml", "jobs = 2", "gpus = 1")
    assert "ran 2" in cluster(toy, "--only", "odd")
    assert {toy.result(f"runs/odd-s{seed}/devices").read_text() for seed in (0, 1)} <= {"0", "1"}
    toy.edit("reproduce/presets.toml", "gpus = 1", "gpus = 3")
    assert "gpus is 3, but the cluster has 2; if it grows" in cluster(toy, code=2)
    refused = toy.start(*cluster.options, **cluster.variables | {"RAY_AUTH_TOKEN": "1" * 64})
    err = refused.communicate(timeout=600)[1]  # Ray itself says more before our one line
    assert refused.returncode == 2 and "oken" in err and err.splitlines()[-1].startswith("reproduce: address ")


@needs_ray
def test_ray_without_a_cluster(toy: Toy, local: dict[str, bytes]) -> None:
    address = f"127.0.0.1:{free_port()}"
    assert f"address {address}: no Ray cluster answers there" in toy("--executor", "ray", code=2, RAY_ADDRESS=address)
    assert "ran 6, cached 0, failed 0" in toy("--executor", "ray", "--address", "local", "--jobs", "2")
    assert toy.products() == local
    toy.wait_until_gone()
    assert [path.name for path in toy.result("").glob(".*")] == [".lock"]
