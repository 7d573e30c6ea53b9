"""The caller's side of the sandbox: fork servers, started on first use, and the jobs they get.

Safe to use from several threads; a forked process starts new servers.
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

PACKAGE = Path(__file__).parent
# The server imports `guarded` from this folder and sees nothing else of the package.
BOOTSTRAP = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from guarded.server import main; sys.path.pop(0); main()"
)
PYTHON_FLAGS = ("-s", "-P", "-B", "-S", "-X", "utf8", "-c", BOOTSTRAP)
NAMESPACE_SCRATCH = (
    "/scratch"  # where a server in namespaces has a file system in memory
)
NAMESPACE_SCRATCH_BYTES = 64 << 20
STARTUP_SECONDS = 60
MACHINE_FAULTS = ("lost", "starved", "orphan", "unguarded")
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/nonexistent",
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
}


class SandboxError(OSError):
    """Programs cannot be run on this machine, and none was."""


@dataclass(frozen=True)
class Limits:
    """Limits of one job: CPU seconds and MiB of memory per process, wall seconds of the whole."""

    cpu_seconds: float = 3.0
    wall_seconds: float = 4.0
    memory_mb: int = 1024


@dataclass(frozen=True)
class JobResult:
    """The outcome of a job: why it was ended, by which process, and the frames of each process."""

    why: str  # timeout, output, threads or one of MACHINE_FAULTS; empty: it ended by itself
    child: int
    frames: list[list[list]]

    @property
    def failed(self) -> bool:
        """Whether the machine failed, which says nothing about the job."""
        return self.why in MACHINE_FAULTS


def memory_file(data: bytes = b"") -> FileIO:
    """Return a file in memory that holds the data, open at its start."""
    fd = os.memfd_create("codesandbox")
    os.pwrite(fd, data, 0)
    return open(fd, "w+b", buffering=0)


def _namespace_command() -> list[str]:
    """Return a bubblewrap command: new namespaces, a read-only system, scratch in memory."""
    loader_cache = "/etc/ld.so.cache"
    command = ["bwrap", "--unshare-all", "--unshare-user", "--cap-drop", "ALL"]
    command += ["--uid", "64123", "--gid", "64123", "--hostname", "sandbox"]
    command += ["--ro-bind", "/usr", "/usr", "--dev", "/dev", "--proc", "/proc"]
    command += ["--ro-bind-try", loader_cache, loader_cache]
    for path in (Path("/bin"), Path("/lib"), Path("/lib64")):
        if path.is_symlink():
            command += ["--symlink", f"usr{path}", str(path)]
        else:
            command += ["--ro-bind-try", str(path), str(path)]
    for folder in (sys.base_prefix, str(PACKAGE / "guarded")):
        if not folder.startswith("/usr"):
            command += ["--ro-bind", folder, folder]
    command += ["--size", str(NAMESPACE_SCRATCH_BYTES), "--tmpfs", NAMESPACE_SCRATCH]
    return [*command, "--chdir", NAMESPACE_SCRATCH, "--"]


class Server:
    """One fork server and the socket to it. Raises SandboxError when it does not start."""

    def __init__(self, level: int, function: str, warm: Sequence[tuple]) -> None:
        self.folder = None if level == 3 else tempfile.mkdtemp(prefix="codesandbox-")
        if self.folder and os.geteuid() == 0:
            os.chmod(self.folder, 0o711)  # for the user that programs run as
        module_paths = (
            [path for path in sys.path if os.path.isdir(path)] if function else []
        )
        options = {
            "level": level,
            "base": self.folder or NAMESPACE_SCRATCH,
            "paths": module_paths,
            "function": function,
            "warm": warm,
        }
        self.socket, server_socket = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET
        )
        caller = os.pidfd_open(
            os.getpid()
        )  # readable for the server once this process has ended
        command = _namespace_command() if level == 3 else []
        command += [os.path.realpath(sys.executable), *PYTHON_FLAGS, str(PACKAGE)]
        command += [str(server_socket.fileno()), str(caller), json.dumps(options)]
        try:
            self.process = subprocess.Popen(
                command,
                pass_fds=(server_socket.fileno(), caller),
                env=ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(module_paths)},
                cwd="/",
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        finally:
            server_socket.close()
            os.close(caller)
        self._await_start()

    def _await_start(self) -> None:
        self.socket.settimeout(STARTUP_SECONDS)
        greeting = b""
        with contextlib.suppress(OSError):
            greeting = self.socket.recv(16)
        if not greeting:
            self.stop()
            errors = self.process.stderr.read(4096).decode(errors="replace")
            _, _, last_line = errors.strip().rpartition("\n")
            reason = last_line or f"nothing heard in {STARTUP_SECONDS} s"
            raise SandboxError(f"the sandbox server did not start: {reason}")
        self.process.stderr.close()

    def run(self, limits: Limits, children: int, files: list[int]) -> dict:
        """Run one job and return the server's report. Two children get every second file each."""
        order = asdict(limits) | {"children": children}
        # Well after the time by which a live server has answered.
        self.socket.settimeout(60 + 20 * limits.wall_seconds)
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
            folders.remove(self.folder)


class Pool:
    """Servers of one level, at most one per core, started when needed.

    `function` is the trusted function that they import and `warm` the arguments of calls that they
    make first. Raises SandboxError on systems other than Linux.
    """

    def __init__(
        self, level: int, function: str = "", warm: Sequence[tuple] = ()
    ) -> None:
        if not sys.platform.startswith("linux"):
            raise SandboxError(
                "guarded processes exist on Linux only: they are made of Landlock and seccomp"
            )
        self.level = level
        self.function = function
        self.warm = warm
        self.reported = level  # 4 where the operator vouches for the machine
        self.size = max(
            2, len(os.sched_getaffinity(0))
        )  # processors that this process may use
        self._reset()
        atexit.register(self.close)

    def _reset(self) -> None:
        self.owner = (
            os.getpid()
        )  # a forked process must not talk to its parent's servers
        self.idle: list[Server] = []
        self.free = threading.Semaphore(self.size)

    @contextlib.contextmanager
    def _server(self) -> Iterator[Server]:
        """Lend a server as soon as one is free, and replace one that has ended or is in doubt."""
        if self.owner != os.getpid():
            self._reset()
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

    def run(
        self, limits: Limits, *jobs: list[list], files: tuple[FileIO, ...] = ()
    ) -> JobResult:
        """Run one job to its end, in one process or in two that are linked.

        Each of `jobs` lists the frames for one process (see `child.run_job`); `files` become the
        standard input and output of a script.
        """
        with contextlib.ExitStack() as stack:
            job_files = []
            for job in jobs:
                data = b"".join(wire.encode_frame(*frame) for frame in job)
                job_files.append(stack.enter_context(memory_file(data)))
            results = [stack.enter_context(memory_file()) for _ in jobs]
            with self._server() as server:
                fds = [file.fileno() for file in (*job_files, *results, *files)]
                report = server.run(limits, len(jobs), fds)
            sizes = [os.fstat(file.fileno()).st_size for file in results]
            largest = max(sizes)
            if largest > wire.MAX_RESULT_BYTES and not report["why"]:
                report |= {"why": "output", "child": sizes.index(largest)}
            frames = []
            for file in results:
                data = os.pread(file.fileno(), wire.MAX_RESULT_BYTES, 0)
                frames.append(wire.decode_frames(data))
            return JobResult(**report, frames=frames)

    def close(self) -> None:
        """Stop the idle servers."""
        while self.idle and self.owner == os.getpid():
            self.idle.pop().stop()
