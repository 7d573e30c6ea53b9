"""The local executor: each item in a process of its own, so that one that is killed takes nothing else with it."""

import multiprocessing
import os
import subprocess
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from reproduce import keys, provenance, warm
from reproduce.plan import Item, Plan
from reproduce.run import TICK, Ending


@dataclass
class Worker:
    """One item at work."""

    item: Item
    process: multiprocessing.process.BaseProcess
    pipe: Connection
    started: float


class Local:
    """Worker processes on this machine, at most `jobs` at once."""

    apart = False

    def __init__(self, plan: Plan, jobs: int) -> None:
        self.plan, self.jobs = plan, jobs
        self.workers: list[Worker] = []
        self.servers: dict[str, subprocess.Popen[bytes]] = {}
        self.common: dict[str, Any] = {}

    @property
    def live(self) -> list[Item]:
        """The items at work."""
        return [worker.item for worker in self.workers]

    def open(self, scratch: Path, items: list[Item]) -> None:
        """Start the servers that the items will need, look up what their provenance shares."""
        self.scratch, self.environment = scratch, warm.environment(self.plan.root, scratch)
        warm.write_spec(scratch / "jupyter")
        if self.plan.preset.kernel == "warm":
            for kind in {item.kind for item in items}:
                modules = warm.HEAVY if kind == "run" else warm.LIGHT
                self.servers[kind] = warm.start(self.socket(kind), modules, self.environment)
        self.common = provenance.shared(self.plan.root)

    def socket(self, kind: str) -> Path:
        """Return where the server for runs or for artefacts listens."""
        return self.scratch / f"{kind}.socket"

    def free(self, item: Item) -> bool:
        """Say whether one more may begin."""
        return len(self.workers) < self.jobs

    def begin(self, item: Item, found: keys.Parts, fresh: bool) -> None:
        """Start a worker process; it inherits the loaded modules by fork."""
        # Late: papermill takes a second, which servers can use meanwhile, and cached items do not need it.
        from reproduce import work

        server = {warm.SERVER: str(self.socket(item.kind))} if item.kind in self.servers else {}
        job = work.Job(self.plan, item, found, fresh, self.scratch, self.environment | server, self.common)
        ours, theirs = multiprocessing.Pipe(duplex=False)
        fork = multiprocessing.get_context("fork")
        process = fork.Process(target=work.work, args=(job, theirs, os.getpid()))
        process.start()
        theirs.close()
        self.workers.append(Worker(item, process, ours, time.monotonic()))

    def ended(self) -> list[Ending]:
        """Wait a moment and collect the workers that have spoken, died or used up their time."""
        spoken = wait([worker.pipe for worker in self.workers], timeout=TICK)
        endings = []
        for worker in list(self.workers):
            seconds = time.monotonic() - worker.started
            if worker.pipe in spoken:
                endings.append(self.result(worker, seconds))
            elif seconds > worker.item.timeout:
                worker.process.kill()
                worker.process.join()
                endings.append((worker.item, f"timed out after {worker.item.timeout} s", worker.item.timeout))
            else:
                continue
            self.workers.remove(worker)
            if endings[-1][1] is not None:
                self.keep_failed(worker.item)
        return endings

    def result(self, worker: Worker, seconds: float) -> Ending:
        """Take in the result of a worker that has spoken or died."""
        try:
            error, seconds = worker.pipe.recv()
        except EOFError:
            error = ""
        worker.process.join(10)
        died = f"its process died (exit code {worker.process.exitcode})"
        return worker.item, died if error == "" else error, seconds

    def keep_failed(self, item: Item) -> None:
        """Keep the notebook as far as it came."""
        from reproduce import work

        work.keep_failed(self.plan.folder, item)

    def close(self) -> None:
        """End whatever is still at work; kernels end with their workers or servers."""
        for worker in self.workers:
            worker.process.kill()
            worker.process.join()
        for server in self.servers.values():
            server.terminate()
            server.wait()
