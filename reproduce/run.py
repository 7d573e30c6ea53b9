"""Run items in order, cached ones not at all, and go on after failures.

Knows order and caching; leaves the making of items to an engine: processes of this machine, or tasks of Ray.
"""

import fcntl
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, Protocol

from reproduce import UserError, keys, one_line
from reproduce.modules import digest
from reproduce.plan import Item, Plan
from reproduce.work import keep_failed

TICK = 0.2  # seconds until the bar is drawn anew
BAR = "{bar:20} {n}/{total} {elapsed}{postfix}"


@dataclass
class Report:
    """How every item ended: id -> seconds, or the reason."""

    bar: Any  # of tqdm; shown on a terminal only
    ran: dict[str, float] = field(default_factory=dict)
    cached: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    blocked: dict[str, str] = field(default_factory=dict)

    def end(self, item: Item, group: dict[str, Any], value: Any, text: str) -> None:
        """Enter an item that has just ended in its group, and print one line about it."""
        group[item.id] = value
        ended = len(self.ran) + len(self.cached) + len(self.failed) + len(self.blocked)
        self.bar.update()
        self.bar.write(f"[{ended}/{self.bar.total}] {item.id} {text}")


class Engine(Protocol):
    """What makes items."""

    at_once: float

    def submit(self, item: Item) -> Future[None]:
        """Begin to make an item; an exception of the future says what went wrong."""

    def close(self) -> None:
        """End whatever is still at work."""


Start = Callable[[Path], Engine]


def execute(plan: Plan, items: list[Item], stale: set[str], forced: set[str], start: Start) -> Report:
    """Run what is stale, forced, or needs a run that has just been made; say how every item ended.

    `start` makes the engine, which gets a scratch folder.
    """
    from tqdm import tqdm

    wanted = {item.id for item in items if item.skip is None}
    with workshop(plan) as scratch, tqdm(total=len(wanted), disable=None, leave=False, bar_format=BAR) as bar:
        for id in forced:  # they begin from nothing
            (plan.folder / id / keys.MARKER).unlink(missing_ok=True)
            (plan.folder / id / keys.STARTED).unlink(missing_ok=True)
        report, engine, ready = Report(bar), start(scratch), []
        at_work: dict[Future[None], tuple[Item, float]] = {}  # with the time of its start
        order = TopologicalSorter({item.id: wanted.intersection(item.needs) for item in items if item.id in wanted})
        order.prepare()
        signal.signal(signal.SIGTERM, stop)  # after Ray has put its own
        try:
            while order.is_active():
                for id in order.get_ready():
                    if to_make(plan, plan.items[id], report, id in stale):
                        ready.append(plan.items[id])
                    else:
                        order.done(id)
                ready.sort(key=lambda item: item.kind)  # artefacts first: each comes as soon as its own runs are done
                while ready and len(at_work) < engine.at_once:
                    item = ready.pop(0)
                    at_work[engine.submit(item)] = item, time.monotonic()
                bar.set_postfix_str(", ".join(item.id.removeprefix("runs/") for item, _ in at_work.values()))
                for future in wait(at_work, TICK, FIRST_COMPLETED).done:
                    item, began = at_work.pop(future)
                    note(plan, report, item, future.exception(), time.monotonic() - began)
                    order.done(item.id)
        except SystemExit:  # Ray replaces ours by one of its own
            raise SystemExit(128 + signal.SIGTERM) from None
        finally:
            engine.close()
    return report


def stop(number: int, frame: object) -> None:
    """Turn the system's request to end into an exception, so that everything is closed on the way out."""
    raise SystemExit


def to_make(plan: Plan, item: Item, report: Report, stale: bool) -> bool:
    """Say whether an item whose runs have ended is to be made; report it here if it is blocked or cached."""
    lost = next((need for need in item.needs if need in report.failed), None)
    if lost is not None:
        reason = f"needs {lost}, which failed"
        report.end(item, report.blocked, reason, f"blocked: {reason}")
    elif not (stale or report.ran.keys() & item.needs) or not keys.changes(plan, item):
        seconds = keys.read_marker(plan.folder / item.id, "provenance.json").get("wall_seconds", 0.0)
        report.end(item, report.cached, seconds, f"ok {seconds:.1f}s (cached)")
    return item.id not in report.blocked | report.cached


def note(plan: Plan, report: Report, item: Item, error: BaseException | None, seconds: float) -> None:
    """Take in how an item ended that an engine has made."""
    if error is None:
        report.end(item, report.ran, seconds, f"ok {seconds:.1f}s")
    else:
        keep_failed(plan, item)
        reason = one_line(str(getattr(error, "cause", error)))  # Ray's errors have a cause, where the task raised one
        report.end(item, report.failed, reason, f"FAILED {seconds:.1f}s: {reason}")


@contextmanager
def workshop(plan: Plan) -> Iterator[Path]:
    """Keep the results folder for this command alone, tidy what a killed one left, and yield a scratch folder.

    Raises UserError if the folder cannot be written or is in use.
    """
    results = plan.folder
    try:
        results.mkdir(parents=True, exist_ok=True)
        lock = (results / ".lock").open("a", encoding="utf-8")
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(f"another command is at work in {results}; wait for it or stop it") from None
    except OSError as error:
        raise UserError(f"cannot write to {results} and lock it: {error.strerror}") from None
    prefix = f"coevolve-{digest(str(results).encode())[:6]}-"
    tempfile.tempdir = "/tmp"  # a short name, for the address of a socket has at most 107 characters
    for left in (*results.glob(".*.part"), *Path(tempfile.tempdir).glob(f"{prefix}*")):
        shutil.rmtree(left, ignore_errors=True)
    with lock, tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as scratch:
        yield Path(scratch)
