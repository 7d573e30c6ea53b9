"""Warm kernels: a server imports the heavy packages once, and every kernel of it is a fork.

Jupyter sees an ordinary kernelspec whose command is this file's `client`. When no server answers, the client
becomes an ordinary kernel. Imports only the standard library at the top: a client starts in milliseconds.
"""

import ctypes
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

SPEC = "coevolve-warm"
SERVER = "COEVOLVE_WARM_SERVER"  # environment variable: the server's socket
ANSWER = 180.0  # seconds to wait for a server that is still importing
LIGHT = ("pandas", "matplotlib.pyplot", "seaborn", "scipy.stats")
HEAVY = (
    "torch",
    "transformers",
    "transformers.models.auto.modeling_auto",
    "transformers.models.qwen2",
    "safetensors.torch",
    "pandas",
    "matplotlib.pyplot",
    "coevolve.loop",
)
PR_SET_PDEATHSIG = 1


def environment(root: Path, scratch: Path) -> dict[str, str]:
    """Return what kernels need: one thread, no hash noise, the package, none of the IPython settings.

    One thread is required: a fork of a process whose OpenMP has several hangs in its first matrix product.
    """
    paths = [str(root / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    jupyter = [str(scratch / "jupyter"), *filter(None, [os.environ.get("JUPYTER_PATH")])]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {
        **os.environ,
        **threads,
        "PYTHONHASHSEED": "0",
        "SOURCE_DATE_EPOCH": "0",
        "TMPDIR": str(scratch),
        "PYTHONPATH": os.pathsep.join(paths),
        "JUPYTER_PATH": os.pathsep.join(jupyter),
        "JUPYTER_RUNTIME_DIR": str(scratch / "runtime"),
        "IPYTHONDIR": str(scratch / "ipython"),
        "TOKENIZERS_PARALLELISM": "false",
    }


def die_with_parent(sign: int, parent: int) -> None:
    """Ask the system to signal this process when the process `parent` ends, and leave if it already has."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, sign)
    if os.getppid() != parent:
        os._exit(1)


def start(path: Path, modules: tuple[str, ...], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a server that listens at `path` and imports `modules`; it ends with this process."""
    # Read at import: the poller must not take the runner for a kernel's parent, and figures must be inline.
    environment = {k: v for k, v in environment.items() if k != "JPY_PARENT_PID"}
    environment["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    with path.with_suffix(".log").open("wb") as log:
        command = [sys.executable, __file__, "serve", str(os.getpid()), str(path), *modules]
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )


def write_spec(folder: Path) -> None:
    """Write the kernelspec into a Jupyter data folder."""
    target = folder / "kernels" / SPEC
    target.mkdir(parents=True)
    command = [sys.executable, "-I", "-S", __file__, "client", "{connection_file}"]
    spec = {"argv": command, "display_name": "coevolve (warm)", "language": "python"}
    (target / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")


def client(connection_file: str) -> None:
    """Stand for one kernel: ask the server for a fork, pass signals on, end when and as the kernel ends."""
    die_with_parent(signal.SIGKILL, int(os.environ.get("JPY_PARENT_PID") or os.getppid()))
    request = {"file": connection_file, "folder": os.getcwd(), "environment": dict(os.environ)}
    try:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(ANSWER)
        connection.connect(os.environ[SERVER])
        connection.sendall(json.dumps(request).encode() + b"\n")
        replies = connection.makefile("r")
        kernel = int(replies.readline())
    except (OSError, KeyError, ValueError):
        os.execv(sys.executable, [sys.executable, "-m", "ipykernel_launcher", "-f", connection_file])
    connection.settimeout(None)
    for sign in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sign, lambda number, frame: os.kill(kernel, number))
    status = int(replies.readline() or 1)
    os._exit(status if status >= 0 else 128 - status)


class Server:
    """The process that forks. Its one thread listens for clients that come or leave and kernels that end."""

    def __init__(self, path: str) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(64)
        self.kernels: dict[int, socket.socket] = {}  # process id -> its client
        self.woken, self.waker = socket.socketpair()
        self.waker.setblocking(False)
        signal.set_wakeup_fd(self.waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def serve(self, modules: list[str]) -> None:
        """Import the modules, leaving out those that are not there, then fork for ever."""
        for name in ("ipykernel.kernelapp", "ipykernel.ipkernel", *modules):
            try:
                importlib.import_module(name)
            except ImportError as error:
                print(f"not preloaded: {name}: {error}", flush=True)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.selector.register(self.woken, selectors.EVENT_READ)
        while True:
            for chosen, _ in self.selector.select():
                if chosen.fileobj is self.listener:
                    self.fork(self.listener.accept()[0])
                elif chosen.fileobj is self.woken:
                    self.woken.recv(4096)
                    self.reap()
                else:
                    self.kill(chosen.data)

    def fork(self, client: socket.socket) -> None:
        """Make a kernel for one client and tell the client its process id."""
        try:
            client.settimeout(10)
            request = json.loads(client.makefile("r").readline())
            parent = os.getpid()
            kernel = os.fork()
        except (OSError, ValueError):
            client.close()
            return
        if kernel == 0:
            self.become_kernel(client, request, parent)
        self.kernels[kernel] = client
        try:
            client.sendall(f"{kernel}\n".encode())
            self.selector.register(client, selectors.EVENT_READ, kernel)
        except OSError:  # the client gave up waiting and became an ordinary kernel
            kill_group(kernel)

    def become_kernel(self, client: socket.socket, request: dict[str, object], parent: int) -> None:
        """Turn this fork into the kernel. Never returns."""
        signal.set_wakeup_fd(-1)
        for sign in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(sign, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        die_with_parent(signal.SIGKILL, parent)
        os.setsid()
        self.selector.close()
        for connection in (self.listener, self.woken, self.waker, client, *self.kernels.values()):
            connection.close()
        try:
            os.chdir(request["folder"])
            os.environ.clear()
            os.environ.update(request["environment"])
            from ipykernel.kernelapp import IPKernelApp

            sys.argv = ["ipykernel_launcher", "-f", str(request["file"])]
            IPKernelApp.launch_instance(argv=sys.argv[1:])
        finally:
            os._exit(0)

    def reap(self) -> None:
        """Collect kernels that ended, with all that they started, and tell their clients how they ended."""
        while self.kernels:
            try:
                kernel, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if kernel == 0:
                return
            kill_group(kernel, os.killpg)
            client = self.kernels.pop(kernel)
            self.forget(client)
            try:
                client.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
            except OSError:
                pass  # the client is gone too
            client.close()

    def kill(self, kernel: int) -> None:
        """End a kernel whose client has gone."""
        if kernel in self.kernels:
            self.forget(self.kernels[kernel])
            kill_group(kernel)

    def forget(self, client: socket.socket) -> None:
        """Listen to a client no longer."""
        if client in self.selector.get_map():
            self.selector.unregister(client)

    def stop(self, number: int, frame: object) -> None:
        """End all kernels and leave: the runner is gone."""
        for kernel in self.kernels:
            kill_group(kernel)
        os._exit(0)


def kill_group(leader: int, *kills: Callable[[int, int], None]) -> None:
    """Kill a process and what it started; it may be gone already, or not yet lead a group."""
    for kill in kills or (os.killpg, os.kill):
        try:
            kill(leader, signal.SIGKILL)
        except ProcessLookupError:
            pass


def main(arguments: list[str]) -> None:
    """Run as `client CONNECTION_FILE` or `serve PARENT SOCKET MODULE...`."""
    if arguments[0] == "client":
        client(arguments[1])
    else:
        del sys.path[0]  # this folder: its modules are not the notebooks' business
        die_with_parent(signal.SIGTERM, int(arguments[1]))
        Server(arguments[2]).serve(arguments[3:])


if __name__ == "__main__":
    main(sys.argv[1:])
