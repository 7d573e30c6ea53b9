"""Run items in order, cached ones not at all, and go on after failures.

Knows order and caching; leaves the making of items to an engine: processes of this machine, or tasks of Ray.
"""

import fcntl
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from reproduce import UserError, keys
from reproduce.modules import digest
from reproduce.plan import Item, Plan
from reproduce.work import keep_failed

TICK = 0.2  # seconds an engine waits for an item to end
T = TypeVar("T")
Show = Callable[[str, "Report"], None]  # called with a line, or "" for none, on every change and every TICK
LONGEST = 20  # characters of a temporary folder: the address of a socket in it has at most 107


@dataclass
class Report:
    """How every item ended: id -> seconds, or the reason. `live`: the ids at work."""

    total: int
    show: Show
    ran: dict[str, float] = field(default_factory=dict)
    cached: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    blocked: dict[str, str] = field(default_factory=dict)
    live: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ran) + len(self.cached) + len(self.failed) + len(self.blocked)

    def end(self, item: Item, group: dict[str, T], value: T, text: str) -> None:
        """Enter an item that has just ended in its group, and show one line about it."""
        group[item.id] = value
        self.show(f"[{len(self)}/{self.total}] {item.id} {text}", self)


class Engine(Protocol):
    """What makes items, several at once."""

    live: list[Item]

    def has_room(self) -> bool:
        """Whether another item may begin now."""

    def begin(self, item: Item) -> None:
        """Begin to make an item."""

    def ended(self) -> list[tuple[Item, str | None, float]]:
        """Wait a moment and return the items that have ended since, each with what went wrong and its seconds."""

    def close(self) -> None:
        """End whatever is still at work."""


def execute(plan: Plan, items: list[Item], forced: set[str], start: Callable[[Path], Engine], show: Show) -> Report:
    """Run what is not current or forced, and say how every item ended.

    `start` makes the engine, which gets a scratch folder.
    """
    waiting = [item for item in items if item.skip is None]
    report = Report(len(waiting), show)
    if not waiting:
        return report
    with workshop(plan) as scratch:
        for id in forced:  # they begin from nothing
            (plan.folder / id / keys.MARKER).unlink(missing_ok=True)
            (plan.folder / id / keys.STARTED).unlink(missing_ok=True)
        engine, ready = start(scratch), []
        signal.signal(signal.SIGTERM, stop)  # after Ray has put its own
        try:
            while waiting or ready or engine.live:
                settle(plan, waiting, ready, report)
                ready.sort(key=lambda item: item.kind)  # artefacts first: each comes as soon as its own runs are done
                while ready and engine.has_room():
                    engine.begin(ready.pop(0))
                for item, error, seconds in engine.ended() if engine.live else ():
                    note(plan, report, item, error, seconds)
                report.live = [item.id for item in engine.live]
                show("", report)
        except SystemExit:  # Ray replaces ours by one of its own
            raise SystemExit(128 + signal.SIGTERM) from None
        finally:
            engine.close()
    return report


def stop(number: int, frame: object) -> None:
    """Turn the system's request to end into an exception, so that everything is closed on the way out."""
    raise SystemExit


def settle(plan: Plan, waiting: list[Item], ready: list[Item], report: Report) -> None:
    """Move items whose runs have ended: to the report if blocked or cached, else to the ready ones."""
    mine = {item.id for item in waiting + ready} | {*report.live}
    for item in list(waiting):
        lost = next((need for need in item.needs if need in report.failed), None)
        if lost is None and mine.intersection(item.needs):
            continue
        waiting.remove(item)
        if lost is not None:
            reason = f"needs {lost}, which failed"
            report.end(item, report.blocked, reason, f"blocked: {reason}")
        elif keys.is_done(plan, item):
            seconds = keys.read_marker(plan.folder / item.id, "provenance.json").get("wall_seconds", 0.0)
            report.end(item, report.cached, seconds, f"ok {seconds:.1f}s (cached)")
        else:
            ready.append(item)


def note(plan: Plan, report: Report, item: Item, error: str | None, seconds: float) -> None:
    """Take in how an item ended that an engine has made."""
    if error is None:
        report.end(item, report.ran, seconds, f"ok {seconds:.1f}s")
    else:
        keep_failed(plan, item)
        report.end(item, report.failed, error, f"FAILED {seconds:.1f}s: {error}")


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
    for left in results.glob(".*.part"):
        shutil.rmtree(left, ignore_errors=True)
    temporary = tempfile.gettempdir() if len(tempfile.gettempdir()) <= LONGEST else "/tmp"
    prefix = f"coevolve-{digest(str(results).encode())[:6]}-"
    for left in Path(temporary).glob(f"{prefix}*"):
        shutil.rmtree(left, ignore_errors=True)
    with lock, tempfile.TemporaryDirectory(prefix=prefix, dir=temporary, ignore_cleanup_errors=True) as scratch:
        yield Path(scratch)
