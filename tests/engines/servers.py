"""Starts vLLM's own server on this machine, as a process."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import httpx

# By default vLLM takes nearly all memory, and binds its threads to one core, which may be busy.
ENVIRONMENT = {
    **os.environ,
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}


@contextmanager
def vllm_server(*options: str, **variables: str) -> Iterator[str]:
    """Serve with these options and environment variables; gives the address, without /v1."""
    port = _free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    command += ["--dtype", "float32", "--enforce-eager", *options]
    server = subprocess.Popen(
        command, env=ENVIRONMENT | variables, stdout=subprocess.DEVNULL
    )
    try:
        _wait_until_healthy(server, port)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(60)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _wait_until_healthy(server: "subprocess.Popen[bytes]", port: int) -> None:
    """Return when the server answers, or when it has ended."""
    while server.poll() is None:
        try:
            httpx.get(f"http://127.0.0.1:{port}/health")
            return
        except httpx.ConnectError:
            time.sleep(1)


def path_with(folder: str) -> Mapping[str, str]:
    """Return the variable by which Python finds the modules of a folder first."""
    return {"PYTHONPATH": os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])}
