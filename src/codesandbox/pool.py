"""The caller's side of the sandbox: fork servers started on first use, one a core, and jobs handed to them.

Safe to use from several threads; a forked process starts servers of its own.
"""

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from io import FileIO
from pathlib import Path

from codesandbox.guarded import folders, wire

HERE = Path(__file__).parent
START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from guarded.server import main; sys.path.pop(0); main()"
FLAGS = ("-s", "-P", "-B", "-S", "-X", "utf8", "-c", START)
MEMORY = "/scratch"  # where a server in namespaces has its own file system
STARTUP = 60  # seconds
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}


class SandboxError(OSError):
    """Programs cannot be run here; nothing was."""


@dataclass(frozen=True)
class Limits:
    """Bounds of one job: CPU seconds and MiB of memory of each process, seconds of the whole."""

    cpu_seconds: float = 3.0
    wall_seconds: float = 4.0
    memory_mb: int = 1024


@dataclass(frozen=True)
class Ran:
    """What became of a job: why it was ended, which process was the reason, and the frames of each process."""

    why: str  # timeout, output, threads; a fault of the machine; empty: it ended by itself
    child: int
    frames: list[list[list]]

    @property
    def failed(self) -> bool:
        """Whether the machine failed, which says nothing about the job."""
        return self.why in ("lost", "starved", "orphan", "unguarded")


def memory_file(data: bytes = b"") -> FileIO:
    """A file in memory that holds the data, open at its start."""
    file = open(os.memfd_create("codesandbox"), "w+b", buffering=0)
    os.pwrite(file.fileno(), data, 0)
    return file


def _namespaces() -> list[str]:
    """Command line of bubblewrap: every namespace of its own, the system read-only, scratch in bounded memory."""
    line = """bwrap --unshare-all --unshare-user --cap-drop ALL --uid 64123 --gid 64123 --hostname sandbox
        --ro-bind /usr /usr --dev /dev --proc /proc --ro-bind-try /etc/ld.so.cache /etc/ld.so.cache""".split()
    for path in map(Path, ("/bin", "/lib", "/lib64")):
        line += ["--symlink", f"usr{path}", str(path)] if path.is_symlink() else ["--ro-bind-try", str(path), str(path)]
    for folder in (sys.base_prefix, str(HERE / "guarded")):
        line += [] if folder.startswith("/usr") else ["--ro-bind", folder, folder]
    return [*line, "--size", str(64 << 20), "--tmpfs", MEMORY, "--chdir", MEMORY, "--"]


class Server:
    """One fork server and the socket to it. Raises SandboxError when it does not start."""

    def __init__(self, level: int, function: str, warm: Sequence[tuple]) -> None:
        self.folder = None if level == 3 else tempfile.mkdtemp(prefix="codesandbox-")
        if self.folder and os.geteuid() == 0:
            os.chmod(self.folder, 0o711)  # for the user that programs run as
        modules = [path for path in sys.path if os.path.isdir(path)] if function else []
        options = {"level": level, "base": self.folder or MEMORY, "paths": modules, "function": function, "warm": warm}
        self.socket, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        caller = os.pidfd_open(os.getpid())  # readable for the server when we are gone, however we went
        line = [*(_namespaces() if level == 3 else []), os.path.realpath(sys.executable), *FLAGS, str(HERE)]
        line += [str(there.fileno()), str(caller), json.dumps(options)]
        apart = {"env": ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(modules)}, "cwd": "/", "start_new_session": True}
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        try:
            self.process = subprocess.Popen(line, pass_fds=(there.fileno(), caller), **apart, **pipes)
        finally:
            there.close()
            os.close(caller)
        self.socket.settimeout(STARTUP)
        ready = b""
        with contextlib.suppress(OSError):
            ready = self.socket.recv(16)
        if not ready:
            self.stop()
            why = self.process.stderr.read(4096).decode(errors="replace").strip().rpartition("\n")[2]
            raise SandboxError(f"the sandbox server did not start: {why or f'nothing heard in {STARTUP} s'}")
        self.process.stderr.close()

    def run(self, limits: Limits, children: int, files: list[int]) -> dict:
        """Have one job done and return the server's report. Of two children each gets every second file."""
        order = asdict(limits) | {"children": children}
        self.socket.settimeout(60 + 20 * limits.wall_seconds)  # well after a server that lives has answered
        try:
            socket.send_fds(self.socket, [json.dumps(order).encode()], files)
            return json.loads(self.socket.recv(4096))
        except (OSError, ValueError):
            self.stop()
            return {"why": "lost", "child": 0}

    def stop(self) -> None:
        """End the server and whatever it runs, and remove its folder."""
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.socket.close()
        if self.folder:
            folders.sweep(self.folder)


class Pool:
    """Servers of one level, at most one a core, started when needed; `function` is what they are warm with.

    Raises SandboxError where there is no Linux.
    """

    def __init__(self, level: int, function: str = "", warm: Sequence[tuple] = ()) -> None:
        if not sys.platform.startswith("linux"):
            raise SandboxError("guarded processes exist on Linux only: they are made of Landlock and seccomp")
        self.level, self.function, self.warm = level, function, warm
        self.reported = level  # 4 where the operator vouches for the machine
        self.size = max(2, len(os.sched_getaffinity(0)))  # processors that this process may use
        self._renew()
        atexit.register(self.close)

    def _renew(self) -> None:
        self.owner = os.getpid()  # a forked process must not talk to its parent's servers
        self.idle: list[Server] = []
        self.free = threading.Semaphore(self.size)

    @contextlib.contextmanager
    def _server(self) -> Iterator[Server]:
        """Borrow a server, waiting until one is free. One that has ended or is left in doubt is replaced."""
        if self.owner != os.getpid():
            self._renew()
        with self.free:
            server = self.idle.pop() if self.idle else None
            if server and server.process.poll() is not None:
                server.stop()
                server = None
            server = server or Server(self.level, self.function, self.warm)
            try:
                yield server
            except BaseException:
                server.stop()
                raise
            if server.process.returncode is None:
                self.idle.append(server)

    def run(self, limits: Limits, *jobs: list[list], files: tuple[FileIO, ...] = ()) -> Ran:
        """Run one job to its end, in one process or in two that are linked: lists of frames, see `child.play`.

        `files` become the standard input and output of a script.
        """
        with contextlib.ExitStack() as stack:
            given = [stack.enter_context(memory_file(b"".join(wire.line(*frame) for frame in job))) for job in jobs]
            results = [stack.enter_context(memory_file()) for _ in jobs]
            with self._server() as server:
                report = server.run(limits, len(jobs), [file.fileno() for file in (*given, *results, *files)])
            sizes = [os.fstat(file.fileno()).st_size for file in results]
            if max(sizes) > wire.LIMIT and not report["why"]:
                report |= {"why": "output", "child": sizes.index(max(sizes))}
            return Ran(**report, frames=[wire.frames(os.pread(file.fileno(), wire.LIMIT, 0)) for file in results])

    def close(self) -> None:
        """Stop the idle servers."""
        while self.idle and self.owner == os.getpid():
            self.idle.pop().stop()
