"""What a child may not do: resource limits, no privileges, Landlock for files, seccomp for system calls.

Plain ctypes, no package. Everything is inherited by what the child starts and cannot be undone. Linux only.
"""

import ctypes
import os
import platform
import resource
import signal
import struct
import sys
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == "x86_64"
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}.get(platform.machine())
NO_NEW_PRIVS, PDEATHSIG, CAPBSET_DROP = 38, 1, 24  # of prctl
UID = 64123  # nobody's: what root becomes
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
SECCOMP, CAPSET = (317, 126) if X86 else (277, 91)
READ, WRITE = 1 << 2 | 1 << 3, 1 << 1 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 14  # no links, no device nodes
ON_A_FILE = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14
FILES_MB, OPEN_FILES, STACK_MB = 16, 64, 64
THREADS = 64
ANY_PID = 0x7EADBEEF  # stands for the child's own number until that is known
LOAD, EQUAL, ANY_BIT, GIVE = 0x20, 0x15, 0x45, 0x06  # instructions of a filter
PERMIT, DENY, ABSENT, KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000  # allow, EPERM, ENOSYS, kill
TABLE = Path(__file__).with_name("syscalls.txt")


def _unless(condition: str) -> list[tuple[int, int, int, int]]:
    """Instructions that refuse a call unless a condition of the table holds."""
    compare = {"=": EQUAL, "&": ANY_BIT}[condition[1]]
    values = [ANY_PID if value == "PID" else int(value, 16) for value in condition[2:].split(",")]
    tests = [(compare, len(values) - i, 0, value) for i, value in enumerate(values)]
    return [(LOAD, 0, 0, 16 + 8 * int(condition[0])), *tests, (GIVE, 0, 0, DENY)]


def _filter() -> bytes:
    """Return the seccomp program of process ANY_PID: lines of code, jump if true, jump if false, value."""
    program = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, ARCH), (GIVE, 0, 0, KILL), (LOAD, 0, 0, 0)]
    program += [(EQUAL, 0, 1, 435), (GIVE, 0, 0, ABSENT)]  # clone3 hides its flags from us; libc falls back to clone
    for text in filter(None, (text.partition("#")[0] for text in TABLE.read_text().splitlines())):
        _, x86, arm, *conditions = text.split()
        if (number := x86 if X86 else arm) != "-":
            block = [line for condition in conditions for line in _unless(condition)]
            program += [(EQUAL, 0, len(block) + 1, int(number)), *block, (GIVE, 0, 0, PERMIT)]
    program.append((GIVE, 0, 0, DENY))
    return b"".join(struct.pack("HBBI", *line) for line in program)


FILTER = _filter() if ARCH else b""  # made once, before any fork; the kernel refuses an empty one


def _checked(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what} failed")
    return result


def _landlock(paths: list[str], scratch: str) -> None:
    """Forbid every file but the readable ones, the scratch folder and /dev/null; TCP and signals where it can."""
    version = _checked(LIBC.syscall(LANDLOCK_CREATE, None, 0, 1), "Landlock")
    known = (1 << 13) - 1 | (version >= 2) << 13 | (version >= 3) << 14 | (version >= 5) << 15
    attributes = struct.pack("QQQ", known, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 8 if version < 4 else 16 if version < 6 else 24  # each kernel refuses fields it does not know
    rules = _checked(LIBC.syscall(LANDLOCK_CREATE, attributes, size, 0), "Landlock")
    for path in filter(os.path.exists, [*paths, scratch, "/dev/null"]):
        at = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rights = known & (READ | WRITE if path in (scratch, "/dev/null") else READ)
        rights &= known if os.path.isdir(path) else ON_A_FILE
        _checked(LIBC.syscall(LANDLOCK_ADD, rules, 1, struct.pack("=Qi", rights, at), 0), "Landlock")
    _checked(LIBC.syscall(LANDLOCK_RESTRICT, rules, 0), "Landlock")


def _seccomp() -> None:
    data = FILTER.replace(struct.pack("I", ANY_PID), struct.pack("I", os.getpid()))
    lines = ctypes.create_string_buffer(data, len(data))
    header = struct.pack("HxxxxxxQ", len(data) // 8, ctypes.addressof(lines))
    _checked(LIBC.syscall(SECCOMP, 1, 0, header), "seccomp")


def others_reach(path: str) -> bool:
    """Whether any user may walk to this folder, so that a process that has given up root still finds it."""
    at = Path(path).resolve()
    return all(folder.stat().st_mode & 0o001 for folder in (at, *at.parents))


def readable() -> list[str]:
    """Folders that programs may read: the interpreter's own and the system's libraries, nothing of a person."""
    system = """/usr/lib /usr/lib64 /lib /lib64 /usr/local/lib /usr/share/zoneinfo
        /etc/localtime /etc/ld.so.cache /dev/urandom /dev/zero""".split()
    return [*system, os.path.dirname(os.__file__), os.path.join(sys.base_prefix, "lib")]


def give_up(uid: int | None) -> None:
    """Give up every privilege for good, and die with the parent.

    Root becomes `uid`; None (nobody else could read the interpreter): it stays, without any capability.
    """
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    elif os.geteuid() == 0:
        for capability in range(64):
            LIBC.prctl(CAPBSET_DROP, capability, 0, 0, 0)
        _checked(LIBC.syscall(CAPSET, struct.pack("Ii", 0x20080522, 0), bytes(24)), "capset")
    LIBC.prctl(PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # after the change of user, which clears it
    _checked(LIBC.prctl(NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def enter(level: int, scratch: str, paths: list[str], uid: int | None, cpu: float, memory_mb: int) -> None:
    """Guard this process for good, after `give_up`. Raises OSError where the kernel cannot; the caller must then stop.

    `level` 1 sets limits only. `uid` is whom root became. The kernel's own CPU limit is for what
    escapes the server. The hard memory limit leaves room to report a MemoryError.
    """
    mega = 1 << 20
    limits = {
        resource.RLIMIT_CPU: int(cpu) + 10,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_AS: (memory_mb + 64) * mega,
        resource.RLIMIT_FSIZE: FILES_MB * mega,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_STACK: STACK_MB * mega,
    }
    if uid is not None:
        limits[resource.RLIMIT_NPROC] = THREADS  # counts per user: only where the user is ours alone
    for which, most in limits.items():
        _, hard = resource.getrlimit(which)
        most = most if hard == resource.RLIM_INFINITY else min(hard, most)
        resource.setrlimit(which, (min(most, memory_mb * mega) if which == resource.RLIMIT_AS else most, most))
    if level >= 2:
        _landlock(paths, scratch)
        _seccomp()
