"""Ray and Snakemake on a toy repository: real ones on this machine, a killed worker included.

They make byte for byte what the local executor makes. `make test-executors` has both.
"""

import os
import re
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
from toy_repository import ROOT, Toy, cells, gone, products, slay

from reproduce import UserError, on_ray, snake
from reproduce.__main__ import executor as prepare
from reproduce.options import parse
from reproduce.plan import load

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: make test-executors")
needs_snakemake = pytest.mark.skipif(
    find_spec("snakemake") is None, reason="Snakemake is not installed: make test-executors"
)

pytestmark = pytest.mark.timeout(1200)  # several Python programs start for every item, and the machine may be busy


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    """Build the toy repository in a folder with a blank and an umlaut."""
    return Toy(tmp_path / "ein Bäumchen {x}")


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Make everything with the local executor."""
    toy = Toy(tmp_path_factory.mktemp("local"))
    assert "ran 6" in toy()
    return products(toy)


@pytest.mark.parametrize(("executor", "module"), [("ray", on_ray), ("snakemake", snake)])
def test_missing_extra_is_one_line(toy: Toy, monkeypatch: pytest.MonkeyPatch, executor: str, module: object) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=f"package {executor} is not installed; pip install -e '.\\[{executor}\\]'"):
        prepare(load(toy.root, "quick"), parse(["--executor", executor]))
    assert not (toy.root / "results").exists()


@pytest.mark.parametrize("address", ["nonsense", "host:0", "host:99999", ":6379", "ray://host:10001"])
def test_bad_address_is_named(address: str) -> None:
    with pytest.raises(UserError, match="address must be auto, local or HOST:PORT"):
        on_ray.probe(address)


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Cluster:
    """A running Ray cluster of one node with two CPUs and, it says, two GPUs."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # sockets need a short path
        self.address = f"127.0.0.1:{free_port()}"
        self.variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64, "RAY_USAGE_STATS_ENABLED": "0"}
        command = [
            sys.executable,
            "-m",
            "ray.scripts.scripts",
            "start",
            "--head",
            "--block",
            "--num-cpus=2",
            "--num-gpus=2",
            f"--port={self.address.split(':')[1]}",
            "--include-dashboard=false",
            "--disable-usage-stats",
            f"--temp-dir={self.folder}",
            "--object-store-memory=80000000",
        ]
        self.log = Path(self.folder, "started.log").open("w+")
        self.process = subprocess.Popen(
            command,
            env={**os.environ, **self.variables},
            stdout=self.log,
            stderr=self.log,
            cwd=ROOT,
            start_new_session=True,
        )
        while "Ray runtime started" not in Path(self.log.name).read_text():
            assert self.process.poll() is None, Path(self.log.name).read_text()
            time.sleep(0.2)

    def __call__(self, toy: Toy, *arguments: str, code: int = 0, **variables: str) -> str:
        """Run the batch on the cluster."""
        options = ["--executor", "ray", "--address", self.address]
        return toy(*options, *arguments, code=code, **self.variables | variables)

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
def test_ray_makes_what_the_local_executor_makes(toy: Toy, cluster: Cluster, local: dict[str, bytes]) -> None:
    out = cluster(toy)
    assert "ran 6, cached 0, failed 0, blocked 0, skipped 1, unclaimed 2" in out
    assert products(toy) == local
    assert "ran 0, cached 6" in cluster(toy) and "ran 0, cached 6" in toy()
    toy.edit("notebooks/tables/toy_table.ipynb", "folder =", "1 / 0; folder =")
    out = cluster(toy, code=1)
    assert "failed toy_table1: ZeroDivisionError: division by zero (see " in out
    assert "ran 0, cached 4, failed 2" in out
    toy.edit("notebooks/train.ipynb", "import json,", "1 / 0; import json,")
    out = cluster(toy, "--only", "toy_table2", code=1)
    assert "failed 2, blocked 1" in out
    assert re.search("blocked toy_table2: needs runs/odd-s[01], which failed", out), "whichever fails first"


@needs_ray
def test_ray_survives_a_killed_worker(toy: Toy, cluster: Cluster) -> None:
    toy.hold()
    toy.edit("reproduce/presets.toml", "jobs = 2", "retries = 1")
    command = ["--executor", "ray", "--address", cluster.address, "--only", "toy_table2"]
    process = toy.start(*command, **cluster.variables)
    held = toy.wait_for_hold(process)
    worker = next(cell.parent() for cell in cells(toy) if f"runs/{held}" in cell.cmdline())
    assert "ray::" in worker.cmdline()[0]
    slay(worker)
    toy.release()
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0 and err == "", out + err
    assert re.search(rf"runs/{held} failed, trying again \(1 of 1\): its worker was lost \(WorkerCrashedError\)", out)
    assert toy.result(f"runs/{held}/resumed_from").read_text() == "3"
    assert toy.result("toy_table2/table.csv").read_text().splitlines()[1] == "odd,0,45.0"


def ends_and_is_resumed(toy: Toy, process: subprocess.Popen, sign: int, held: str) -> None:
    """Kill a command that waits in the middle of a run: nothing of it is left, and the next one goes on from there."""
    process.send_signal(sign)
    process.communicate(timeout=600)
    assert process.returncode == (-9 if sign == signal.SIGKILL else 143)
    gone(toy)
    toy.release()
    assert "ran 3, cached 0, failed 0" in toy("--only", "toy_table2")
    assert toy.result(f"runs/{held}/resumed_from").read_text() == "3"


@needs_ray
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_command_leaves_nothing_on_the_cluster(toy: Toy, cluster: Cluster, sign: int) -> None:
    toy.hold()
    command = ["--executor", "ray", "--address", cluster.address, "--only", "toy_table2"]
    process = toy.start(*command, **cluster.variables)
    held = toy.wait_for_hold(process)
    assert "another command is at work" in toy(code=2)
    ends_and_is_resumed(toy, process, sign, held)


@needs_ray
def test_ray_reserves_gpus_for_runs(toy: Toy, cluster: Cluster) -> None:
    toy.edit("reproduce/toy.toml", "overrides = { steps = 1 }", "overrides = { steps = 1, devices = true }")
    toy.edit("reproduce/presets.toml", "jobs = 2", "gpus = 1")
    assert "ran 2" in cluster(toy, "--only", "odd")
    assert {toy.result(f"runs/odd-s{seed}/devices").read_text() for seed in (0, 1)} <= {"0", "1"}
    toy.edit("reproduce/presets.toml", "gpus = 1", "gpus = 3")
    assert "gpus is 3, but no node has more than 2; if the cluster grows" in cluster(toy, code=2)
    assert "token" in cluster(toy, code=2, RAY_AUTH_TOKEN="1" * 64)


@needs_ray
def test_ray_without_a_cluster(toy: Toy, local: dict[str, bytes]) -> None:
    address = f"127.0.0.1:{free_port()}"
    assert f"address {address}: no Ray cluster answers there" in toy("--executor", "ray", code=2, RAY_ADDRESS=address)
    assert not (toy.root / "results").exists()
    assert "ran 6, cached 0, failed 0" in toy("--executor", "ray", "--address", "local", "--jobs", "2")
    assert products(toy) == local
    gone(toy)
    assert [path.name for path in toy.result("").glob(".*")] == [".lock"]


def planned(toy: Toy, snakefile: Path, *arguments: str) -> dict[str, set[str]]:
    """Ask snakemake what the Snakefile would run: name -> names of what comes first."""
    snakefile.write_text(toy("snakefile", *arguments))
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(snakefile), "--dry-run", "--nocolor"]
    done = subprocess.run(command, cwd=snakefile.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    rules = re.findall(r"^rule (?:run|artefact)_\w+:\n((?:    .*\n)+)", done.stdout, re.MULTILINE)
    found = {}
    for rule in rules:
        fields = dict(re.findall(r"^    (\w+): (.*)$", rule, re.MULTILINE))
        found[fields["output"]] = set(fields.get("input", "").split(", ")) - {""}
    return found


@needs_snakemake
def test_snakemake_plans_what_we_plan(toy: Toy, tmp_path: Path) -> None:
    def agree(*arguments: str) -> int:
        ours = re.findall(r"^would run (\S+) ", toy("--dry-run", *arguments), re.MULTILINE)
        plan = load(toy.root, "quick")
        expected = {
            snake.made(plan.items[id]): {snake.made(plan.items[need]) for need in plan.items[id].needs if need in ours}
            for id in ours
        }
        assert planned(toy, tmp_path / "Snakefile", *arguments) == expected
        return len(ours)

    assert agree() == 6
    assert agree("--only", "toy_table2") == 3
    toy("--only", "toy_table2")
    assert agree() == 3  # half of it done
    toy()
    assert agree() == 0
    assert agree("--force", "--only", "odd,toy_table1") == 3
    toy.edit("reproduce/toy.toml", "scale = 10.0", "scale = 1.0")
    toy.result("runs/odd-s1/summary.json").unlink()
    assert agree() == 3  # a stale table, a damaged run, the table that needs it
    toy.edit("src/coevolve/toy.py", "3", "4")
    assert agree("--paper", "toy") == 6


@needs_snakemake
def test_snakemake_makes_what_the_local_executor_makes(toy: Toy, local: dict[str, bytes]) -> None:
    snakemake = ["--executor", "snakemake", "--jobs", "2"]
    assert "ran 3, cached 0" in toy("--only", "toy_table1")
    out = toy(*snakemake)
    assert "ran 3, cached 3, failed 0, blocked 0, skipped 1, unclaimed 2" in out
    assert products(toy) == local
    toy.edit("notebooks/train.ipynb", "import json,", "1 / 0; import json,")
    out = toy(*snakemake, "--only", "toy_table2", code=1)
    assert "ran 0, cached 0, failed 2, blocked 1" in out
    assert "failed runs/odd-s0: ZeroDivisionError: division by zero (see " in out
    assert re.search("blocked toy_table2: needs runs/odd-s[01], which failed", out), "whichever fails first"
    assert "snakemake: " in toy(*snakemake, "--", "--no-such-option", code=2)


@needs_snakemake
def test_snakemake_survives_a_killed_worker(toy: Toy) -> None:
    toy.hold()
    toy.edit("reproduce/presets.toml", "jobs = 2", "jobs = 2\nretries = 1")
    process = toy.start("--executor", "snakemake", "--only", "toy_table2")
    held = toy.wait_for_hold(process)
    slay(next(cell for cell in cells(toy) if f"runs/{held}" in cell.cmdline()))
    toy.release()
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0 and err == "" and "ran 3" in out, out + err
    assert toy.result(f"runs/{held}/resumed_from").read_text() == "3"
    assert toy.result("toy_table2/table.csv").read_text().splitlines()[1] == "odd,0,45.0"


@needs_snakemake
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_command_takes_snakemake_with_it(toy: Toy, sign: int) -> None:
    toy.hold()
    process = toy.start("--executor", "snakemake", "--only", "toy_table2", "--jobs", "1")
    held = toy.wait_for_hold(process)
    assert "another command is at work" in toy("--executor", "snakemake", code=2)
    ends_and_is_resumed(toy, process, sign, held)
