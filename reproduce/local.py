"""Items as processes of this machine, each a fork of a server that has imported the heavy packages once."""

import multiprocessing
import os
import signal
import sys
import time
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from reproduce import provenance
from reproduce.plan import Item, Plan
from reproduce.run import TICK
from reproduce.work import environment, make

PRELOAD = ["papermill", "nbconvert", "ipykernel.kernelapp", "ipykernel.ipkernel", "reproduce.kernel", __name__]
PRELOAD += ["matplotlib.pyplot", "seaborn", "scipy.stats"]


class Local:
    """At most `jobs` processes at once."""

    def __init__(self, plan: Plan, items: list[Item], jobs: int, scratch: Path) -> None:
        self.plan, self.jobs, self.scratch = plan, jobs, scratch
        os.environ |= environment(plan.root, scratch)  # before the server starts, which reads them
        self.context = multiprocessing.get_context("forkserver")
        # A run with a GPU may use Unsloth, which must be imported before transformers.
        trains = any(item.kind == "run" for item in items) and not plan.preset.gpus
        self.context.set_forkserver_preload(PRELOAD + (["reproduce.preload"] if trains else []))
        self.common = provenance.shared(plan.root)
        self.workers: dict[Connection, tuple[Item, Any, float]] = {}  # where it speaks -> its item, itself, its start

    @property
    def live(self) -> list[Item]:
        """The items at work."""
        return [item for item, _, _ in self.workers.values()]

    def has_room(self) -> bool:
        """Whether another process may start."""
        return len(self.workers) < self.jobs

    def begin(self, item: Item) -> None:
        """Start a process."""
        ours, theirs = self.context.Pipe(duplex=False)
        process = self.context.Process(target=be_worker, args=(self.plan, item, self.scratch, self.common, theirs))
        process.start()
        theirs.close()
        self.workers[ours] = item, process, time.monotonic()

    def ended(self) -> list[tuple[Item, str | None, float]]:
        """Wait a moment and collect the processes that have spoken or died."""
        endings = []
        for answer in wait([*self.workers], timeout=TICK):
            item, process, started = self.workers[answer]
            try:
                error = answer.recv()
                process.join(10)
            except EOFError:
                process.join()
                error = f"its process died (exit code {process.exitcode})"
            self.end(answer)
            endings.append((item, error, time.monotonic() - started))
        return endings

    def end(self, answer: Connection) -> None:
        """End a process and whatever it started."""
        _, process, _ = self.workers.pop(answer)
        answer.close()
        with suppress(ProcessLookupError):  # all gone
            os.killpg(process.pid, signal.SIGKILL)
        process.join()

    def close(self) -> None:
        """End all processes; the server ends with this one."""
        for answer in list(self.workers):
            self.end(answer)


def be_worker(plan: Plan, item: Item, scratch: Path, common: dict[str, Any], answer: Connection) -> None:
    """Make the item in this process, the leader of a group of its own, and send what went wrong or None."""
    os.setsid()
    log = os.open(scratch / "workers.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(log, stream.fileno())
    make(plan, item, scratch, common, multiprocessing.parent_process().sentinel, answer.send)
