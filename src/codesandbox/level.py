"""The isolation that this machine gives: chosen by name, shown by a self-test, never assumed.

COEVOLVE_SANDBOX is one of LEVELS; unset takes the better of `namespaces` and `kernel`, and refuses
below these.
"""

import os
import shutil
import tempfile
import threading
from dataclasses import dataclass

from codesandbox.guarded import wire
from codesandbox.pool import Limits, Pool, SandboxError

VARIABLE = "COEVOLVE_SANDBOX"
REFUSE = 0
PROCESS = 1
KERNEL = 2
NAMESPACES = 3
EXTERNAL = 4
LEVELS = {
    "refuse": REFUSE,
    "process": PROCESS,
    "kernel": KERNEL,
    "namespaces": NAMESPACES,
    "external": EXTERNAL,
}
# The levels to try for a name, best first; any other name of LEVELS tries its own level.
CANDIDATES = {
    "": (NAMESPACES, KERNEL),
    "external": (NAMESPACES, KERNEL, PROCESS),
    "refuse": (),
}
PROBES = """
import glob, math, os, socket

def honest(path):
    with open("note.txt", "w") as file:
        file.write("abc")
    with open("note.txt") as file:
        return [math.gcd(12, 18), file.read()]

def spin(path):
    while True:
        pass

def grow(path):
    kept = []
    while True:
        kept.append(bytearray(1 << 20))

def escape(path):  # returns what it managed to do to this machine
    attempts = {
        "fork": lambda: os.fork() or os._exit(0),
        "run": lambda: os.posix_spawn("/bin/true", ["true"], {}),
        "signal": lambda: os.kill(os.getppid(), 0),
        "connect": lambda: socket.socket(),
        "read": lambda: open(path).read(),
        "write": lambda: open(path + ".new", "w"),
        "mode": lambda: os.chmod(path, 0o777),
    }
    succeeded = []
    for name, attempt in attempts.items():
        try:
            attempt()
        except OSError:
            continue
        succeeded.append(name)
    return succeeded
"""
_pools: dict[str, Pool] = {}
_lock = threading.Lock()


@dataclass(frozen=True)
class ProbeOutcome:
    """Why the process of a probe was ended, and the frames that it wrote after its start."""

    why: str
    frames: list


def _returned(value: object) -> ProbeOutcome:
    """Return the outcome of a probe that returned this value and ended by itself."""
    return ProbeOutcome("", [["v", wire.encode(value)], ["end"]])


STOPPED_BY_TIME = ProbeOutcome("timeout", [])
STOPPED_BY_MEMORY = ProbeOutcome("", [["x", "MemoryError", ""], ["end"]])


def _probe(pool: Pool, name: str, path: str, **limits: float) -> ProbeOutcome:
    """Run one of the PROBES."""
    arguments = wire.encode(((path,), {}))
    job = [["calls", PROBES, False], ["call", name, arguments]]
    result = pool.run(Limits(**limits), job)
    frames = result.frames[0]
    if frames[:1] != [["ready"]]:
        return ProbeOutcome(result.why, ["no start"])
    return ProbeOutcome(result.why, frames[1:])


def measured_level(pool: Pool) -> int:
    """Return the level that a pool's servers really give.

    0 if they cannot run programs or do not bound time and memory, 1 if a program can escape.
    """
    with tempfile.TemporaryDirectory(prefix="codesandbox-probe-") as folder:
        if os.geteuid() == 0:
            os.chmod(
                folder, 0o777
            )  # modes allow the probe everything: only the guard stops it
        path = os.path.join(folder, "probe")
        with open(path, "w"):
            os.chmod(path, 0o666)
        bounded = (
            _probe(pool, "honest", path) == _returned([6, "abc"])
            and _probe(pool, "spin", path, cpu_seconds=0.2) == STOPPED_BY_TIME
            and _probe(pool, "grow", path, memory_mb=256) == STOPPED_BY_MEMORY
        )
        if not bounded:
            return REFUSE
        escaped = _probe(pool, "escape", path) != _returned([])
    return PROCESS if escaped else pool.level


def _choose(name: str) -> Pool:
    """Start a pool at the best level that `name` allows and the self-test confirms."""
    candidates = CANDIDATES.get(name)
    if candidates is None:
        candidates = (LEVELS[name],) if name in LEVELS else ()
    reason = ""
    for level in candidates:
        if level == NAMESPACES and not shutil.which("bwrap"):
            continue
        pool = Pool(level)
        try:
            measured = measured_level(pool)
        except OSError as error:
            reason = f", {error}"
        else:
            if measured == level:
                pool.reported = LEVELS.get(name, level)
                return pool
            reason = f", its self-test reached level {measured} of {level}"
        pool.close()
    raise SandboxError(
        f"{VARIABLE}={name!r}: programs written by a model do not run here{reason}. "
        f"Allowed: {', '.join(LEVELS)}; "
        f"'process' runs them without protecting files, network and other processes, "
        f"'external' says that this whole machine is a sandbox already (see docs/verifiers.md)"
    )


def programs() -> Pool:
    """Return the pool that runs programs, started and tested on first use.

    Raises SandboxError where no program may run.
    """
    name = os.environ.get(VARIABLE, "")
    with _lock:
        _pools[name] = _pools.get(name) or _choose(name)
        return _pools[name]
