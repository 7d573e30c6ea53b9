"""The faults of `benchmarks/kills.py`: each starts or resumes a run and disturbs it."""

import contextlib
import os
import random
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from multiprocessing import get_context
from multiprocessing.context import ForkProcess
from pathlib import Path

from coevolve.cli import main as coevolve
from coevolve.runs import checkpoint

# Every sample is recorded, so that every sample can be compared.
FIELDS = [
    "model=tiny-small",
    "steps=4",
    "save_every=1",
    "keep_episodes=1000",
    "eval_items=2",
]
# Audit events of file operations; the first argument of each is a path.
FILE_EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"}
# Longest delay in seconds from a file operation to the kill, so that it can hit native writes.
MAX_DELAY = 0.02
FORK = get_context("fork")


@dataclass
class Target:
    """A run that can be started repeatedly, with the cost of the undisturbed one."""

    method: str
    out: Path
    seconds: float = 0.0
    operations: int = 0

    @property
    def log(self) -> Path:
        """Path of the output of the last start."""
        return self.out.with_suffix(".log")

    @property
    def disk(self) -> Path:
        """Folder with the contents that a power cut leaves: each file as of its last fsync."""
        return self.out.with_suffix(".disk")

    def start(
        self, operation: int = 0, delay: float = 0.0, limit: int = 0, power: bool = True
    ) -> ForkProcess:
        """Start or resume the run in a fork, which saves the import of torch; see `child`."""
        process = FORK.Process(
            target=child, args=(self, operation, delay, limit, power)
        )
        process.start()
        return process


def redirect_output(descriptor: int) -> None:
    """Send the output and the errors of this process to a file descriptor."""
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)


def child(
    target: Target, operation: int, delay: float, limit: int, power: bool
) -> None:
    """Train by the command line; print the number of file operations and the processor seconds.

    The process is killed `delay` seconds after file operation number `operation` (0: never). No
    file may grow beyond `limit` bytes (0: no limit). Without `power`, contents that are forced to
    the disk are copied to `target.disk`.
    """
    operations = count(1)

    def watch(event: str, args: tuple[object, ...]) -> None:
        if event not in FILE_EVENTS or not str(args[0]).startswith(str(target.out)):
            return
        if next(operations) == operation:
            # Unhandled: the kernel kills.
            signal.setitimer(signal.ITIMER_REAL, max(delay, 1e-6))

    if (
        not limit
    ):  # a limit would hold for the log as well; the caller reads a pipe then
        redirect_output(
            os.open(target.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        )
    if not power:
        fsync = os.fsync

        def fsync_and_copy(descriptor: int) -> None:
            fsync(descriptor)
            copy_to_disk(target, Path(f"/proc/self/fd/{descriptor}").resolve())

        os.fsync = fsync_and_copy
    # A background job ignores it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    sys.addaudithook(watch)
    arguments = ["train", target.method, "--preset", "smoke", "--out", str(target.out)]
    code = coevolve([*arguments, *FIELDS])
    print(next(operations) - 1, time.process_time(), flush=True)
    sys.exit(code)


def by_clock(number: int, target: Target, rng: random.Random) -> bool:
    """Send a signal at a random moment of the run, measured in processor time.

    Processor time makes the moment independent of the machine's load.
    """
    process = target.start()
    moment = rng.uniform(0, target.seconds)
    while process.is_alive() and processor_seconds(process.pid) < moment:
        process.join(0.02)
    if process.is_alive():
        os.kill(process.pid, number)
    process.join()
    return process.exitcode != 0


def processor_seconds(pid: int) -> float:
    """Return the processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user_ticks = int(fields[11])
    system_ticks = int(fields[12])
    return (user_ticks + system_ticks) / os.sysconf("SC_CLK_TCK")


def in_a_write(target: Target, rng: random.Random, power: bool = True) -> bool:
    """Kill the run at a file operation or shortly after, within native writes of weights."""
    operation = rng.randint(1, target.operations)
    delay = rng.choice([0.0, rng.uniform(0, MAX_DELAY)])
    process = target.start(operation, delay, power=power)
    process.join()
    return process.exitcode == -signal.SIGALRM


def copy_to_disk(target: Target, file: Path) -> None:
    """Copy the contents of a file of the run to the folder that survives a power cut."""
    if file.is_file() and target.out in file.parents:
        inode = str(file.stat().st_ino)
        with contextlib.suppress(FileExistsError):
            # The link keeps the inode number from being used for another file.
            (target.disk / f"{inode}.same").hardlink_to(file)
        shutil.copyfile(file, target.disk / inode)


def power_cut(target: Target, rng: random.Random) -> bool:
    """Kill the run and reset each file to its contents at the last fsync; names are kept.

    Files from before this start count as written: the system writes them within half a minute.
    """
    shutil.rmtree(target.disk, ignore_errors=True)
    target.disk.mkdir()
    for file in target.out.rglob("*"):
        copy_to_disk(target, file)
    if not in_a_write(target, rng, power=False):
        return False
    for file in target.out.rglob("*"):
        if file.is_file():
            copy = target.disk / str(file.stat().st_ino)
            file.write_bytes(copy.read_bytes() if copy.is_file() else b"")
    return True


@contextlib.contextmanager
def output_to(descriptor: int) -> Iterator[None]:
    """Redirect the output and errors of this process and its forks for a while."""
    stdout = os.dup(1)
    stderr = os.dup(2)
    redirect_output(descriptor)
    try:
        yield
    finally:
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.close(stdout)
        os.close(stderr)
        os.close(descriptor)


def full_disk(target: Target, rng: random.Random) -> bool:
    """Limit the size of every file: the write beyond it fails as on a full disk.

    Raises RuntimeError if the run reports that in more than one line.
    """
    reader, writer = os.pipe()
    with output_to(writer):
        process = target.start(limit=int(10 ** rng.uniform(3, 6)))
    with os.fdopen(reader, errors="replace") as output:
        text = output.read()
    process.join()
    if "Traceback" in text:
        raise RuntimeError(
            f"a full disk ended {target.method} in more than one line: {text}"
        )
    return process.exitcode != 0


def damage(
    change: Callable[[bytearray, random.Random], bytes],
    target: Target,
    rng: random.Random,
) -> bool:
    """Kill the run, then corrupt a file of its newest checkpoint.

    Does nothing further if the run was finished or does not have two whole checkpoints.
    """
    by_clock(signal.SIGKILL, target, rng)
    if (target.out / "summary.json").exists():
        return False
    folders = sorted(target.out.glob("checkpoints/step-*"))
    if [checkpoint.damage(folder) for folder in folders[-2:]] != [None, None]:
        return False
    victim = rng.choice(
        sorted(path for path in folders[-1].rglob("*") if path.is_file())
    )
    victim.write_bytes(change(bytearray(victim.read_bytes()), rng))
    return True


def flipped(data: bytearray, rng: random.Random) -> bytes:
    """Return the data with one bit changed."""
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def truncated(data: bytearray, rng: random.Random) -> bytes:
    """Return the data without its end."""
    return bytes(data[: rng.randrange(len(data))])


FAULTS: dict[str, Callable[[Target, random.Random], bool]] = {
    "kill": partial(by_clock, signal.SIGKILL),
    "kill in a write": in_a_write,
    "truncated checkpoint": partial(damage, truncated),
    "flipped bit in a checkpoint": partial(damage, flipped),
    "full disk": full_disk,
    "power cut": power_cut,
    "Ctrl-C": partial(by_clock, signal.SIGINT),
}
KILLS = ("kill", "kill in a write", "power cut")
