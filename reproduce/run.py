"""Run items in order, cached ones not at all, and go on after failures.

Knows order, caching and retries; leaves the making of items to an engine: local processes, or tasks of Ray.
"""

import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from reproduce import keys, one_line
from reproduce.folder import workshop
from reproduce.plan import Item, Plan

TICK = 0.2  # seconds between looks at time limits
OUTCOME = re.compile(r"\S+ \S+ (?P<outcome>ok|FAILED) (?P<seconds>[\d.]+)s(: (?P<error>.*)| \((?P<cached>cached)\))?")
Ending = tuple[Item, str | None, float]  # an item, None or what went wrong, seconds


@dataclass
class Report:
    """How every item ended: id -> seconds, reason, or error line. `live`: the ids at work."""

    total: int = 0
    ran: dict[str, float] = field(default_factory=dict)
    cached: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    blocked: dict[str, str] = field(default_factory=dict)
    live: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ran) + len(self.cached) + len(self.failed) + len(self.blocked)

    def line(self, id: str, outcome: str, rest: str) -> str:
        """Write the one line of an item that has ended; OUTCOME reads it."""
        return f"[{len(self)}/{self.total}] {id} {outcome}{rest}"

    def done(self, id: str, seconds: float, cached: bool = False) -> str:
        """Note an item that is done, and return its line."""
        (self.cached if cached else self.ran)[id] = seconds
        return self.line(id, "ok", f" {seconds:.1f}s{' (cached)' if cached else ''}")

    def fail(self, id: str, error: str, seconds: float) -> str:
        """Note a failure and return its line."""
        self.failed[id] = error
        return self.line(id, "FAILED", f" {seconds:.1f}s: {error}")

    def block(self, item: Item) -> str | None:
        """Note an item whose run has failed and return its line, or None if no run has."""
        lost = next((need for need in item.needs if need in self.failed), None)
        if lost is None:
            return None
        self.blocked[item.id] = f"needs {lost}, which failed"
        return self.line(item.id, "blocked", f": {self.blocked[item.id]}")


def read_line(line: str) -> tuple[str | None, float, bool]:
    """Read an item's line: None or what went wrong, seconds, and whether it was cached. Any other text went wrong."""
    found = OUTCOME.fullmatch(line)
    if not found:
        return one_line(line.removeprefix("reproduce: ")) or "its process died", 0.0, False
    error = found["error"] if found["outcome"] == "FAILED" else None
    return error, float(found["seconds"]), found["cached"] is not None


Show = Callable[[str, Report], None]  # called with a line, or "" for none, on every change and every TICK


class Engine(Protocol):
    """What makes items, several at once."""

    apart: bool  # True: items are made by commands of their own, `python -m reproduce cell`

    @property
    def live(self) -> list[Item]:
        """The items at work."""

    def open(self, scratch: Path, items: list[Item]) -> None:
        """Get ready to make these items; called once, before the first begins."""

    def free(self, item: Item) -> bool:
        """Say whether the item may begin now."""

    def begin(self, item: Item, found: keys.Parts, fresh: bool) -> None:
        """Begin to make an item with this key; fresh: from nothing, even if a run could be resumed."""

    def ended(self) -> list[Ending]:
        """Wait a moment and return the items that have ended since."""

    def close(self) -> None:
        """End whatever is still at work."""


class Batch:
    """One command's items: some wait for runs, some are ready, some at work, the rest is in the report."""

    def __init__(self, plan: Plan, items: list[Item], forced: set[str], engine: Engine, scratch: Path) -> None:
        self.plan, self.forced, self.engine, self.scratch = plan, forced, engine, scratch
        self.waiting = [item for item in items if item.skip is None]
        self.report = Report(len(self.waiting))
        self.ready: list[tuple[Item, keys.Parts]] = []
        self.mine = {item.id for item in items}
        self.demand = demand(items)
        self.tries: Counter[str] = Counter()
        self.opened = False

    def run(self, show: Show) -> Report:
        """Work until nothing is left."""
        try:
            self.settle(show)
            while self.ready or self.engine.live:
                if not self.opened:
                    self.opened = True
                    self.engine.open(self.scratch, [*self.waiting, *(item for item, _ in self.ready)])
                for item, found in list(self.ready):
                    if self.engine.free(item):
                        self.ready.remove((item, found))
                        self.engine.begin(item, found, self.fresh(item))
                for ending in self.engine.ended():
                    show(self.note(*ending), self.report)
                self.report.live = [item.id for item in self.engine.live]
                show("", self.report)
                self.settle(show)
        finally:
            self.engine.close()
        return self.report

    def fresh(self, item: Item) -> bool:
        """Say whether the item begins from nothing: it is forced, and no try has got beyond what was there before."""
        untouched = not self.tries[item.id] or bool(keys.read_marker(self.plan.folder / item.id))
        return item.id in self.forced and untouched

    def settle(self, show: Show) -> None:
        """Move items whose runs have ended: to the report if blocked or cached, else to the ready ones.

        Artefacts go first, so that each comes as soon as its own runs are done; then runs that many need.
        """
        report = self.report
        for item in list(self.waiting):
            if line := report.block(item):
                self.waiting.remove(item)
                show(line, report)
            elif all(need in report.ran or need in report.cached for need in item.needs if need in self.mine):
                self.waiting.remove(item)
                folder, found = self.plan.folder / item.id, keys.parts(self.plan, item)
                if item.id not in self.forced and keys.is_done(item, folder, found):
                    seconds = keys.read_marker(folder, "provenance.json").get("wall_seconds", 0.0)
                    show(report.done(item.id, seconds, cached=True), report)
                else:
                    self.ready.append((item, found))
        self.ready.sort(key=lambda pair: -self.demand[pair[0].id])

    def note(self, item: Item, error: str | None, seconds: float) -> str:
        """Take in how an item ended; one that failed gets another try if any is left. Returns its line."""
        if error is None:
            return self.report.done(item.id, seconds)
        retries = self.plan.preset.retries
        if self.tries[item.id] == retries:
            return self.report.fail(item.id, error, seconds)
        self.tries[item.id] += 1
        self.ready.append((item, keys.parts(self.plan, item)))
        return f"{item.id} failed, trying again ({self.tries[item.id]} of {retries}): {error}"


def demand(items: list[Item]) -> Counter[str]:
    """Count the artefacts that wait for each run. An artefact itself counts more than any run."""
    counts = Counter(need for item in items for need in item.needs)
    return counts | Counter({item.id: len(items) + 1 for item in items if item.kind == "artefact"})


@contextmanager
def stoppable() -> Iterator[None]:
    """Turn the system's request to end into an exception, so that everything is closed on the way out."""
    codes: list[int] = []

    def stop(number: int, frame: object) -> None:
        codes.append(128 + number)
        raise SystemExit(codes[0])

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except SystemExit as end:  # Ray replaces ours by one of its own
        raise SystemExit(codes[0] if codes else end.code) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def execute(plan: Plan, items: list[Item], forced: set[str], engine: Engine, show: Show) -> Report:
    """Run what is not current and say how every item ended."""
    if all(item.skip is not None for item in items):
        return Report()
    with stoppable(), workshop(plan, items, apart=engine.apart) as scratch:
        return Batch(plan, items, forced, engine, scratch).run(show)
