"""A warm fork server: it forks guarded children for each job, watches, kills and cleans up.

The server never sees a program or a result. The caller hands over open files for each job; the
children read their programs from these files and write their answers into them.
"""

import contextlib
import gc
import importlib
import itertools
import json
import os
import resource
import select
import signal
import socket
import stat
import sys
import time
from typing import NamedTuple

from . import child, folders, guard

# Imported once, so that every child has these modules already.
PRELOADED_MODULES = [
    "bisect",
    "cmath",
    "collections",
    "copy",
    "dataclasses",
    "datetime",
    "decimal",
    "enum",
    "fractions",
    "functools",
    "heapq",
    "itertools",
    "math",
    "operator",
    "re",
    "statistics",
    "string",
    "textwrap",
    "typing",
]
WATCH_SECONDS = 0.05
PATIENCE = (
    10  # how many wall limits a job may last on a machine without a free processor
)
MAX_SCRATCH_BYTES = 64 << 20
MAX_SCRATCH_ENTRIES = 1000
MAX_MESSAGE_BYTES = 4096
MAX_FILES_PER_JOB = 6
MAX_SERVER_FILES = 256
CPUCLOCK_SCHED = (
    2  # of the kernel's clock ids: processor time of a process, all threads
)


def _own_proc() -> str:
    """Return /proc, or a path that does not exist if /proc counts another namespace's processes."""
    if os.path.exists("/proc/self") and os.readlink("/proc/self") == str(os.getpid()):
        return "/proc"
    return "/nowhere"


PROC = _own_proc()


class Running(NamedTuple):
    """A child at work, its scratch folder, and the pipe on which it reports that it is guarded."""

    pid: int
    scratch: str
    guarded_pipe: int


class Ending(NamedTuple):
    """Why a job was ended, empty if its first child ended by itself; and which child caused it."""

    why: str
    child: int = 0


def _deleted_open_bytes(pid: int) -> int:
    """Bytes in files that a process has deleted but still holds open."""
    size_bytes = 0
    with contextlib.suppress(OSError), os.scandir(f"{PROC}/{pid}/fd") as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                status = entry.stat()
                if stat.S_ISREG(status.st_mode) and not status.st_nlink:
                    size_bytes += status.st_size
    return size_bytes


def _exceeded_limit(running: Running) -> str:
    """Return which limit a child exceeds, `output` or `threads`; empty if none."""
    scratch = folders.measure(running.scratch, MAX_SCRATCH_ENTRIES)
    size_bytes = scratch.size_bytes + _deleted_open_bytes(running.pid)
    if scratch.entries > MAX_SCRATCH_ENTRIES or size_bytes > MAX_SCRATCH_BYTES:
        return "output"
    with contextlib.suppress(OSError):
        threads = os.listdir(f"{PROC}/{running.pid}/task")
        return "threads" if len(threads) > guard.MAX_THREADS else ""
    return ""


def _cpu_seconds(pid: int) -> float:
    """CPU seconds that a process has used so far, all threads."""
    with contextlib.suppress(OSError):
        clock_id = (~pid << 3) | CPUCLOCK_SCHED
        return time.clock_gettime(clock_id)
    return 0.0


def _waiting_seconds(pid: int) -> float:
    """Seconds for which a process was ready to run while others had the processor."""
    with contextlib.suppress(OSError), open(f"{PROC}/{pid}/schedstat") as file:
        _, waiting_ns, *_ = file.read().split()
        return int(waiting_ns) / 1e9
    return 0.0


class Server:
    """A server for one caller, until that caller ends.

    `options`: level, base (folder), paths (readable), function (module:name, may be empty), warm
    (arguments of calls to make first).
    """

    def __init__(self, control_fd: int, caller_pidfd: int, options: dict) -> None:
        self.control = socket.socket(fileno=control_fd)
        self.caller = caller_pidfd
        self.level = options["level"]
        self.base = options["base"]
        self.paths = [*guard.readable_paths(), *options["paths"]]
        self.scratch_numbers = itertools.count()
        self.trusted = None
        if options["function"]:
            module, _, name = options["function"].partition(":")
            self.trusted = getattr(importlib.import_module(module), name)
        for args in options["warm"]:
            self.trusted(*args)
        gc.freeze()  # keeps memory shared with the children for longer
        self.uid = self._unprivileged_uid(options["paths"])

    def _unprivileged_uid(self, paths: list[str]) -> int | None:
        """Return the user that children become instead of root.

        None if the server is not root, or if another user could not read what children need.
        """
        needed = (os.path.dirname(os.__file__), sys.base_prefix, self.base, *paths)
        if os.geteuid() != 0 or not all(map(guard.any_user_reaches, needed)):
            return None
        # Spread over many users, because the limit of threads counts all processes of a user.
        return guard.UNPRIVILEGED_UID + 2 * (os.getpid() % 500)

    def _start(self, index: int, limits: dict, fds: list[int]) -> Running:
        """Fork a child, the first or second of a job, that guards itself and then does its part."""
        scratch = os.path.join(self.base, str(next(self.scratch_numbers)))
        os.mkdir(scratch, 0o700)
        uid = None if self.uid is None else self.uid + index
        owner = uid or -1  # -1 keeps the owner
        os.chown(scratch, owner, owner)
        guarded_pipe, report_pipe = os.pipe()
        server_pid = os.getpid()
        pid = os.fork()
        if pid:
            os.close(report_pipe)
            return Running(pid, scratch, guarded_pipe)
        try:
            self._leave_parent(scratch, uid)
            if (
                os.getppid() == server_pid
            ):  # else the server died before its death could kill us
                self._guard_child(scratch, uid, limits, fds, report_pipe)
                job_fd, result_fd, *others = fds
                child.run_job(
                    self.trusted, job_fd, result_fd, others[-1] if others else -1
                )
        finally:
            os._exit(0)

    def _leave_parent(self, scratch: str, uid: int | None) -> None:
        """Move this child to a new session and its scratch folder, without privileges."""
        os.setsid()
        os.chdir(scratch)
        os.environ["TMPDIR"] = scratch
        guard.drop_privileges(uid)

    def _guard_child(
        self,
        scratch: str,
        uid: int | None,
        limits: dict,
        fds: list[int],
        report_pipe: int,
    ) -> None:
        """Restrict this child, report that, and close every file that is not part of its job."""
        _, _, *others = fds
        if len(others) == 2:
            stdin_fd, stdout_fd = others
            os.dup2(stdin_fd, 0)
            os.dup2(stdout_fd, 1)
        cpu_seconds = limits["cpu_seconds"]
        memory_mb = limits["memory_mb"]
        guard.restrict(self.level, scratch, self.paths, uid, cpu_seconds, memory_mb)
        os.write(report_pipe, b"!")
        kept = sorted([2, *fds, MAX_SERVER_FILES])
        for fd, next_fd in itertools.pairwise(kept):
            os.closerange(fd + 1, next_fd)

    def _watch(self, children: list[Running], limits: dict) -> Ending:
        """Wait for the first child's end, or until a limit or the caller's end stops the job."""
        first = os.pidfd_open(children[0].pid)
        start = time.monotonic()
        try:
            while True:
                watched = [first, self.control, self.caller]
                ready, _, _ = select.select(watched, [], [], WATCH_SECONDS)
                if first in ready:
                    return Ending("")
                if ready:
                    return Ending("orphan")
                ending = _over_limits(children, limits, start)
                if ending:
                    return ending
        finally:
            os.close(first)

    def _run_job(self, limits: dict, fds: list[int]) -> Ending:
        """Run one job to its end; two children share the files and are linked to each other."""
        count = limits["children"]
        parts = [fds[index::count] for index in range(count)]
        if count == 2:
            for part, link in zip(parts, socket.socketpair(), strict=True):
                part.append(link.detach())
        children = [
            self._start(index, limits, part) for index, part in enumerate(parts)
        ]
        for fd in itertools.chain(*parts):
            os.close(fd)
        ending = self._watch(children, limits)
        for index, running in enumerate(children):
            was_guarded = _kill(running)
            if not was_guarded:
                ending = ending._replace(why="unguarded")
            if not ending.why:
                exceeded = _exceeded_limit(running)
                if exceeded:
                    ending = Ending(exceeded, index)
            folders.remove(running.scratch)
        return ending

    def serve(self) -> None:
        """Take jobs until the caller closes the socket or dies."""
        self.control.send(b"ready")
        while self.caller not in select.select([self.control, self.caller], [], [])[0]:
            message, fds, _, _ = socket.recv_fds(
                self.control, MAX_MESSAGE_BYTES, MAX_FILES_PER_JOB
            )
            if not message:
                break
            ending = self._run_job(json.loads(message), fds)
            with contextlib.suppress(OSError):
                self.control.send(json.dumps(ending._asdict()).encode())
        folders.remove(self.base)


def _over_limits(children: list[Running], limits: dict, start: float) -> Ending | None:
    """Return how a job must end because of its limits, None while it may run.

    Time counts unless it was spent waiting for a processor, so a busy machine changes no verdict.
    """
    for index, running in enumerate(children):
        if _cpu_seconds(running.pid) > limits["cpu_seconds"]:
            return Ending("timeout", index)
        exceeded = _exceeded_limit(running)
        if exceeded:
            return Ending(exceeded, index)
    passed = time.monotonic() - start
    waiting = sum(_waiting_seconds(running.pid) for running in children)
    if passed - waiting > limits["wall_seconds"]:
        return Ending("timeout")
    if passed > PATIENCE * limits["wall_seconds"]:
        return Ending("starved")
    return None


def _kill(running: Running) -> bool:
    """Kill a child and its process group; return whether it had guarded itself."""
    for target in (-running.pid, running.pid):
        with contextlib.suppress(OSError):
            os.kill(target, signal.SIGKILL)
    os.waitpid(running.pid, 0)
    was_guarded = os.read(running.guarded_pipe, 1) == b"!"
    os.close(running.guarded_pipe)
    return was_guarded


def main() -> None:
    """Start from the command line: control socket, caller's pidfd, options as JSON."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (MAX_SERVER_FILES, hard))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(
            "1000"
        )  # short of memory, the kernel ends programs before it ends the caller
    for name in PRELOADED_MODULES:
        __import__(name)
    server = Server(int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))
    os.dup2(1, 2)
    server.serve()
