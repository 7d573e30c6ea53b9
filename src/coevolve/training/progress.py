"""Progress on the terminal, and the seconds that each phase of a run takes.

With several processes only the first one prints.
"""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from tqdm.auto import tqdm

from coevolve.runs import show
from coevolve.training import diagnostics
from coevolve.training.config import Run
from coevolve.types import Outcome, Sample

SHOWN_CHARACTERS = 100  # of each reply that is printed at an evaluation
SHOWN_OF_FIELD = 40  # characters of each field of its prompt


def is_first_process() -> bool:
    """Whether this process is the first of its run, by the environment; needs no torch."""
    return os.environ.get("RANK", "0") == "0"


def show_elapsed(description: str) -> tqdm:
    """Return a bar without a length: until it is closed, stderr shows the time that has passed."""
    bar = tqdm(
        bar_format=f"{description} ... {{elapsed}}", disable=not is_first_process()
    )
    return keep_refreshing(bar)


def keep_refreshing(bar: tqdm) -> tqdm:
    """Redraw a bar until it is closed, because one step may take minutes; return the bar.

    A terminal is redrawn every second, a log file every ten seconds.
    """

    def refresh_until_closed() -> None:
        while not bar.disable:  # closing a bar disables it
            time.sleep(1 if bar.fp.isatty() else 10)
            bar.refresh()

    threading.Thread(target=refresh_until_closed, daemon=True).start()
    return bar


class Timer:
    """Seconds spent in each phase, by name, and in all."""

    def __init__(self) -> None:
        self.started_at = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def elapsed(self) -> float:
        """Return the seconds since the timer was made."""
        return time.perf_counter() - self.started_at

    @contextmanager
    def phase(self, name: str, show: str = "") -> Iterator[None]:
        """Add the duration of a `with` block to a phase; `show` describes it on the terminal.

        Only one bar can be drawn at a time, so no description may be given while another is open.
        """
        start = time.perf_counter()
        with show_elapsed(show) if show else nullcontext():
            yield
        seconds_before = self.seconds.get(name, 0.0)
        self.seconds[name] = seconds_before + time.perf_counter() - start


@dataclass(frozen=True)
class StepEnd:
    """What has to happen after a step is recorded."""

    is_stopped: bool
    """A signal came: this was the last step for now."""
    is_saved: bool
    """A checkpoint is due."""


def described(sample: Sample) -> str:
    """Say in one line who replied, to a prompt with which fields, in which words, for what reward.

    The fields are shown because the roles of an episode may be asked about different questions.
    """
    turn = sample.reply.turn
    asked = []
    for name, value in turn.fields.items():
        asked.append(f"{name} {str(value)[:SHOWN_OF_FIELD]!r}")
    reads = f" reads {', '.join(asked)} and" if asked else ""
    said = sample.reply.text[:SHOWN_CHARACTERS]
    return f"{show.speaker_of(turn)}{reads} says {said!r}, {show.rewards(sample)}"


class StepDisplay:
    """The bar over the training steps, and messages above it; silent unless `is_shown`."""

    def __init__(self, run: Run, steps_done: int, is_shown: bool):
        self.is_shown = is_shown
        self.validation: float | None = None  # at the last evaluation
        self.steps_without_signal = 0
        self.bar = tqdm(
            total=run.steps,
            initial=steps_done,
            desc=f"{run.method_name} seed {run.seed}",
            bar_format="{l_bar}{bar:10}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}]{postfix}",
            disable=not is_shown,
        )

    def __enter__(self) -> Self:
        keep_refreshing(self.bar)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.bar.close()

    def show_replies(self, step: int, outcome: Outcome) -> None:
        """Print the last reply of each role of an episode, with what it read and its reward."""
        if not self.is_shown:
            return
        line_of_role = {}
        for sample in outcome.samples:
            line_of_role[sample.role] = described(sample)
        title = f"step {step}, replies of one episode:"
        tqdm.write("\n  ".join([title, *line_of_role.values()]))

    def advance(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Move the bar by one step; warn once if too many steps in a row taught nothing."""
        if diagnostics.has_no_signal(metrics) or metrics.get("skipped_update"):
            self.steps_without_signal += 1
        else:
            self.steps_without_signal = 0
        if self.is_shown and self.steps_without_signal == diagnostics.PATIENCE:
            tqdm.write(
                f"warning: nothing was learnt in the last {self.steps_without_signal} steps up to "
                f"step {step}: no reply had an advantage, or no gradient was finite"
            )
        self.validation = metrics.get("validation", self.validation)
        self.bar.set_postfix_str(self._postfix(metrics))
        self.bar.update()

    def _postfix(self, metrics: Mapping[str, Any]) -> str:
        """Return the last accuracy in validation and the rewards of whole replies by role."""
        parts = []
        if self.validation is not None:
            parts.append(f"valid {self.validation:.0%}")
        for name, value in metrics.items():
            kind, _, role = name.partition("/")
            if kind == "reward" and "/" not in role:
                parts.append(f"{role} {value:.2f}")
        return " ".join(parts)
