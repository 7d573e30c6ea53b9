"""Trusted functions on untrusted data: each call runs in a new guarded process.

For libraries that may take forever, or all memory, on a stranger's text: parsers, computer algebra.
"""

import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from codesandbox.guarded import wire
from codesandbox.pool import JobResult, Limits, Pool, SandboxError
from codesandbox.worker import WorkerPool

GUARDED = 2  # the level of programs
LIMITS_ONLY = 1


@dataclass(frozen=True)
class Answer:
    """Result of a call: `why` is empty and `value` is the function's, or `why` says what failed."""

    value: bool | str | None = None
    why: str = ""  # timeout, memory, output, error; lost where the machine failed
    detail: str = ""


class Trusted:
    """The function named `module:function`, in servers that import it and call it once per `warm`.

    The function takes plain data and returns a bool, a string or None. It may read every folder on
    `sys.path`. Its processes are guarded as programs are at level 2, or by limits only where the
    kernel cannot. `limits` (see `Limits`) hold for each call; a call that gets no processor for
    long is `lost`. On systems other than Linux ordinary processes make the calls, and only wall
    seconds are limited. The first call raises SandboxError where nothing can run.
    """

    def __init__(
        self, function: str, *, warm: Sequence[tuple] = (), **limits: float
    ) -> None:
        self.function = function
        self.warm = warm
        self.limits = Limits(**limits)
        self._pool: Pool | WorkerPool | None = None
        self._lock = threading.Lock()

    def _started(self) -> Pool | WorkerPool:
        with self._lock:
            self._pool = self._pool or self._choose()
            return self._pool

    def _choose(self) -> Pool | WorkerPool:
        """Start servers at the best level at which a process answers."""
        if not sys.platform.startswith("linux"):
            return WorkerPool(self.function, self.warm)
        for level in (GUARDED, LIMITS_ONLY):
            pool = Pool(level, self.function, self.warm)
            # No arguments to unpack: the process answers with an error, without a call.
            if not pool.run(self.limits, [["trusted", None]]).failed:
                return pool
        raise SandboxError(
            f"{self.function}: the processes that call it start but give no answer"
        )

    def __call__(self, *args: object) -> Answer:
        """Call the function in a new process. Raises TypeError if an argument is not plain data."""
        return _answer(
            self._started().run(self.limits, [["trusted", wire.encode(args)]])
        )


def _answer(result: JobResult) -> Answer:
    if result.failed:
        return Answer(why="lost", detail=result.why)
    if result.why:
        why = result.why if result.why in ("timeout", "output") else "error"
        return Answer(why=why, detail="over the limit")
    match result.frames[0]:
        case [["v", bool() | str() | None as value], ["end"]]:
            return Answer(value)
        case [["x", str(name), str(text)]]:
            why = "memory" if name == "MemoryError" else "error"
            return Answer(why=why, detail=f"{name}: {text}")
    return Answer(why="error", detail="no bool, text or None")
