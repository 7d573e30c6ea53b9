"""Items as processes of this machine, each a fork of a server that has imported the heavy packages once."""

import multiprocessing
import os
import signal
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from reproduce.plan import Item, Plan
from reproduce.work import environment, make

PRELOAD = ["papermill", "nbconvert", "ipykernel.kernelapp", "ipykernel.ipkernel", "reproduce.kernel", __name__]
PRELOAD += ["matplotlib.pyplot", "seaborn", "scipy.stats"]


class Local:
    """At most `at_once` processes at a time, and for each a thread that waits for the end."""

    def __init__(self, plan: Plan, items: list[Item], at_once: int, scratch: Path) -> None:
        self.plan, self.at_once, self.scratch = plan, at_once, scratch
        os.environ |= environment(plan.root, scratch)  # before the server starts, which reads them
        self.context = multiprocessing.get_context("forkserver")
        # A run with a GPU may use Unsloth, which must be imported before transformers.
        trains = any(item.kind == "run" for item in items) and not plan.preset.gpus
        self.context.set_forkserver_preload(PRELOAD + (["reproduce.preload"] if trains else []))
        self.processes: list[Any] = []
        self.threads = ThreadPoolExecutor(at_once)

    def submit(self, item: Item) -> Future[None]:
        """Start a process."""
        ours, theirs = self.context.Pipe(duplex=False)
        process = self.context.Process(target=be_worker, args=(self.plan, item, self.scratch, theirs))
        process.start()
        theirs.close()
        self.processes.append(process)
        return self.threads.submit(wait_for, process, ours)

    def close(self) -> None:
        """End all processes; the server ends with this one."""
        for process in self.processes:
            if process.is_alive():
                end(process)
        self.threads.shutdown()


def wait_for(process: Any, answer: Connection) -> None:
    """Wait until a process has spoken or died, and end whatever it started. Raises what went wrong."""
    try:
        error = answer.recv()
        process.join(10)
    except EOFError:
        process.join()
        error = f"its process died (exit code {process.exitcode})"
    end(process)
    if error is not None:
        raise RuntimeError(error)


def end(process: Any) -> None:
    """End a process and its group, of which nothing may be left, or which it may not have made yet."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()


def be_worker(plan: Plan, item: Item, scratch: Path, answer: Connection) -> None:
    """Make the item in this process, the leader of a group of its own, and send what went wrong or None."""
    os.setsid()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    make(plan, item, scratch, multiprocessing.parent_process().sentinel, answer.send)
