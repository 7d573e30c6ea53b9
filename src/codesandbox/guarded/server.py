"""A warm fork server: guarded children for each job, watched, killed, swept up. It never sees a program or a result.

The caller hands over open files for each job; the children read their programs from them and answer in them.
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

PRELOAD = """bisect cmath collections copy dataclasses datetime decimal enum fractions functools heapq itertools math
    operator re statistics string textwrap typing""".split()
TICK = 0.05  # seconds
PATIENCE = 10  # times the wall limit that a job may take on a machine that has no processor for it
SCRATCH_MB, ENTRIES = 64, 1000
# A /proc of another process namespace counts other processes.
PROC = "/proc" if os.path.exists("/proc/self") and os.readlink("/proc/self") == str(os.getpid()) else "/nowhere"


class Running(NamedTuple):
    """A child at work, the folder that it may write in, and a pipe on which it says that it has guarded itself."""

    pid: int
    scratch: str
    guarded: int


def _usage(running: Running) -> str:
    """Name what a child has too much of: `output` or `threads`, empty when nothing."""
    count, size = folders.size(running.scratch, ENTRIES)
    with contextlib.suppress(OSError), os.scandir(f"{PROC}/{running.pid}/fd") as entries:
        for entry in entries:  # files that are deleted but still open
            with contextlib.suppress(OSError):
                seen = entry.stat()
                size += seen.st_size if stat.S_ISREG(seen.st_mode) and not seen.st_nlink else 0
    if count > ENTRIES or size > SCRATCH_MB << 20:
        return "output"
    with contextlib.suppress(OSError):
        return "threads" if len(os.listdir(f"{PROC}/{running.pid}/task")) > guard.THREADS else ""
    return ""


def _cpu(pid: int) -> float:
    """CPU seconds of a process so far, all threads."""
    with contextlib.suppress(OSError):
        return time.clock_gettime((~pid << 3) | 2)
    return 0.0


def _waited(pid: int) -> float:
    """Seconds that a process was ready to run and others had the processor."""
    with contextlib.suppress(OSError), open(f"{PROC}/{pid}/schedstat") as file:
        return int(file.read().split()[1]) / 1e9
    return 0.0


class Server:
    """Serves one caller until it ends; `options` are level, base (folder), paths (readable), function, warm."""

    def __init__(self, control: int, caller: int, options: dict) -> None:
        self.control = socket.socket(fileno=control)
        self.caller = caller
        self.level, self.base = options["level"], options["base"]
        self.paths = [*guard.readable(), *options["paths"]]
        self.numbers = itertools.count()
        self.trusted = None
        if options["function"]:
            module, _, name = options["function"].partition(":")
            self.trusted = getattr(importlib.import_module(module), name)
        for args in options["warm"]:
            self.trusted(*args)
        gc.freeze()  # so that children share this memory longer
        self.uid = None
        homes = (os.path.dirname(os.__file__), sys.base_prefix, self.base, *options["paths"])
        if os.geteuid() == 0 and all(map(guard.others_reach, homes)):
            self.uid = guard.UID + 2 * (os.getpid() % 500)  # so that nobody else's processes count

    def _start(self, index: int, limits: dict, fds: list[int]) -> Running:
        """Fork a child, the first or second of a job, that guards itself and then does its part."""
        scratch = os.path.join(self.base, str(next(self.numbers)))
        os.mkdir(scratch, 0o700)
        uid = None if self.uid is None else self.uid + index
        os.chown(scratch, uid or -1, uid or -1)  # -1: as it is
        guarded, tell = os.pipe()
        server = os.getpid()
        pid = os.fork()
        if pid:
            os.close(tell)
            return Running(pid, scratch, guarded)
        try:
            os.setsid()
            os.chdir(scratch)
            os.environ["TMPDIR"] = scratch
            guard.give_up(uid)
            if os.getppid() != server:
                return  # it died before its death became the signal to die
            job, results, *more = fds
            for target, fd in enumerate(more if len(more) == 2 else ()):
                os.dup2(fd, target)  # standard input and output of a script
            guard.enter(self.level, scratch, self.paths, uid, limits["cpu_seconds"], limits["memory_mb"])
            os.write(tell, b"!")
            for last, fd in itertools.pairwise(sorted([2, *fds, 256])):
                os.closerange(last + 1, fd)
            child.play(self.trusted, job, results, more[-1] if more else -1)
        finally:
            os._exit(0)

    def _watch(self, children: list[Running], limits: dict) -> tuple[str, int]:
        """Wait for the first child's end, or until a child or the caller makes it necessary to end them all.

        Returns why (empty: the first child ended by itself) and which child was the reason. Time counts unless it was
        spent waiting for a processor, so that a busy machine changes no verdict.
        """
        first = os.pidfd_open(children[0].pid)
        start = time.monotonic()
        try:
            while True:
                ready, _, _ = select.select([first, self.control, self.caller], [], [], TICK)
                if ready:
                    return ("" if first in ready else "orphan"), 0
                for index, running in enumerate(children):
                    if _cpu(running.pid) > limits["cpu_seconds"]:
                        return "timeout", index
                    if why := _usage(running):
                        return why, index
                passed = time.monotonic() - start
                if passed - sum(_waited(running.pid) for running in children) > limits["wall_seconds"]:
                    return "timeout", 0
                if passed > PATIENCE * limits["wall_seconds"]:
                    return "starved", 0
        finally:
            os.close(first)

    def _job(self, limits: dict, fds: list[int]) -> dict:
        """Run one job to its end and say how it ended. Two children share the files and get a link to each other."""
        count = limits["children"]
        parts = [fds[index::count] for index in range(count)]
        if count == 2:
            for part, end in zip(parts, socket.socketpair(), strict=True):
                part.append(end.detach())
        children = [self._start(index, limits, part) for index, part in enumerate(parts)]
        for fd in itertools.chain(*parts):
            os.close(fd)
        why, reason = self._watch(children, limits)
        for index, running in enumerate(children):
            for target in (-running.pid, running.pid):
                with contextlib.suppress(OSError):
                    os.kill(target, signal.SIGKILL)
            os.waitpid(running.pid, 0)
            if os.read(running.guarded, 1) != b"!":
                why = "unguarded"
            os.close(running.guarded)
            if not why and (why := _usage(running)):
                reason = index
            folders.sweep(running.scratch)
        return {"why": why, "child": reason}

    def serve(self) -> None:
        """Take jobs until the caller closes the socket or dies."""
        self.control.send(b"ready")
        while self.caller not in select.select([self.control, self.caller], [], [])[0]:
            message, fds, _, _ = socket.recv_fds(self.control, 4096, 6)
            if not message:
                break
            report = self._job(json.loads(message), fds)
            with contextlib.suppress(OSError):
                self.control.send(json.dumps(report).encode())
        folders.sweep(self.base)


def main() -> None:
    """Start from the command line: control socket, caller's pidfd, options as JSON."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # short of memory, the machine ends programs before it ends the caller
    for name in PRELOAD:
        __import__(name)
    server = Server(int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))
    os.dup2(1, 2)
    server.serve()
