"""Ctrl-C and SIGTERM during training: the current step ends as usual, then the run stops."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

MESSAGE = b"\nstopping after this step; Ctrl-C once more stops at once\n"
STDERR = 2


@contextmanager
def stop_after_step() -> Iterator[list[int]]:
    """Collect the numbers of received signals in a list; a second Ctrl-C interrupts at once.

    A second SIGTERM does not, because launchers of several processes send one after a Ctrl-C.
    Outside the main thread, which alone may receive signals, nothing changes.
    """
    received: list[int] = []

    def note_signal(number: int, frame: FrameType | None) -> None:
        received.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.write(STDERR, MESSAGE)  # `print` may be in the middle of a write

    previous_handlers = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            previous_handlers[number] = signal.signal(number, note_signal)
    try:
        yield received
    finally:
        for number, handler in previous_handlers.items():
            # None: the handler was not set from Python.
            signal.signal(number, handler or signal.SIG_DFL)
