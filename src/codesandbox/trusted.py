"""A function of a trusted module, called with untrusted data: each call in a guarded process of its own.

For libraries that may take forever, or all memory, on what a stranger wrote: parsers, computer algebra.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from codesandbox.guarded import wire
from codesandbox.pool import Limits, Pool, SandboxError


@dataclass(frozen=True)
class Answer:
    """What a call gave: `why` is empty and `value` what the function returned, or `why` says why there is none."""

    value: bool | str | None = None
    why: str = ""  # timeout, memory, output, error; lost where the machine failed
    detail: str = ""


class Trusted:
    """The function named `module:function`, in servers that have imported it and called it with `warm` once.

    The function takes plain data and returns a bool, a text or None. It may read whatever `sys.path` names. Where the
    kernel can, a process is guarded as programs are at level 2, else by limits only. `limits` (see `Limits`) hold for
    each call; a call that has no processor for long is `lost`. Raises SandboxError, at the first call, where nothing
    can run.
    """

    def __init__(self, function: str, *, warm: Sequence[tuple] = (), **limits: float) -> None:
        self.function, self.warm, self.limits = function, warm, Limits(**limits)
        self._pool: Pool | None = None
        self._lock = threading.Lock()

    def _started(self) -> Pool:
        with self._lock:
            self._pool = self._pool or self._choose()
            return self._pool

    def _choose(self) -> Pool:
        for level in (2, 1):
            pool = Pool(level, self.function, self.warm)
            if not pool.run(self.limits, [["trusted", None]]).failed:
                return pool
        raise SandboxError(f"{self.function}: the processes that call it start but give no answer")

    def __call__(self, *args: object) -> Answer:
        """Call the function in a process of its own. Raises TypeError where an argument is not plain data."""
        ran = self._started().run(self.limits, [["trusted", wire.encode(args)]])
        if ran.failed:
            return Answer(why="lost", detail=ran.why)
        if ran.why:
            return Answer(why=ran.why if ran.why in ("timeout", "output") else "error", detail="over the limit")
        match ran.frames[0]:
            case [["v", bool() | str() | None as value], ["end"]]:
                return Answer(value)
            case [["x", str(name), str(text)]]:
                return Answer(why="memory" if name == "MemoryError" else "error", detail=f"{name}: {text}")
        return Answer(why="error", detail="no bool, text or None")
