"""Which isolation this machine really gives: asked for by name, shown by a self-test, never assumed.

COEVOLVE_SANDBOX is one of NAMES; unset takes the best of `namespaces` and `kernel`, and refuses below.
"""

import os
import shutil
import tempfile
import threading

from codesandbox.guarded import wire
from codesandbox.pool import Limits, Pool, SandboxError

NAMES = {"refuse": 0, "process": 1, "kernel": 2, "namespaces": 3, "external": 4}
VARIABLE = "COEVOLVE_SANDBOX"
PROBES = """
import glob, math, os, socket
def honest(path):
    with open("note.txt", "w") as file: file.write("abc")
    with open("note.txt") as file: return [math.gcd(12, 18), file.read()]
def spin(path):
    while True: pass
def grow(path):
    kept = []
    while True: kept.append(bytearray(1 << 20))
def escape(path):  # what it managed to do to this machine
    done = []
    for name, attempt in {
        "fork": lambda path: os.fork() or os._exit(0), "run": lambda path: os.posix_spawn("/bin/true", ["true"], {}),
        "signal": lambda path: os.kill(os.getppid(), 0), "connect": lambda path: socket.socket(),
        "read": lambda path: open(path).read(), "write": lambda path: open(path + ".new", "w"),
        "mode": lambda path: os.chmod(path, 0o777),
    }.items():
        try: attempt(path)
        except OSError: continue
        done.append(name)
    return done
"""
_pools: dict[str, Pool] = {}
_lock = threading.Lock()


def _probe(pool: Pool, name: str, path: str, **limits: float) -> tuple[str, list]:
    """Why the process of one of the PROBES ended, and the frames it wrote after its start."""
    ran = pool.run(Limits(**limits), [["calls", PROBES, False], ["call", name, wire.encode(((path,), {}))]])
    return ran.why, ran.frames[0][1:] if ran.frames[0][:1] == [["ready"]] else ["no start"]


def reached(pool: Pool) -> int:
    """Level that the servers of this pool really give: 0 when they cannot run or bound even what they should."""
    with tempfile.TemporaryDirectory(prefix="codesandbox-probe-") as folder:
        if os.geteuid() == 0:
            os.chmod(folder, 0o777)  # for the user that programs run as: only the guard is to stop the probe
        path = os.path.join(folder, "probe")
        with open(path, "w"):
            os.chmod(path, 0o666)
        runs = (
            _probe(pool, "honest", path) == ("", [["v", wire.encode([6, "abc"])], ["end"]])
            and _probe(pool, "spin", path, cpu_seconds=0.2) == ("timeout", [])
            and _probe(pool, "grow", path, memory_mb=256) == ("", [["x", "MemoryError", ""], ["end"]])
        )
        guarded = runs and _probe(pool, "escape", path) == ("", [["v", wire.encode([])], ["end"]])
    return pool.level if guarded else int(runs)


def _choose(asked: str) -> Pool:
    why = ""
    for level in {"": (3, 2), "external": (3, 2, 1), "refuse": ()}.get(asked, (NAMES.get(asked),)):
        if level is None or (level == 3 and not shutil.which("bwrap")):
            continue
        pool = Pool(level)
        try:
            if (found := reached(pool)) == level:
                pool.reported = NAMES.get(asked, level)
                return pool
            why = f", its self-test reached level {found} of {level}"
        except OSError as error:
            why = f", {error}"
        pool.close()
    raise SandboxError(
        f"{VARIABLE}={asked!r}: programs written by a model do not run here{why}. Allowed: {', '.join(NAMES)}; "
        f"'process' runs them without protecting files, network and other processes, 'external' says that this whole "
        f"machine is a sandbox already (see docs/verifiers.md)"
    )


def programs() -> Pool:
    """The servers that run programs, started and tested on first use. Raises SandboxError where none may run."""
    asked = os.environ.get(VARIABLE, "")
    with _lock:
        _pools[asked] = _pools.get(asked) or _choose(asked)
        return _pools[asked]
