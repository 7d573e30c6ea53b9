"""A trusted function in ordinary processes, for systems without Landlock and seccomp.

Only time is bounded: a call that takes too long ends with its process. The function is ours and its
arguments are data, so no program of a model runs.
"""

import atexit
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module

from codesandbox.guarded import wire
from codesandbox.pool import JobResult, Limits, SandboxError

BOOTSTRAP = "from codesandbox.worker import main; main()"
STARTUP_SECONDS = 120.0
READY = wire.encode_frame("ready")
ENDED = b""


class Worker:
    """A process that imports a function and answers calls, a line each.

    Raises SandboxError if it does not start.
    """

    def __init__(self, function: str, warm: Sequence[tuple]) -> None:
        folders = [path for path in sys.path if os.path.isdir(path)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", BOOTSTRAP, function, json.dumps(warm)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(folders)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()
        if self._next_line(STARTUP_SECONDS) != READY:
            self.stop()
            raise SandboxError(f"{function}: the process that calls it does not start")

    def _listen(self) -> None:
        """Queue every line that the process writes, and ENDED after the last one."""
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(ENDED)

    def _next_line(self, seconds: float) -> bytes | None:
        """Return the next line, ENDED after the last one, None if it takes longer."""
        try:
            return self.lines.get(timeout=seconds)
        except queue.Empty:
            return None

    def ask(self, arguments: object, seconds: float) -> bytes | None:
        """Call the function with encoded arguments; return what `_next_line` returns."""
        try:
            self.process.stdin.write(wire.encode_frame("call", arguments))
            self.process.stdin.flush()
        except OSError:  # the process has ended
            return ENDED
        return self._next_line(seconds)

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        with suppress(OSError):
            self.process.stdin.close()


class WorkerPool:
    """Workers of one function, as many as processors at most, started when needed.

    A worker serves calls until one of them takes too long.
    """

    def __init__(self, function: str, warm: Sequence[tuple]) -> None:
        self.function = function
        self.warm = warm
        self.idle: list[Worker] = []
        self.free = threading.Semaphore(os.cpu_count() or 1)
        atexit.register(self.close)

    def run(self, limits: Limits, job: list[list]) -> JobResult:
        """Make one call as `Pool.run` does, within the limit of wall seconds."""
        (_, arguments), *_ = job
        with self.free:
            worker = self.idle.pop() if self.idle else None
            if worker is None or worker.process.poll() is not None:
                worker = Worker(self.function, self.warm)
            line = worker.ask(arguments, limits.wall_seconds)
            if line is None or line == ENDED:
                worker.stop()
            else:
                self.idle.append(worker)
        if line is None:
            return JobResult(why="timeout", child=0, frames=[[]])
        frames = [] if line == ENDED else [wire.decode_frame(line), ["end"]]
        return JobResult(why="", child=0, frames=[frames])

    def close(self) -> None:
        """Stop the idle workers."""
        while self.idle:
            self.idle.pop().stop()


def answer(function: Callable, arguments: object) -> bytes:
    """Return the frame of a call's result, or of the exception that it raised."""
    try:
        value = function(*wire.decode(arguments))
        return wire.encode_frame("v", wire.encode(value))
    except Exception as error:  # noqa: BLE001 whatever it raises is its answer
        return wire.encode_frame("x", type(error).__name__, str(error)[:300])


def main() -> None:
    """Import the named function, call it once for each warm-up, then answer calls on stdin."""
    module, _, name = sys.argv[1].partition(":")
    sink = sys.stdout.buffer
    sys.stdout = sys.stderr  # what the function prints is no answer
    function = getattr(import_module(module), name)
    for arguments in json.loads(sys.argv[2]):
        function(*arguments)
    sink.write(READY)
    sink.flush()
    for line in sys.stdin.buffer:
        _, arguments = wire.decode_frame(line)
        sink.write(answer(function, arguments))
        sink.flush()
