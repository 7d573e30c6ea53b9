"""What may befall a run, for `benchmarks/kills.py`: each fault starts a run, or lets it go on, and disturbs it."""

import contextlib
import os
import random
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from multiprocessing import get_context
from multiprocessing.context import ForkProcess
from pathlib import Path

from coevolve.cli import main as coevolve
from coevolve.runs import checkpoint

FIELDS = "model=tiny-small steps=4 save_every=1 keep_episodes=1000 eval_items=2".split()  # every sample is recorded
CHANGES = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"}  # audit events, with a path as first argument
DELAY = 0.02  # seconds at most between a file operation and the end: what follows it may be a write outside Python
FORK = get_context("fork")


@dataclass
class Target:
    """A run that can be started again and again, and what the undisturbed one has taken."""

    method: str
    out: Path
    seconds: float = 0.0
    operations: int = 0

    @property
    def log(self) -> Path:
        """What the last start has said."""
        return self.out.with_suffix(".log")

    @property
    def disk(self) -> Path:
        """Folder of what a power cut leaves of each file: its bytes when they were last forced to the disk."""
        return self.out.with_suffix(".disk")

    def start(self, operation: int = 0, delay: float = 0.0, limit: int = 0, power: bool = True) -> ForkProcess:
        """Start it or let it go on; see `child` for what ends it. Forked: to import torch takes longer than the run."""
        process = FORK.Process(target=child, args=(self, operation, delay, limit, power))
        process.start()
        return process


def child(target: Target, operation: int, delay: float, limit: int, power: bool) -> None:
    """Train by the command line, and log how many operations on files of the run there were, and the processor time.

    It ends without notice `delay` seconds after one of them, or finds the disk full: no file may outgrow a limit.
    Where the power may fail, what is forced to the disk is kept aside.
    """
    done = count(1)

    def watch(event: str, args: tuple[object, ...]) -> None:
        if event in CHANGES and str(args[0]).startswith(str(target.out)) and next(done) == operation:
            signal.setitimer(signal.ITIMER_REAL, max(delay, 1e-6))  # nobody receives it: the kernel kills

    if not limit:  # which holds for the log as well: then the caller reads what is said, through a pipe
        said = os.open(target.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(said, 1), os.dup2(said, 2)
    if not power:
        force = os.fsync
        os.fsync = lambda file: (force(file), on_disk(target, Path(f"/proc/self/fd/{file}").resolve()))[0]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    sys.addaudithook(watch)
    code = coevolve(["train", target.method, "--preset", "smoke", "--out", str(target.out), *FIELDS])
    print(next(done) - 1, time.process_time(), flush=True)
    sys.exit(code)


def by_clock(number: int, target: Target, rng: random.Random) -> bool:
    """Send a signal at any moment of the run, by its processor time: a busy machine moves no moment."""
    process, moment = target.start(), rng.uniform(0, target.seconds)
    while process.is_alive() and spent(process.pid) < moment:
        process.join(0.02)
    if process.is_alive():
        os.kill(process.pid, number)
    process.join()
    return process.exitcode != 0


def spent(number: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def in_a_write(target: Target, rng: random.Random, power: bool = True) -> bool:
    """Kill it at a file operation or within what follows: the native writes of weights and optimisers."""
    process = target.start(rng.randint(1, target.operations), rng.choice([0.0, rng.uniform(0, DELAY)]), power=power)
    process.join()
    return process.exitcode == -signal.SIGALRM


def on_disk(target: Target, file: Path) -> None:
    """Keep what a file of the run holds as what a power cut leaves of it."""
    if file.is_file() and target.out in file.parents:
        number = str(file.stat().st_ino)
        with contextlib.suppress(FileExistsError):
            (target.disk / f"{number}.same").hardlink_to(file)  # while it has a name, no other file takes its number
        shutil.copyfile(file, target.disk / number)


def power_cut(target: Target, rng: random.Random) -> bool:
    """Kill it, and take from each file what was not forced to the disk: names are kept, contents are lost.

    What was there before counts as written: the system does that within half a minute.
    """
    shutil.rmtree(target.disk, ignore_errors=True)
    target.disk.mkdir()
    for file in target.out.rglob("*"):
        on_disk(target, file)
    if not in_a_write(target, rng, power=False):
        return False
    for file in target.out.rglob("*"):
        if file.is_file():
            left = target.disk / str(file.stat().st_ino)
            file.write_bytes(left.read_bytes() if left.is_file() else b"")
    return True


def full_disk(target: Target, rng: random.Random) -> bool:
    """Let every file end at a size: the write that would go on fails, as on a disk that is full, in one line."""
    reader, writer = os.pipe()
    kept = os.dup(1), os.dup(2)
    os.dup2(writer, 1), os.dup2(writer, 2)
    try:
        process = target.start(limit=int(10 ** rng.uniform(3, 6)))
    finally:
        os.dup2(kept[0], 1), os.dup2(kept[1], 2)
        for number in (*kept, writer):
            os.close(number)
    with os.fdopen(reader, errors="replace") as said:
        text = said.read()
    process.join()
    if "Traceback" in text:
        raise RuntimeError(f"a full disk ended {target.method} in more than one line: {text}")
    return process.exitcode != 0


def damage(change: Callable[[bytearray, random.Random], bytes], target: Target, rng: random.Random) -> bool:
    """Kill it, then spoil a file of its newest checkpoint; not where it has no older one, or was finished."""
    by_clock(signal.SIGKILL, target, rng)
    folders = sorted(target.out.glob("checkpoints/step-*"))
    if (target.out / "summary.json").exists() or [checkpoint.damage(path) for path in folders[-2:]] != [None, None]:
        return False
    victim = rng.choice(sorted(path for path in folders[-1].rglob("*") if path.is_file()))
    victim.write_bytes(change(bytearray(victim.read_bytes()), rng))
    return True


def flipped(data: bytearray, rng: random.Random) -> bytes:
    """One bit changes."""
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def truncated(data: bytearray, rng: random.Random) -> bytes:
    """The end is missing."""
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
