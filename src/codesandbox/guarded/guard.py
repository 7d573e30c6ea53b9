"""Restrict a child process: resource limits, no privileges, Landlock for files, seccomp for calls.

Plain ctypes, no package. Whatever the child starts inherits every restriction, and none can be
undone. Linux only.
"""

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LIBC = ctypes.CDLL(None, use_errno=True)
IS_X86 = platform.machine() == "x86_64"
# AUDIT_ARCH_X86_64 and AUDIT_ARCH_AARCH64 of <linux/audit.h>.
AUDIT_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ARCHITECTURE = AUDIT_ARCHITECTURES.get(platform.machine())

# Numbers of system calls that libc does not wrap.
LANDLOCK_CREATE = 444
LANDLOCK_ADD_RULE = 445
LANDLOCK_RESTRICT_SELF = 446
SECCOMP = 317 if IS_X86 else 277
CAPSET = 126 if IS_X86 else 91
CLONE3 = 435

# Options of prctl, and the version that capset expects.
PR_SET_PDEATHSIG = 1
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
LINUX_CAPABILITY_VERSION_3 = 0x20080522
MAX_CAPABILITIES = 64

# Access rights of <linux/landlock.h>. Version 1 of Landlock knows the first 13.
VERSION_1_RIGHTS = (1 << 13) - 1
EXECUTE = 1 << 0
WRITE_FILE = 1 << 1
READ_FILE = 1 << 2
READ_DIR = 1 << 3
REMOVE_DIR = 1 << 4
REMOVE_FILE = 1 << 5
MAKE_DIR = 1 << 7
MAKE_REGULAR = 1 << 8
REFER = 1 << 13  # to link or rename between folders
TRUNCATE = 1 << 14
IOCTL_DEVICE = 1 << 15
TCP_BIND_AND_CONNECT = 0b11
SCOPE_SOCKETS_AND_SIGNALS = 0b11
READ = READ_FILE | READ_DIR
CHANGE_ENTRIES = (
    REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REGULAR
)  # no links, no device nodes
WRITE = WRITE_FILE | TRUNCATE | CHANGE_ENTRIES
FILE_RIGHTS = (
    EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE
)  # the others exist for folders only
LANDLOCK_CREATE_RULESET_VERSION = 1
LANDLOCK_RULE_PATH_BENEATH = 1

# Opcodes of the classic Berkeley Packet Filter (BPF), from <linux/bpf_common.h>.
LOAD_WORD = 0x20  # BPF_LD | BPF_W | BPF_ABS: read 32 bits of struct seccomp_data
JUMP_IF_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
JUMP_IF_ANY_BIT = 0x45  # BPF_JMP | BPF_JSET | BPF_K
RETURN = 0x06  # BPF_RET | BPF_K

# Offsets in struct seccomp_data, which describes a system call to the filter.
CALL_NUMBER_OFFSET = 0
ARCHITECTURE_OFFSET = 4
ARGUMENTS_OFFSET = 16
ARGUMENT_BYTES = 8

# What the filter returns, from <linux/seccomp.h>: the call runs, fails with an errno, or kills.
ALLOW = 0x7FFF0000
FAIL_WITH = 0x00050000
DENY = FAIL_WITH | errno.EPERM
REPORT_MISSING = FAIL_WITH | errno.ENOSYS
KILL_PROCESS = 0x80000000
SECCOMP_SET_MODE_FILTER = 1

MIB = 1 << 20
MAX_FILE_MB = 16
MAX_OPEN_FILES = 64
STACK_MB = 64
MAX_THREADS = 64
MEMORY_ERROR_MB = (
    64  # beyond the soft limit, so that a MemoryError can still be reported
)
EXTRA_CPU_SECONDS = 10
UNPRIVILEGED_UID = 64123  # belongs to no account; root becomes this user
PID_PLACEHOLDER = 0x7EADBEEF  # in the filter, until the child knows its own process id
SYSCALL_TABLE = Path(__file__).with_name("syscalls.txt")


class Instruction(NamedTuple):
    """One instruction of a seccomp filter: struct sock_filter of <linux/filter.h>."""

    opcode: int
    skip_if_true: int  # how many instructions a jump skips when its comparison holds
    skip_if_false: int
    operand: (
        int  # an offset to load from, a value to compare with, or an action to return
    )

    def packed(self) -> bytes:
        """Encode the instruction as the kernel reads it: 8 bytes."""
        return struct.pack("HBBI", *self)


class Condition(NamedTuple):
    """A condition of the table: an argument of the call passes one of several comparisons."""

    argument: int  # counted from 0
    comparison: int  # JUMP_IF_EQUAL or JUMP_IF_ANY_BIT
    values: list[int]


class AllowedCall(NamedTuple):
    """A line of the table: a system call that is allowed where all its conditions hold."""

    number: int
    conditions: list[Condition]


def _load(offset: int) -> Instruction:
    return Instruction(LOAD_WORD, 0, 0, offset)


def _return(action: int) -> Instruction:
    return Instruction(RETURN, 0, 0, action)


def _condition(text: str) -> Condition:
    """Parse a condition such as `0=PID`, `1=0,3` or `0&10000`; values are hexadecimal."""
    comparisons = {"=": JUMP_IF_EQUAL, "&": JUMP_IF_ANY_BIT}
    values = []
    for value in text[2:].split(","):
        values.append(PID_PLACEHOLDER if value == "PID" else int(value, 16))
    return Condition(int(text[0]), comparisons[text[1]], values)


def _allowed_calls() -> Iterator[AllowedCall]:
    """Read the system calls of this machine's architecture from the table."""
    for line in SYSCALL_TABLE.read_text().splitlines():
        code, _, _ = line.partition("#")
        if not code:
            continue
        _, x86_number, arm_number, *conditions = code.split()
        number = x86_number if IS_X86 else arm_number
        if number != "-":
            yield AllowedCall(int(number), [_condition(text) for text in conditions])


def _deny_unless(condition: Condition) -> list[Instruction]:
    """Return instructions that deny a call unless its argument meets the condition.

    They compare the low 32 bits of the argument, which come first on both architectures.
    """
    instructions = [_load(ARGUMENTS_OFFSET + ARGUMENT_BYTES * condition.argument)]
    for index, value in enumerate(condition.values):
        past_the_denial = len(condition.values) - index
        instructions.append(
            Instruction(condition.comparison, past_the_denial, 0, value)
        )
    instructions.append(_return(DENY))
    return instructions


def _filter(architecture: int) -> bytes:
    """Build the seccomp filter for a process whose id is PID_PLACEHOLDER."""
    instructions = [
        # A call by another architecture's numbers would mean something else than the table says.
        _load(ARCHITECTURE_OFFSET),
        Instruction(JUMP_IF_EQUAL, 1, 0, architecture),
        _return(KILL_PROCESS),
        _load(CALL_NUMBER_OFFSET),
        # clone3 keeps its flags in memory that no filter can read. Without it libc calls clone.
        Instruction(JUMP_IF_EQUAL, 0, 1, CLONE3),
        _return(REPORT_MISSING),
    ]
    for call in _allowed_calls():
        checks = []
        for condition in call.conditions:
            checks += _deny_unless(condition)
        past_this_call = len(checks) + 1
        instructions.append(Instruction(JUMP_IF_EQUAL, 0, past_this_call, call.number))
        instructions += checks
        instructions.append(_return(ALLOW))
    instructions.append(_return(DENY))
    return b"".join(instruction.packed() for instruction in instructions)


# Built once, before any fork. Empty on an unknown architecture; the kernel refuses an empty filter.
FILTER = _filter(ARCHITECTURE) if ARCHITECTURE else b""


def _checked(result: int, call: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{call} failed")
    return result


def _handled_rights(version: int) -> int:
    """Return every right to files that this version of Landlock can forbid."""
    rights = VERSION_1_RIGHTS
    if version >= 2:
        rights |= REFER
    if version >= 3:
        rights |= TRUNCATE
    if version >= 5:
        rights |= IOCTL_DEVICE
    return rights


def _create_ruleset(version: int) -> int:
    """Create a ruleset that forbids all that it handles, and return its file descriptor."""
    fields = [_handled_rights(version)]
    if version >= 4:  # older kernels refuse fields that they do not know
        fields.append(TCP_BIND_AND_CONNECT)
    if version >= 6:
        fields.append(SCOPE_SOCKETS_AND_SIGNALS)
    attributes = struct.pack(f"{len(fields)}Q", *fields)
    ruleset = LIBC.syscall(LANDLOCK_CREATE, attributes, len(attributes), 0)
    return _checked(ruleset, "Landlock")


def _landlock(paths: list[str], scratch: str) -> None:
    """Forbid every file but `paths` to read, and the scratch folder and /dev/null to write.

    Where the kernel can, TCP and signals to other processes are forbidden too.
    """
    version = LIBC.syscall(LANDLOCK_CREATE, None, 0, LANDLOCK_CREATE_RULESET_VERSION)
    handled = _handled_rights(_checked(version, "Landlock"))
    ruleset = _create_ruleset(version)
    writable = (scratch, "/dev/null")
    for path in filter(os.path.exists, [*paths, *writable]):
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rights = READ | WRITE if path in writable else READ
        if not os.path.isdir(path):
            rights &= FILE_RIGHTS
        rule = struct.pack("=Qi", rights & handled, parent)
        added = LIBC.syscall(
            LANDLOCK_ADD_RULE, ruleset, LANDLOCK_RULE_PATH_BENEATH, rule, 0
        )
        _checked(added, "Landlock")
    _checked(LIBC.syscall(LANDLOCK_RESTRICT_SELF, ruleset, 0), "Landlock")


def _seccomp() -> None:
    """Install the filter, with this process's own id in it."""
    placeholder = struct.pack("I", PID_PLACEHOLDER)
    data = FILTER.replace(placeholder, struct.pack("I", os.getpid()))
    instructions = ctypes.create_string_buffer(data, len(data))
    # struct sock_fprog: number of instructions, padding, address of the first.
    program = struct.pack("HxxxxxxQ", len(data) // 8, ctypes.addressof(instructions))
    _checked(LIBC.syscall(SECCOMP, SECCOMP_SET_MODE_FILTER, 0, program), "seccomp")


def any_user_reaches(path: str) -> bool:
    """Whether any user may walk to this folder, also a process that has given up root."""
    folder = Path(path).resolve()
    return all(
        ancestor.stat().st_mode & 0o001 for ancestor in (folder, *folder.parents)
    )


def readable_paths() -> list[str]:
    """Return what programs may read: the interpreter and the system's libraries, no user's data."""
    system = [
        "/usr/lib",
        "/usr/lib64",
        "/lib",
        "/lib64",
        "/usr/local/lib",
        "/usr/share/zoneinfo",
        "/etc/localtime",
        "/etc/ld.so.cache",
        "/dev/urandom",
        "/dev/zero",
    ]
    return [*system, os.path.dirname(os.__file__), os.path.join(sys.base_prefix, "lib")]


def drop_privileges(uid: int | None) -> None:
    """Give up every privilege for good, and make this process die with its parent.

    Root becomes user `uid`. With None, for an interpreter that only root can read, root stays
    root without any capability. Raises OSError if the kernel refuses.
    """
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    elif os.geteuid() == 0:
        for capability in range(MAX_CAPABILITIES):
            LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
        header = struct.pack("Ii", LINUX_CAPABILITY_VERSION_3, 0)
        no_capabilities = bytes(24)
        _checked(LIBC.syscall(CAPSET, header, no_capabilities), "capset")
    # Only now: a change of user clears the signal.
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    _checked(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def _limit_resources(uid: int | None, cpu_seconds: float, memory_mb: int) -> None:
    limits = {
        # The server ends a program earlier; the kernel's limit stops one that the server misses.
        resource.RLIMIT_CPU: int(cpu_seconds) + EXTRA_CPU_SECONDS,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_AS: (memory_mb + MEMORY_ERROR_MB) * MIB,
        resource.RLIMIT_FSIZE: MAX_FILE_MB * MIB,
        resource.RLIMIT_NOFILE: MAX_OPEN_FILES,
        resource.RLIMIT_STACK: STACK_MB * MIB,
    }
    if uid is not None:
        # The kernel counts per user, so only a user without other processes can be limited.
        limits[resource.RLIMIT_NPROC] = MAX_THREADS
    for kind, limit in limits.items():
        _, inherited = resource.getrlimit(kind)
        hard = limit if inherited == resource.RLIM_INFINITY else min(inherited, limit)
        soft = hard
        if kind == resource.RLIMIT_AS:
            soft = min(hard, memory_mb * MIB)
        resource.setrlimit(kind, (soft, hard))


def restrict(
    level: int,
    scratch: str,
    paths: list[str],
    uid: int | None,
    cpu_seconds: float,
    memory_mb: int,
) -> None:
    """Restrict this process for good, after `drop_privileges`.

    `level` 1 sets resource limits only; 2 and 3 add Landlock and seccomp. `scratch` is the one
    folder to write in, `paths` may be read, `uid` is the user that root became. Raises OSError
    where the kernel cannot; the caller must then stop.
    """
    _limit_resources(uid, cpu_seconds, memory_mb)
    if level >= 2:
        _landlock(paths, scratch)
        _seccomp()
