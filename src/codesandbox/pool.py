"""The trainer's side of the sandbox: servers started on first use, children watched over sockets, the level reached.

One server a core. Safe to use from several threads; a forked process starts servers of its own.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from codesandbox.guarded import folders, wire

HERE = Path(__file__).parent
START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from guarded.server import main; sys.path.pop(0); main()"
FLAGS = ("-s", "-P", "-B", "-S", "-X", "utf8")
MEMORY = "/scratch"  # where a server in namespaces has its own file system
STARTUP = 60  # seconds
PATIENCE = 10  # seconds until a child must have started: its server may still be sweeping up after another
LATE = 0.7  # seconds after the wall limit at which a silent server is given up
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/nonexistent",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
}


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))


def spread(check: Callable, items: Iterable, size: int) -> list:
    """Call `check` on many items, `size` of them at once, and return the results in the items' order."""
    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(check, items))


class SandboxError(RuntimeError):
    """Programs cannot be run here; nothing was."""


def _namespaces() -> list[str]:
    """Command line of bubblewrap: every namespace of its own, the system read-only, scratch in bounded memory."""
    line = [
        "bwrap",
        "--unshare-all",
        "--unshare-user",
        "--cap-drop",
        "ALL",
        "--uid",
        "64123",
        "--gid",
        "64123",
        "--hostname",
        "sandbox",
        "--ro-bind",
        "/usr",
        "/usr",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
        "--ro-bind-try",
        "/etc/ld.so.cache",
        "/etc/ld.so.cache",
    ]
    for path in map(Path, ("/bin", "/lib", "/lib64")):
        line += ["--symlink", f"usr{path}", str(path)] if path.is_symlink() else ["--ro-bind-try", str(path), str(path)]
    for folder in (sys.base_prefix, str(HERE / "guarded")):
        line += [] if folder.startswith("/usr") else ["--ro-bind", folder, folder]
    return [*line, "--size", str(64 << 20), "--tmpfs", MEMORY, "--chdir", MEMORY, "--"]


class Server:
    """One fork server and the socket to it. Raises SandboxError when it does not start."""

    def __init__(self, level: int, math: bool = False) -> None:
        self.folder = None if level == 3 else tempfile.mkdtemp(prefix="coevolve-sandbox-")
        if self.folder and os.geteuid() == 0:
            os.chmod(self.folder, 0o711)  # for the user that programs run as
        modules = [path for path in sys.path if os.path.isdir(path)] if math else []
        options = {
            "level": level,
            "base": self.folder or MEMORY,
            "homes": [sys.base_prefix, *modules],
            "paths": modules,
            "math": math,
        }
        self.socket, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parent = os.pidfd_open(os.getpid())  # readable for the server when we are gone, however we went
        python = os.path.realpath(sys.executable)
        line = [*(_namespaces() if level == 3 else []), python, *FLAGS, "-c", START, str(HERE)]
        try:
            self.process = subprocess.Popen(
                [*line, str(there.fileno()), str(parent), json.dumps(options)],
                pass_fds=(there.fileno(), parent),
                env=ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(modules)},
                start_new_session=True,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        finally:
            there.close()
            os.close(parent)
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        if not poll.poll(STARTUP * 1000) or self.socket.recv(16) != b"ready":
            self.stop()
            why = self.process.stderr.read(4096).decode(errors="replace").strip().rpartition("\n")[2]
            raise SandboxError(f"the sandbox server did not start: {why or f'nothing heard in {STARTUP} s'}")
        self.process.stderr.close()

    def stop(self) -> None:
        """End the server and whatever it runs, and remove its folder."""
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.socket.close()
        if self.folder:
            folders.sweep(self.folder)


class Child:
    """One sandboxed process, seen from the trainer: frames in both directions, all bounded, and its end."""

    def __init__(
        self, server: Server, job: list, cpu: float, wall: float, memory: int, files: tuple[int, ...] = ()
    ) -> None:
        self.server = server
        self.socket, there = socket.socketpair()
        self.socket.setblocking(False)
        self.outgoing = bytearray(wire.pack(job))
        self.incoming = wire.Frames()
        self.frames: list[list] = []
        self.seen = self.received = 0
        self.open = True  # until the child closes its side or sends what is not read
        self.why: str | None = None  # None while it runs; empty when it ended by itself
        self.detail = ""
        self.wall = wall
        self.deadline = time.monotonic() + PATIENCE
        limits = {"cpu": cpu, "wall": wall, "memory": memory}
        try:
            socket.send_fds(server.socket, [json.dumps(limits).encode()], [there.fileno(), *files])
        except OSError:
            self.why = "lost"
        there.close()

    def send(self, *frame: object) -> None:
        """Queue a frame for the child."""
        self.outgoing += wire.pack(list(frame))

    def fresh(self) -> list[list]:
        """Frames that came since the last look; all of them stay in `frames`."""
        new = self.frames[self.seen :]
        self.seen += len(new)
        return new

    def stop(self, detail: str = "") -> None:
        """Ask the server to kill the child now."""
        self.detail = self.detail or detail
        self.open = self.open and not detail
        with contextlib.suppress(OSError):
            self.server.socket.send(b"stop")

    def _read(self) -> None:
        while self.open:
            try:
                data = self.socket.recv(1 << 16)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            self.open = bool(data)
            if data and not self.received:
                self.deadline = time.monotonic() + self.wall + LATE
            self.received += len(data)
            if self.received > wire.LIMIT:
                self.stop("output")
                return
            try:
                for frame in self.incoming.feed(data):
                    self.frames.append(frame)  # one by one: those before the broken one count
            except ValueError:
                self.stop("garbled")

    def _write(self) -> None:
        try:
            del self.outgoing[: self.socket.send(self.outgoing)]
        except BlockingIOError:
            pass
        except OSError:  # the child is gone
            self.outgoing.clear()

    def serve(self, ready: dict[int, int]) -> None:
        """Move what can be moved. `ready` maps file descriptors to poll events."""
        if self.outgoing:
            self._write()
        if self.socket.fileno() in ready:
            self._read()
        if self.server.socket.fileno() in ready:
            try:
                report = json.loads(self.server.socket.recv(4096) or b'{"why": "lost"}')
            except OSError:
                report = {"why": "lost"}
            self._read()
            self.why = report["why"] or (f"signal {report['signal']}" if report["signal"] else "")
        elif time.monotonic() > self.deadline:
            self.why = "lost"


def attend(children: list[Child], react: Callable[[], None] = lambda: None) -> None:
    """Serve children until every one has ended; `react` runs whenever something may have arrived."""
    while running := [child for child in children if child.why is None]:
        poll = select.poll()
        for child in running:
            poll.register(child.server.socket, select.POLLIN)
            if child.open:
                poll.register(child.socket, select.POLLIN | (select.POLLOUT if child.outgoing else 0))
        left = min(child.deadline for child in running) - time.monotonic()
        ready = dict(poll.poll(max(0, left * 1000) + 1))
        for child in running:
            child.serve(ready)
        react()
    for child in children:
        child.socket.close()
        if child.why == "lost":
            child.server.stop()


class Pool:
    """Servers of one level, one a core and at least two: a test and its candidate need one each."""

    def __init__(self, level: int, math: bool = False) -> None:
        self.level, self.math = level, math
        self.reported = level  # 4 where the operator vouches for the machine
        self.size = max(2, cores())
        self.idle: list[Server] = []
        self.busy = 0
        self.changed = threading.Condition()

    @contextlib.contextmanager
    def take(self, count: int = 1, rush: bool = False) -> Iterator[list[Server]]:
        """Borrow servers, waiting until that many are free. A server that is lost or left in doubt is replaced."""
        with self.changed:
            if rush and self.busy and not self.idle:  # others are done before a server has started
                threading.Thread(target=self._grow, daemon=True).start()
                self.changed.wait_for(lambda: self.idle or not self.busy)
            self.changed.wait_for(lambda: self.busy + count <= self.size)
            self.busy += count
            mine = [self.idle.pop() for _ in range(min(count, len(self.idle)))]
        whole = False
        try:
            mine += [Server(self.level, self.math) for _ in range(count - len(mine))]
            yield mine
            whole = True
        finally:
            for server in mine:
                if not whole or server.process.poll() is not None:
                    server.stop()
            with self.changed:
                self.busy -= count
                self.idle += mine if whole else []
                self.idle = [server for server in self.idle if server.process.returncode is None]
                self.changed.notify_all()

    def _grow(self) -> None:
        with contextlib.suppress(SandboxError), self.take():  # free again at once, for whoever waits
            pass

    def run(
        self, job: list, inputs: tuple[list, ...], cpu: float, wall: float, memory: int, files: tuple[int, ...] = ()
    ) -> Child:
        """Run one job in one child, with all frames for it known beforehand, to its end."""
        with self.take(rush=self.math) as (server,):
            child = Child(server, job, cpu, wall, memory, files)
            for frame in inputs:
                child.send(*frame)
            attend([child])
            return child

    def close(self) -> None:
        """Stop the idle servers."""
        with self.changed:
            while self.idle:
                self.idle.pop().stop()
