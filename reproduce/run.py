"""Run items in order, skip those that are up to date, and continue after failures.

Knows order and caching; an engine makes the items: processes of this machine, or tasks of Ray.
"""

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
from typing import Any, NoReturn, Protocol

from reproduce import UserError, keys, one_line
from reproduce.modules import digest
from reproduce.plan import Item, Plan
from reproduce.work import keep_failed

REFRESH_SECONDS = 0.2
BAR = "{bar:20} {n}/{total} {elapsed}{postfix}"
# Short, as the address of a socket has at most 107 characters.
SCRATCH_HOME = "/tmp"


@dataclass
class Report:
    """How every item ended: id -> seconds, or the reason."""

    bar: Any  # of tqdm; shown on a terminal only
    ran: dict[str, float] = field(default_factory=dict)
    cached: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    blocked: dict[str, str] = field(default_factory=dict)

    def add(self, item: Item, group: dict[str, Any], value: Any, text: str) -> None:
        """Enter a finished item into one of the groups, and print one line about it."""
        group[item.id] = value
        count = len(self.ran) + len(self.cached) + len(self.failed) + len(self.blocked)
        self.bar.update()
        self.bar.write(f"[{count}/{self.bar.total}] {item.id} {text}")


class Engine(Protocol):
    """Makes items, at most `at_once` at a time."""

    at_once: float

    def submit(self, item: Item) -> Future[None]:
        """Start making an item; the future raises if the item fails."""

    def close(self) -> None:
        """End all unfinished work."""


Start = Callable[[Path], Engine]


@dataclass(frozen=True)
class Submitted:
    """An item that the engine is making, and its start in seconds of the monotonic clock."""

    item: Item
    started_at: float


@dataclass
class Batch:
    """Items on their way through an engine: each is submitted once the runs it needs have ended."""

    plan: Plan
    report: Report
    engine: Engine
    stale: set[str]
    order: TopologicalSorter[str]
    ready: list[Item] = field(default_factory=list)
    submitted: dict[Future[None], Submitted] = field(default_factory=dict)

    def work_through(self) -> None:
        """Make all items that are not up to date."""
        while self.order.is_active():
            self.queue_ready()
            self.submit_ready()
            self.show_progress()
            self.collect_finished()

    def queue_ready(self) -> None:
        """Queue the items whose runs have ended, or report them if they are not to be made."""
        for id in self.order.get_ready():
            item = self.plan.items[id]
            if must_make(self.plan, item, self.report, id in self.stale):
                self.ready.append(item)
            else:
                self.order.done(id)
        # Artefacts first, so that each appears as soon as its own runs are done.
        self.ready.sort(key=lambda item: item.kind)

    def submit_ready(self) -> None:
        """Hand queued items to the engine while it has room."""
        while self.ready and len(self.submitted) < self.engine.at_once:
            item = self.ready.pop(0)
            started_at = time.monotonic()
            future = self.engine.submit(item)
            self.submitted[future] = Submitted(item, started_at)

    def show_progress(self) -> None:
        """Name the items being made on the progress bar."""
        ids = [submitted.item.id for submitted in self.submitted.values()]
        names = [id.removeprefix("runs/") for id in ids]
        self.report.bar.set_postfix_str(", ".join(names))

    def collect_finished(self) -> None:
        """Wait until an item ends, or until the bar must be refreshed, and report what ended."""
        ended = wait(self.submitted, REFRESH_SECONDS, FIRST_COMPLETED).done
        for future in ended:
            submitted = self.submitted.pop(future)
            item = submitted.item
            seconds = time.monotonic() - submitted.started_at
            report_made(self.plan, self.report, item, future.exception(), seconds)
            self.order.done(item.id)


def execute(
    plan: Plan, items: list[Item], stale: set[str], forced: set[str], start: Start
) -> Report:
    """Run every item that is stale, forced, or needs a run that was just made.

    `start` makes the engine, given a scratch folder. Returns how every item ended.
    """
    active = {item.id for item in items if item.skip is None}
    needs = {
        item.id: active.intersection(item.needs) for item in items if item.id in active
    }
    with workshop(plan) as scratch, progress_bar(len(active)) as bar:
        for id in forced:  # they begin from nothing
            (plan.folder / id / keys.MARKER).unlink(missing_ok=True)
            (plan.folder / id / keys.STARTED).unlink(missing_ok=True)
        report = Report(bar)
        engine = start(scratch)
        batch = Batch(plan, report, engine, stale, TopologicalSorter(needs))
        batch.order.prepare()
        # Replaces the handler that Ray installs.
        signal.signal(signal.SIGTERM, exit_on_signal)
        try:
            batch.work_through()
        except SystemExit:  # Ray replaces ours with its own exit code
            raise SystemExit(128 + signal.SIGTERM) from None
        finally:
            engine.close()
    return report


def progress_bar(total: int) -> Any:
    """Return a tqdm bar that is shown on a terminal only and erased at the end."""
    from tqdm import tqdm

    return tqdm(total=total, disable=None, leave=False, bar_format=BAR)


def exit_on_signal(number: int, frame: object) -> NoReturn:
    """Turn SIGTERM into an exception, so that everything is closed on the way out."""
    raise SystemExit


def must_make(plan: Plan, item: Item, report: Report, stale: bool) -> bool:
    """Return whether an item whose needs have ended must be made; report it if it must not."""
    not_made = {
        **dict.fromkeys(report.failed, "failed"),
        **dict.fromkeys(report.blocked, "was blocked"),
    }
    for need in item.needs:
        if need in not_made:
            reason = f"needs {need}, which {not_made[need]}"
            report.add(item, report.blocked, reason, f"blocked: {reason}")
            return False
    has_new_needs = bool(report.ran.keys() & item.needs)
    if (stale or has_new_needs) and keys.changes(plan, item):
        return True
    origin = keys.read_marker(plan.folder / item.id, keys.PROVENANCE)
    seconds = origin.get("wall_seconds", 0.0)
    report.add(item, report.cached, seconds, f"ok {seconds:.1f}s (cached)")
    return False


def report_made(
    plan: Plan, report: Report, item: Item, error: BaseException | None, seconds: float
) -> None:
    """Report an item that an engine has made or failed to make."""
    if error is None:
        report.add(item, report.ran, seconds, f"ok {seconds:.1f}s")
        return
    keep_failed(plan, item)
    cause = getattr(error, "cause", error)  # the task's exception, inside one of Ray's
    reason = one_line(str(cause))
    report.add(item, report.failed, reason, f"FAILED {seconds:.1f}s: {reason}")


@contextmanager
def workshop(plan: Plan) -> Iterator[Path]:
    """Lock the results folder, tidy up after a killed command, and yield a scratch folder.

    Raises UserError if the results folder cannot be written or is in use.
    """
    import fcntl  # Windows has none; there the command has refused to start

    results = plan.folder
    try:
        results.mkdir(parents=True, exist_ok=True)
        lock = (results / ".lock").open("a", encoding="utf-8")
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(
            f"another command is at work in {results}; wait for it or stop it"
        ) from None
    except OSError as error:
        raise UserError(
            f"cannot write to {results} and lock it: {error.strerror}"
        ) from None
    tempfile.tempdir = SCRATCH_HOME
    prefix = f"coevolve-{digest(str(results).encode())[:6]}-"
    leftovers = [*results.glob(".*.part"), *Path(SCRATCH_HOME).glob(f"{prefix}*")]
    for folder in leftovers:
        shutil.rmtree(folder, ignore_errors=True)
    with (
        lock,
        tempfile.TemporaryDirectory(
            prefix=prefix, ignore_cleanup_errors=True
        ) as scratch,
    ):
        yield Path(scratch)
