"""Run items in parallel, each in a process of its own, and go on after failures.

Knows order, caching, time limits and what to clean up; leaves the making of an item to work.py. A process per
item, and not a pool: one that is killed takes nothing else with it.
"""

import fcntl
import multiprocessing
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO, Any

from reproduce import UserError, keys, provenance, warm
from reproduce.plan import Item, Plan

TICK = 0.2  # seconds between looks at time limits
LOCK = ".lock"
Show = Callable[[str, "Batch"], None]  # called with a line, or "" for none, on every change and every TICK


@dataclass
class Report:
    """How every item ended: id -> seconds, reason, or error line."""

    ran: dict[str, float] = field(default_factory=dict)
    cached: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    blocked: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ran) + len(self.cached) + len(self.failed) + len(self.blocked)


@dataclass
class Worker:
    """One item at work."""

    item: Item
    process: multiprocessing.process.BaseProcess
    pipe: Connection
    started: float


class Batch:
    """One command's items: some wait for runs, some are ready, some at work, the rest is in the report."""

    def __init__(self, plan: Plan, items: list[Item], forced: set[str], jobs: int, scratch: Path) -> None:
        self.plan, self.forced, self.jobs, self.scratch = plan, forced, jobs, scratch
        self.waiting = [item for item in items if item.skip is None]
        self.total = len(self.waiting)
        self.ready: list[tuple[Item, keys.Parts]] = []
        self.live: list[Worker] = []
        self.servers: dict[str, subprocess.Popen[bytes]] = {}
        self.report = Report()
        self.common: dict[str, Any] = {}

    def run(self, show: Show) -> Report:
        """Work until nothing is left."""
        try:
            self.settle(show)
            while self.ready or self.live:
                while self.ready and len(self.live) < self.jobs:
                    self.begin(*self.ready[0])
                    del self.ready[0]
                ended = wait([worker.pipe for worker in self.live], timeout=TICK)
                for worker in list(self.live):
                    if worker.pipe in ended:
                        self.end(worker, show)
                    elif time.monotonic() - worker.started > worker.item.timeout:
                        self.stop(worker, show)
                show("", self)
                self.settle(show)
        finally:
            self.close()
        return self.report

    def settle(self, show: Show) -> None:
        """Move items whose runs have ended: to the report if blocked or cached, else to the ready ones."""
        report = self.report
        for item in list(self.waiting):
            lost = [need for need in item.needs if need in report.failed]
            if lost:
                report.blocked[item.id] = f"needs {lost[0]}, which failed"
                self.waiting.remove(item)
                show(self.line(item, "blocked", f": {report.blocked[item.id]}"), self)
            elif all(need in report.ran or need in report.cached for need in item.needs):
                self.waiting.remove(item)
                folder, found = self.plan.folder / item.id, keys.parts(self.plan, item)
                if item.id not in self.forced and keys.is_done(item, folder, found):
                    seconds = keys.read_marker(folder, "provenance.json").get("wall_seconds", 0.0)
                    report.cached[item.id] = seconds
                    show(self.line(item, "ok", f" {seconds:.1f}s (cached)"), self)
                else:
                    self.ready.append((item, found))

    def line(self, item: Item, outcome: str, rest: str) -> str:
        """Write the one line of an item that has ended."""
        return f"[{len(self.report)}/{self.total}] {item.id} {outcome}{rest}"

    def begin(self, item: Item, found: keys.Parts) -> None:
        """Start a worker process; it inherits the loaded modules by fork."""
        environment = warm.environment(self.plan.root, self.scratch)
        if not self.common:
            self.prepare(environment)
        if item.kind in self.servers:
            environment[warm.SERVER] = str(self.socket(item.kind))
        # Late: papermill takes a second, which servers can use meanwhile, and cached items do not need it.
        from reproduce import work

        ours, theirs = multiprocessing.Pipe(duplex=False)
        job = work.Job(self.plan, item, found, item.id in self.forced, self.scratch, environment, self.common)
        fork = multiprocessing.get_context("fork")
        process = fork.Process(target=work.work, args=(job, theirs, os.getpid()))
        process.start()
        theirs.close()
        self.live.append(Worker(item, process, ours, time.monotonic()))

    def prepare(self, environment: dict[str, str]) -> None:
        """Before the first item: start the servers that will be needed, look up what provenance shares."""
        if self.plan.preset.kernel == "warm":
            warm.write_spec(self.scratch / "jupyter")
            for kind in {item.kind for item in (*self.waiting, *(item for item, _ in self.ready))}:
                modules = warm.HEAVY if kind == "run" else warm.LIGHT
                self.servers[kind] = warm.start(self.socket(kind), modules, environment)
        self.common = provenance.shared(self.plan.root)

    def socket(self, kind: str) -> Path:
        """Return where the server for runs or for artefacts listens."""
        return self.scratch / f"{kind}.socket"

    def end(self, worker: Worker, show: Show) -> None:
        """Take in the result of a worker that has spoken or died."""
        try:
            error, seconds = worker.pipe.recv()
        except EOFError:
            error, seconds = "", time.monotonic() - worker.started
        worker.process.join(10)
        self.live.remove(worker)
        if error is None:
            self.report.ran[worker.item.id] = seconds
            show(self.line(worker.item, "ok", f" {seconds:.1f}s"), self)
        else:
            died = f"its process died (exit code {worker.process.exitcode})"
            self.fail(worker, error or died, seconds, show)

    def stop(self, worker: Worker, show: Show) -> None:
        """End a worker that has used up its time; its kernel goes with it."""
        worker.process.kill()
        worker.process.join()
        self.live.remove(worker)
        self.fail(worker, f"timed out after {worker.item.timeout} s", worker.item.timeout, show)

    def fail(self, worker: Worker, error: str, seconds: float, show: Show) -> None:
        """Note a failure and keep the notebook as far as it came."""
        from reproduce import work

        work.keep_failed(self.plan.folder, worker.item)
        self.report.failed[worker.item.id] = error
        show(self.line(worker.item, "FAILED", f" {seconds:.1f}s: {error}"), self)

    def close(self) -> None:
        """End whatever is still at work; kernels end with their workers or servers."""
        for worker in self.live:
            worker.process.kill()
            worker.process.join()
        for server in self.servers.values():
            server.terminate()
            server.wait()


def check_writable(plan: Plan, items: list[Item]) -> None:
    """Refuse a results folder that is read-only, or marked so: the mark counts for the superuser too."""
    results = plan.folder
    for folder in (results.parent, results, results / "runs", *(results / item.id for item in items)):
        if folder.is_dir():
            marked = not stat.S_IMODE(folder.stat().st_mode) & 0o222
            if marked or not os.access(folder, os.W_OK):
                raise UserError(f"{folder} is read-only")


def lock(plan: Plan) -> IO[str]:
    """Take the results folder for this command; the system frees it however the process ends."""
    try:
        plan.folder.mkdir(parents=True, exist_ok=True)
        file = (plan.folder / LOCK).open("a+", encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write to {plan.folder}: {error.strerror}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise UserError(f"another command is at work in {plan.folder}; wait for it or stop it") from None
    return file


@contextmanager
def workshop(plan: Plan, items: list[Item]) -> Iterator[Path]:
    """Hold the results folder and a scratch folder; sweep up first what a killed command left behind."""
    check_writable(plan, items)
    temporary = tempfile.gettempdir()
    if len(temporary) > 50:  # the address of a socket has at most 107 characters
        temporary = "/tmp"
    with lock(plan) as file:
        file.seek(0)
        old = Path(file.read().strip() or "-")
        if old.name.startswith("coevolve-") and old.parent == Path(temporary):
            shutil.rmtree(old, ignore_errors=True)
        for path in plan.folder.glob(".*.part"):
            shutil.rmtree(path, ignore_errors=True)
        for path in plan.folder.glob(".*.old"):
            target = plan.folder / path.name[1:-4]
            shutil.rmtree(path, ignore_errors=True) if target.exists() else path.rename(target)
        scratch = Path(tempfile.mkdtemp(prefix="coevolve-", dir=temporary))
        file.truncate(0)
        file.write(str(scratch))
        file.flush()
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def execute(plan: Plan, items: list[Item], forced: set[str], jobs: int, show: Show) -> Report:
    """Run what is not current, at most `jobs` at a time, and say how every item ended."""
    if all(item.skip is not None for item in items):
        return Report()

    def stop(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        with workshop(plan, items) as scratch:
            return Batch(plan, items, forced, jobs, scratch).run(show)
    finally:
        signal.signal(signal.SIGTERM, before)
