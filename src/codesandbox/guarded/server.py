"""A warm fork server: one guarded child a job, watched, killed, swept up. It never sees a program or a result.

The trainer hands over a socket for each job; the child reads its program from it and answers on it.
"""

import contextlib
import gc
import json
import os
import resource
import select
import signal
import socket
import stat
import sys
import time
from functools import partial
from typing import NamedTuple

from . import child, folders, guard

PRELOAD = """bisect cmath collections copy dataclasses datetime decimal enum fractions functools heapq itertools math
    operator re statistics string textwrap typing""".split()
TICK_MS = 50
SCRATCH_MB, ENTRIES = 64, 1000
# A /proc of another process namespace counts other processes.
PROC = "/proc" if os.path.exists("/proc/self") and os.readlink("/proc/self") == str(os.getpid()) else "/nowhere"


def _usage(pid: int, scratch: str) -> str:
    """Name what a running child has too much of: `output` or `threads`, empty when nothing."""
    count, size = folders.size(scratch, ENTRIES)
    with contextlib.suppress(OSError), os.scandir(f"{PROC}/{pid}/fd") as entries:
        for entry in entries:  # files that are deleted but still open
            with contextlib.suppress(OSError):
                seen = entry.stat()
                size += seen.st_size if stat.S_ISREG(seen.st_mode) and not seen.st_nlink else 0
    if count > ENTRIES or size > SCRATCH_MB << 20:
        return "output"
    with contextlib.suppress(OSError):
        return "threads" if len(os.listdir(f"{PROC}/{pid}/task")) > guard.THREADS else ""
    return ""


def _cpu(pid: int) -> float:
    """CPU seconds of a process so far, all threads."""
    with contextlib.suppress(OSError):
        return time.clock_gettime((~pid << 3) | 2)
    return 0.0


def _starved(pid: int, wall: float, cpu: float) -> bool:
    """Whether the machine, not the program, used up the time: most of it spent waiting for a processor."""
    with contextlib.suppress(OSError), open(f"{PROC}/{pid}/schedstat") as file:
        return int(file.read().split()[1]) > 0.75e9 * wall and _cpu(pid) < 0.25 * cpu
    return False


class Waiting(NamedTuple):
    """A child that waits for its job on a socket of its own."""

    pid: int
    scratch: str
    channel: socket.socket


class Server:
    """Serves one trainer until it ends; `options` are level, base (folder), homes, paths (readable), math."""

    def __init__(self, control: int, parent: int, options: dict) -> None:
        self.control = socket.socket(fileno=control)
        self.parent = parent
        self.level, self.base = options["level"], options["base"]
        self.paths = guard.opened([*guard.readable(), *options["paths"]])
        self.math = options["math"]
        self.waiting: Waiting | None = None
        self.chores: list = []  # what to do while nobody asks: calls that make later children faster
        if self.math:
            from . import equal

            self.chores = [partial(equal.equal, *pair) for pair in equal.WARM]
        gc.collect()
        gc.freeze()  # so that children share this memory longer
        self.uid = None
        if os.geteuid() == 0 and all(guard.others_reach(path) for path in (os.__file__, self.base, *options["homes"])):
            self.uid = guard.UID + os.getpid() % 1000  # so that nobody else's processes count

    def _fork(self) -> Waiting:
        """Start a child that waits for its job: fork, session and user are then seen to while nobody asks."""
        scratch = os.path.join(self.base, "job")
        os.mkdir(scratch, 0o700)
        if self.uid is not None:
            os.chown(scratch, self.uid, self.uid)
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        server = os.getpid()
        pid = os.fork()
        if pid:
            there.close()
            return Waiting(pid, scratch, here)
        try:
            here.close()
            os.setsid()
            os.chdir(scratch)
            os.environ["TMPDIR"] = scratch
            guard.give_up(self.uid)
            if os.getppid() != server:
                return  # it died before its death became the signal to die
            message, fds, _, _ = socket.recv_fds(there, 4096, 4)
            if fds:
                self._play(scratch, json.loads(message), fds)
        finally:
            os._exit(0)

    def _play(self, scratch: str, limits: dict, fds: list[int]) -> None:
        """Guard this process for good, close what is not the job's, and do the job."""
        for target, fd in enumerate(fds[1:]):
            os.dup2(fd, target)
        guard.enter(self.level, scratch, self.paths, self.uid, limits["cpu"], limits["memory"])
        os.closerange(3, fds[0])
        os.closerange(fds[0] + 1, 256)
        channel = child.Channel(fds[0])
        channel.write("guarded")
        child.play(channel, channel.read())

    def _started(self, limits: dict, fds: list[int]) -> tuple[int, str]:
        """Hand a job to the child that waits, or to a new one when there is none or it has been killed."""
        while True:
            waiting, self.waiting = self.waiting or self._fork(), None
            try:
                socket.send_fds(waiting.channel, [json.dumps(limits).encode()], fds)
                return waiting.pid, waiting.scratch
            except OSError:
                os.waitpid(waiting.pid, 0)
                os.rmdir(waiting.scratch)
            finally:
                waiting.channel.close()

    def _watch(self, pid: int, scratch: str, limits: dict) -> tuple[str, bool]:
        """Wait for the child's end. Returns why it must be killed (empty: it ended) and whether the trainer lives."""
        process = os.pidfd_open(pid)
        poll = select.poll()
        for fd in (process, self.control.fileno(), self.parent):
            poll.register(fd, select.POLLIN)
        deadline = time.monotonic() + limits["wall"]
        try:
            while True:
                left = deadline - time.monotonic()
                ready = [fd for fd, _ in poll.poll(max(0, min(TICK_MS, left * 1000)))]
                if self.parent in ready or (self.control.fileno() in ready and not self.control.recv(16)):
                    return "orphan", False
                if self.control.fileno() in ready:
                    return "stopped", True
                if process in ready:
                    return "", True
                if _cpu(pid) > limits["cpu"]:
                    return "timeout", True
                if left <= 0:  # algebra never sleeps: what it did not get, others had
                    starved = self.math or _starved(pid, limits["wall"], limits["cpu"])
                    return "starved" if starved else "timeout", True
                if why := _usage(pid, scratch):
                    return why, True
        finally:
            os.close(process)

    def _job(self, limits: dict, fds: list[int]) -> bool:
        """Run one child to its end, report, and say whether the trainer is still there."""
        pid, scratch = self._started(limits, fds)
        for fd in fds:
            os.close(fd)
        why, alive = self._watch(pid, scratch, limits)
        for target in (-pid, pid):
            with contextlib.suppress(OSError):
                os.kill(target, signal.SIGKILL)
        _, status, used = os.wait4(pid, 0)
        cpu = used.ru_utime + used.ru_stime
        why = why or _usage(0, scratch) or ("timeout" if os.WIFSIGNALED(status) and cpu > limits["cpu"] else "")
        gone = os.path.join(self.base, "gone")
        os.rename(scratch, gone)
        if why != "output":  # a large folder may take longer than the trainer waits for a verdict
            folders.sweep(gone)
        if alive:
            report = {"why": why, "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0}
            self.control.send(json.dumps(report).encode())
        if why == "output":
            folders.sweep(gone)
        return alive

    def serve(self) -> None:
        """Take jobs until the trainer closes the socket or dies."""
        self.control.send(b"ready")
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(self.parent, select.POLLIN)
        alive = True
        while alive:
            ready = [fd for fd, _ in poll.poll(None if self.waiting else 0)]
            if not ready:
                if self.chores:
                    self.chores.pop()()
                    gc.freeze()
                else:
                    self.waiting = self._fork()
                continue
            if self.parent in ready:
                break
            message, fds, _, _ = socket.recv_fds(self.control, 4096, 4)
            if not message:
                break
            if fds:  # anything else is a late request to stop a job that had ended
                alive = self._job(json.loads(message), fds)
        folders.sweep(self.base)


def main() -> None:
    """Start from the command line: control socket, parent's pidfd, options as JSON."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # short of memory, the machine ends programs before it ends the trainer
    options = json.loads(sys.argv[3])
    for name in PRELOAD:
        __import__(name)
    server = Server(int(sys.argv[1]), int(sys.argv[2]), options)
    os.dup2(1, 2)
    server.serve()
