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
from collections.abc import Iterable

LIBC = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == "x86_64"
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}.get(platform.machine())
NO_NEW_PRIVS, PDEATHSIG, CAPBSET_DROP = 38, 1, 24
UID = 64123  # nobody's: what root becomes
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
SECCOMP, CAPSET = (317, 126) if X86 else (277, 91)
READ, WRITE = 1 << 2 | 1 << 3, 1 << 1 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 14  # no links, no device nodes
ON_A_FILE = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14
FILES_MB, OPEN_FILES, STACK_MB = 16, 64, 64
THREADS = 64
ANY_PID = 0x7EADBEEF  # stands for the child's own number until that is known
LOAD, EQUAL, ABOVE, AT_LEAST, ANY_BIT, GIVE = 0x20, 0x15, 0x25, 0x35, 0x45, 0x06  # instructions of a filter
PERMIT, DENY, ABSENT, KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000  # allow, EPERM, ENOSYS, kill

# System calls that are allowed whatever their arguments: name, number on x86_64, number on aarch64 (- has none).
# Missing on purpose: whatever starts or signals processes, opens sockets, mounts, traces or changes owners and modes.
TABLE = """
read 0 63  write 1 64  open 2 -  close 3 57  stat 4 -  fstat 5 80  lstat 6 -  poll 7 -  lseek 8 62  mmap 9 222
mprotect 10 226  munmap 11 215  brk 12 214  rt_sigaction 13 134  rt_sigprocmask 14 135  rt_sigreturn 15 139
pread64 17 67  pwrite64 18 68  readv 19 65  writev 20 66  access 21 -  pipe 22 -  select 23 -
sched_yield 24 124  mremap 25 216  msync 26 227  mincore 27 232  madvise 28 233  dup 32 23  dup2 33 -
pause 34 -  nanosleep 35 101  getitimer 36 102  alarm 37 -  setitimer 38 103  getpid 39 172  sendfile 40 71
sendto 44 206  recvfrom 45 207  shutdown 48 210  getsockname 51 204  getpeername 52 205  getsockopt 55 209
exit 60 93  wait4 61 260  uname 63 160  flock 73 32  fsync 74 82  fdatasync 75 83  ftruncate 77 46
getdents 78 -  getcwd 79 17  chdir 80 49  fchdir 81 50  rename 82 -  mkdir 83 -  rmdir 84 -  creat 85 -
unlink 87 -  readlink 89 -  umask 95 166  gettimeofday 96 169  getrlimit 97 163  getrusage 98 165
sysinfo 99 179  times 100 153  getuid 102 174  getgid 104 176  geteuid 107 175  getegid 108 177
getppid 110 173  getpgrp 111 -  getgroups 115 158  getpgid 121 155  getsid 124 156  rt_sigpending 127 136
rt_sigtimedwait 128 137  rt_sigsuspend 130 133  sigaltstack 131 132  statfs 137 43  fstatfs 138 44
getpriority 140 141  sched_getparam 143 121  sched_getscheduler 145 120  sched_get_priority_max 146 125
sched_get_priority_min 147 126  gettid 186 178  time 201 -  futex 202 98  sched_getaffinity 204 123
epoll_create 213 -  getdents64 217 61  set_tid_address 218 96  clock_gettime 228 113  clock_getres 229 114
clock_nanosleep 230 115  exit_group 231 94  epoll_wait 232 -  epoll_ctl 233 21  openat 257 56  mkdirat 258 34
newfstatat 262 79  unlinkat 263 35  renameat 264 38  readlinkat 267 78  faccessat 269 48  pselect6 270 72
ppoll 271 73  set_robust_list 273 99  get_robust_list 274 100  epoll_pwait 281 22  eventfd 284 -
fallocate 285 47  eventfd2 290 19  epoll_create1 291 20  dup3 292 24  pipe2 293 59  getcpu 309 168
renameat2 316 276  getrandom 318 278  membarrier 324 283  copy_file_range 326 285  statx 332 291  rseq 334 293
close_range 436 436  faccessat2 439 439  epoll_pwait2 441 441
"""


def _halved(numbers: list[int]) -> list[tuple[int, int, int, int]]:
    """Instructions that permit these system calls, sorted, found by halving, and deny all others.

    The kernel tries a new filter on every system call there is, for every child: a chain of comparisons takes it more
    than twice as long.
    """
    if not numbers:
        return [(GIVE, 0, 0, DENY)]
    low = high = len(numbers) // 2
    while low and numbers[low - 1] == numbers[low] - 1:
        low -= 1
    while high + 1 < len(numbers) and numbers[high + 1] == numbers[high] + 1:
        high += 1
    below, above = _halved(numbers[:low]), _halved(numbers[high + 1 :])
    test = [(AT_LEAST, 0, 2 + len(above), numbers[low]), (ABOVE, 1, 0, numbers[high]), (GIVE, 0, 0, PERMIT)]
    return test + above + below


def _filter() -> bytes:
    """Return the seccomp program of process ANY_PID: an allow-list, with arguments checked where they matter."""
    program: list[tuple[int, int, int, int]] = []

    def line(code: int, value: int, yes: int = 0, no: int = 0) -> None:
        program.append((code, yes, no, value))

    def only(number: int, *tests: tuple[int, int, tuple[int, ...]]) -> None:
        # `tests` are (comparison, argument word, accepted values); each must hold or the call is refused.
        block: list[tuple[int, int, int, int]] = []
        for comparison, word, values in tests:
            block.append((LOAD, 0, 0, 16 + 4 * word))
            block += [(comparison, len(values) - i, 0, value) for i, value in enumerate(values)]
            block.append((GIVE, 0, 0, DENY))
        block.append((GIVE, 0, 0, PERMIT))
        line(EQUAL, number, 0, len(block))
        program.extend(block)

    line(LOAD, 4)
    line(EQUAL, ARCH, 1, 0)
    line(GIVE, KILL)
    line(LOAD, 0)
    line(EQUAL, 435, 0, 1)
    line(GIVE, ABSENT)  # clone3 hides its flags from us; libc falls back to clone
    only(56 if X86 else 220, (ANY_BIT, 0, (0x10000,)))  # clone: threads of this process
    for number in (62, 234) if X86 else (129, 131):  # kill, tgkill: this process
        only(number, (EQUAL, 0, (ANY_PID,)))
    only(302 if X86 else 261, (EQUAL, 0, (0, ANY_PID)))  # prlimit64: its own; the hard limits hold
    only(16 if X86 else 29, (EQUAL, 2, (0x5401, 0x5421, 0x5450, 0x5451, 0x541B)))  # ioctl: terminal? block, close
    only(72 if X86 else 25, (EQUAL, 2, (0, 1, 2, 3, 4, 5, 6, 7, 1030)))  # fcntl: no owner, no signal
    only(157 if X86 else 167, (EQUAL, 0, (15,)))  # prctl: name a thread
    stream = (1, 1 | 2048, 1 | 524288, 1 | 526336)  # with or without non-blocking and close-on-exec
    only(53 if X86 else 199, (EQUAL, 0, (1,)), (EQUAL, 2, stream))  # socketpair, for asyncio: unix streams
    fields = TABLE.split()
    program += _halved(sorted(int(number) for number in fields[1 if X86 else 2 :: 3] if number != "-"))
    return b"".join(struct.pack("HBBI", *row) for row in program)


FILTER = _filter() if ARCH else b""  # made once, before any fork


def _checked(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what} failed")
    return result


def opened(paths: Iterable[str]) -> list[tuple[int, bool]]:
    """Handles of those paths that exist, and whether each is a folder: what `enter` takes as readable."""
    return [(os.open(path, os.O_PATH | os.O_CLOEXEC), os.path.isdir(path)) for path in paths if os.path.exists(path)]


def _landlock(readable: list[tuple[int, bool]], scratch: str) -> None:
    """Forbid every file but the readable ones, the scratch folder and /dev/null; TCP and signals where it can."""
    version = _checked(LIBC.syscall(LANDLOCK_CREATE, None, 0, 1), "Landlock")
    known = (1 << 13) - 1 | (version >= 2) << 13 | (version >= 3) << 14 | (version >= 5) << 15
    attributes = struct.pack("QQQ", known, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 8 if version < 4 else 16 if version < 6 else 24  # each kernel refuses fields it does not know
    rules = _checked(LIBC.syscall(LANDLOCK_CREATE, attributes, size, 0), "Landlock")
    handles = [(handle, READ) for handle in readable]
    handles += [(handle, READ | WRITE) for handle in opened((scratch, "/dev/null"))]
    for (at, folder), rights in handles:
        rights &= known if folder else known & ON_A_FILE
        _checked(LIBC.syscall(LANDLOCK_ADD, rules, 1, struct.pack("=Qi", rights, at), 0), "Landlock")
    _checked(LIBC.syscall(LANDLOCK_RESTRICT, rules, 0), "Landlock")


def _seccomp() -> None:
    data = FILTER.replace(struct.pack("I", ANY_PID), struct.pack("I", os.getpid()))
    lines = ctypes.create_string_buffer(data, len(data))
    header = struct.pack("HxxxxxxQ", len(data) // 8, ctypes.addressof(lines))
    _checked(LIBC.syscall(SECCOMP, 1, 0, header), "seccomp")


def others_reach(path: str) -> bool:
    """Whether any user may walk to this path, so that a process that has given up root still finds it."""
    path = os.path.realpath(path)
    while os.stat(path).st_mode & 0o001:
        if path == os.path.dirname(path):
            return True
        path = os.path.dirname(path)
    return False


def readable() -> list[str]:
    """Folders that programs may read: the interpreter's own and the system's libraries, nothing of a person."""
    return [
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
        os.path.dirname(os.__file__),
        os.path.join(sys.base_prefix, "lib"),
    ]


def give_up(uid: int | None) -> None:
    """Give up every privilege for good, and die with the parent.

    Root becomes `uid`; None (nobody else could read the interpreter): it stays, without any capability.
    """
    if os.geteuid() == 0:
        _give_up_root(uid)
    LIBC.prctl(PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # after the change of user, which clears it
    _checked(LIBC.prctl(NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def _give_up_root(uid: int | None) -> None:
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        return
    for capability in range(64):
        LIBC.prctl(CAPBSET_DROP, capability, 0, 0, 0)
    _checked(LIBC.syscall(CAPSET, struct.pack("Ii", 0x20080522, 0), bytes(24)), "capset")


def enter(level: int, scratch: str, paths: list[tuple[int, bool]], uid: int | None, cpu: float, memory_mb: int) -> None:
    """Guard this process for good, after `give_up`. Raises OSError where the kernel cannot; the caller must then stop.

    `level` 1 sets limits only. `uid` is whom root became. The kernel's own CPU limit comes late: the server looks more
    often. The hard memory limit leaves room to report a MemoryError.
    """
    mega = 1 << 20
    limits = {
        resource.RLIMIT_CPU: (int(cpu) + 2, int(cpu) + 2),
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_AS: (memory_mb * mega, (memory_mb + 64) * mega),
        resource.RLIMIT_FSIZE: (FILES_MB * mega,) * 2,
        resource.RLIMIT_NOFILE: (OPEN_FILES,) * 2,
        resource.RLIMIT_STACK: (STACK_MB * mega,) * 2,
    }
    if uid is not None:
        limits[resource.RLIMIT_NPROC] = (THREADS, THREADS)  # counts per user: only where the user is ours alone
    for which, (soft, hard) in limits.items():
        most = resource.getrlimit(which)[1]
        most = hard if most == resource.RLIM_INFINITY else min(hard, most)
        resource.setrlimit(which, (min(soft, most), most))
    if level >= 2:
        if ARCH is None:
            raise OSError(f"no table of system calls for {platform.machine()}")
        _landlock(paths, scratch)
        _seccomp()
