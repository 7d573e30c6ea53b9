"""Runs a program in one or several processes that find each other as those of torchrun do.

They communicate by gloo, on CPUs.
"""

import os
import runpy
import socket
import subprocess
import sys
from collections.abc import Mapping

from torch import multiprocessing

# accelerate starts several processes on GPUs only; on CPUs it leaves that to others.
TORCH_RUN = (
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--local_addr",
    "127.0.0.1",
    "--nproc_per_node",
)
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "ACCELERATE_USE_CPU": "true",
    "GLOO_SOCKET_IFNAME": "lo",
}
# What takes longer to import than a short run takes.
SLOW_IMPORTS = ["reproduce.preload"]


def run(
    processes: int,
    program: str,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run a module, or a file that ends in .py, in forks of a process with the slow imports.

    Raises what torch.multiprocessing raises if one of them fails.
    """
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(SLOW_IMPORTS)
    variables = {**ENVIRONMENT, **(environment or {})}
    if processes > 1:
        group = {
            "WORLD_SIZE": str(processes),
            "LOCAL_WORLD_SIZE": str(processes),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
        }
        variables |= group
    multiprocessing.start_processes(
        _run_rank,
        args=(program, arguments, variables),
        nprocs=processes,
        start_method="forkserver",
    )


def _run_rank(
    rank: int, program: str, arguments: tuple[str, ...], variables: dict[str, str]
) -> None:
    os.environ |= variables
    if "WORLD_SIZE" in variables:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    sys.argv = [program, *arguments]
    if program.endswith(".py"):
        runpy.run_path(program, run_name="__main__")
    else:
        runpy.run_module(program, run_name="__main__")


def free_port() -> int:
    """Return a port of this machine that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def launch(processes: int, *arguments: str, timeout: float = 280) -> None:
    """Run Python in processes that torchrun starts, as users do."""
    command = [sys.executable, *TORCH_RUN, str(processes), *arguments]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **ENVIRONMENT},
    )
    assert done.returncode == 0, done.stderr[-3000:]
