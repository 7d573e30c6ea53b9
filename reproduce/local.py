"""Items as processes of this machine, forked from a server that has imported the heavy packages."""

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

PRELOAD = [
    "papermill",
    "nbconvert",
    "ipykernel.kernelapp",
    "ipykernel.ipkernel",
    "reproduce.kernel",
    "reproduce.warm",
    __name__,
    "matplotlib.pyplot",
    "seaborn",
    "scipy.stats",
]
PRELOAD_OF_RUNS = ["reproduce.preload"]
EXIT_SECONDS = 10  # that a process may take to end after its answer


class Local:
    """An engine of at most `at_once` processes, each with a thread that waits for its end."""

    def __init__(
        self, plan: Plan, items: list[Item], at_once: int, scratch: Path
    ) -> None:
        self.plan = plan
        self.at_once = at_once
        self.scratch = scratch
        self.processes: list[Any] = []
        self.threads = ThreadPoolExecutor(at_once)
        # The fork server reads it when it starts.
        os.environ |= environment(plan.root, scratch)
        self.context = multiprocessing.get_context("forkserver")
        preload = list(PRELOAD)
        # A run with a GPU may use Unsloth, which must be imported before transformers.
        if not plan.preset.gpus and any(item.kind == "run" for item in items):
            preload += PRELOAD_OF_RUNS
        self.context.set_forkserver_preload(preload)

    def submit(self, item: Item) -> Future[None]:
        """Start a process that makes the item."""
        receiver, sender = self.context.Pipe(duplex=False)
        arguments = (self.plan, item, self.scratch, sender)
        process = self.context.Process(target=work, args=arguments)
        process.start()
        sender.close()
        self.processes.append(process)
        return self.threads.submit(wait_for, process, receiver)

    def close(self) -> None:
        """End all processes; the fork server ends with this one."""
        for process in self.processes:
            if process.is_alive():
                end(process)
        self.threads.shutdown()


def wait_for(process: Any, receiver: Connection) -> None:
    """Wait until a process has answered or died, and end whatever it started.

    Raises RuntimeError with the reason if the item failed.
    """
    try:
        error = receiver.recv()
        process.join(EXIT_SECONDS)
    except EOFError:
        process.join()
        error = f"its process died (exit code {process.exitcode})"
    end(process)
    if error is not None:
        raise RuntimeError(error)


def end(process: Any) -> None:
    """Kill a process and its group, which may be empty already or not yet created."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()


def work(plan: Plan, item: Item, scratch: Path, sender: Connection) -> None:
    """Make the item in this process, as leader of a new process group, and send its error or None.

    Standard output and error are discarded.
    """
    os.setsid()
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(null, stream.fileno())
    lifeline = multiprocessing.parent_process().sentinel
    make(plan, item, scratch, lifeline, sender.send)
