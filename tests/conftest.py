"""Settings of all tests: no test depends on how fast the machine is."""

import os
import signal
import sys

import pytest
from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
# A shell starts background jobs deaf to Ctrl-C. The commands that the tests start and interrupt
# would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers() -> int:
    """Start a worker more than there are cores: tests often wait for processes they started."""
    return (os.cpu_count() or 1) + 1


@pytest.fixture(scope="module")
def landlock():
    """Skip where the kernel has no Landlock: no program runs there unasked."""
    from codesandbox.guarded import guard

    if (
        not sys.platform.startswith("linux")
        or guard.LIBC.syscall(guard.LANDLOCK_CREATE, None, 0, 1) < 1
    ):
        pytest.skip("no Landlock here")
