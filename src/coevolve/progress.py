"""One progress display for notebooks, terminals and logs; it only ever prints, and knows nothing of training.

A notebook shows one line with a small curve of every metric, updated in place and saved in its last state. A log gets
whole lines. Set COEVOLVE_PROGRESS=lines to have whole lines everywhere (a notebook then shows both), as a batch wants.
"""

import math
import os
import sys
import time
from types import TracebackType

from coevolve.show import escape, visible

WIDTH, HEIGHT = 180, 48  # of a curve, in pixels; it has at most as many points as pixels


class Progress:
    """A `with` block around a loop of `total` steps; call `update` after every step."""

    def __init__(self, total: int, label: str, every: int, seconds: float):
        self.total, self.label, self.every, self.seconds = total, label, every, seconds
        self.step, self.metrics = 0, {}
        self.began = self.spoke = time.monotonic()
        self.first: tuple[int, float] | None = None  # a resumed run starts late: its pace counts from here

    def __enter__(self) -> "Progress":
        self.began = self.spoke = time.monotonic()
        self.show()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        spent = duration(time.monotonic() - self.began)
        last = f"{self.line()} {'stopped after' if kind else 'took'} {spent}"
        self.draw(last)
        self.tell(last)

    def update(self, step: int, **metrics: object) -> None:
        """Report that `step` of the `total` steps are done, with the newest metrics."""
        now = time.monotonic()
        if self.first is None:
            self.first = step - 1, self.began
        self.step, self.metrics = step, metrics
        self.show()
        if self.due(now):
            self.spoke = now
            self.tell(f"{self.line()} eta {self.eta(now)}")

    def due(self, now: float) -> bool:
        """Say whether a log line is due: every so many steps or seconds."""
        return self.step % self.every == 0 or now - self.spoke >= self.seconds

    def eta(self, now: float) -> str:
        """Return the time left at the pace so far as m:ss or h:mm:ss."""
        if self.first is None or self.step <= self.first[0]:
            return "?"
        pace = (now - self.first[1]) / (self.step - self.first[0])
        return duration(pace * max(0, self.total - self.step))

    def line(self) -> str:
        """Return the state in one line: `train step 12/40 reward 0.31`."""
        numbers = [f"{name} {_number(value)}" for name, value in self.metrics.items()]
        return visible(" ".join([self.label, f"step {self.step}/{self.total}", *numbers])).replace("\n", " ")

    def show(self) -> None:
        """Redraw the state as it is now."""
        self.draw(f"{self.line()} eta {self.eta(time.monotonic())}")

    def draw(self, line: str) -> None:
        """Redraw whatever can be redrawn; a log has nothing to redraw."""

    def tell(self, line: str) -> None:
        """Write one whole line to the log."""
        print(line, flush=True)


class _Notebook(Progress):
    handle, drawn = None, 0.0

    def __enter__(self) -> Progress:
        self.curves: dict[str, list[tuple[int, float]]] = {}
        return super().__enter__()

    def update(self, step: int, **metrics: object) -> None:
        for name, value in metrics.items():
            if isinstance(value, float) and math.isfinite(value):
                self.curves.setdefault(name, []).append((step, value))
        super().update(step, **metrics)

    def show(self) -> None:
        now = time.monotonic()
        if self.handle is None or now - self.drawn >= 0.2:  # more often would only flood the page
            self.drawn = now
            super().show()

    def tell(self, line: str) -> None:
        if _lines_wanted():
            super().tell(line)

    def draw(self, line: str) -> None:
        from IPython.display import HTML, display

        bar = f'<progress value="{self.step}" max="{self.total}"></progress>'
        drawn = {name: points for name, points in self.curves.items() if len(points) > 1}
        curves = "".join(_curve(name, points, self.total) for name, points in drawn.items())
        shown = HTML(f"<div>{bar} <code>{escape(line)}</code><br>{curves}</div>")
        if self.handle is None:
            self.handle = display(shown, display_id=True)
        else:
            self.handle.update(shown)


class _Terminal(Progress):
    def __enter__(self) -> "Progress":
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        self.bar = Bar(BarColumn(), TextColumn("{task.description}", markup=False))
        self.task = self.bar.add_task(self.label, total=self.total)
        self.bar.start()
        return super().__enter__()

    def draw(self, line: str) -> None:
        self.bar.update(self.task, completed=self.step, description=line)

    def tell(self, line: str) -> None:
        """Say nothing: the bar already shows it."""

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.bar.stop()


class _Silent(Progress):
    """Nothing at all, for a process whose news another one tells."""

    def tell(self, line: str) -> None:
        pass


def progress(total: int, label: str, every: int = 10, seconds: float = 10.0, silent: bool = False) -> Progress:
    """Return the display that fits: notebook, terminal, or a log line every `every` steps or `seconds`."""
    if total < 0 or every < 1:
        raise ValueError(f"total must not be negative and every must be at least 1, got {total} and {every}")
    if silent:
        return _Silent(total, label, every, seconds)
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is not None and hasattr(shell, "kernel"):
        return _Notebook(total, label, every, seconds)
    fits = _Terminal if sys.stdout.isatty() and not _lines_wanted() else Progress
    return fits(total, label, every, seconds)


def _curve(name: str, points: list[tuple[int, float]], total: int) -> str:
    """One metric over the steps as inline SVG, with its name, newest value and range."""
    thin = points[:: 1 + len(points) // WIDTH] + points[-1:]
    low, high = min(value for _, value in points), max(value for _, value in points)
    span = high - low or 1.0
    path = " ".join(f"{step / total * WIDTH:.0f},{(high - value) / span * HEIGHT:.1f}" for step, value in thin)
    line = f'<polyline points="{path}" fill="none" stroke="#0173b2" stroke-width="1.5"/>'
    box = f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="-2 -2 {WIDTH + 4} {HEIGHT + 4}">{line}</svg>'
    says = f"{escape(name)} {_number(points[-1][1])}<br>{_number(low)} to {_number(high)}"
    return f'<span style="display:inline-block;margin:6px 16px 6px 0">{box}<br><code>{says}</code></span>'


def duration(seconds: float) -> str:
    """Return seconds as m:ss, or h:mm:ss from an hour on."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _lines_wanted() -> bool:
    return os.environ.get("COEVOLVE_PROGRESS") == "lines"


def _number(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
