"""Run by test_other_systems.py: imports modules as on Windows, then says what could not be had.

Takes module names. Prints a JSON list of [module, error].
"""

import asyncio  # noqa: F401  the standard library is imported as this system's
import concurrent.futures  # noqa: F401
import ctypes  # noqa: F401
import importlib
import json
import multiprocessing.pool  # noqa: F401
import os
import signal
import sys
import tempfile  # noqa: F401
import uuid  # noqa: F401

UNIX_MODULES = ("fcntl", "resource", "termios", "pwd", "grp", "pty", "tty")
UNIX_SIGNALS = ("SIGKILL", "SIGALRM", "SIGHUP", "SIGSTOP", "SIGCHLD", "SIGUSR1")
UNIX_FUNCTIONS = ("fork", "killpg", "sched_getaffinity", "geteuid", "pidfd_open")
# Other people's packages, which find their own way on Windows.
PACKAGES = (
    "filelock",
    "httpx",
    "huggingface_hub",
    "markupsafe",
    "mistune",
    "pandas",
    "pydantic",
    "scipy.stats",
    "sympy",
    "tqdm.auto",
    "typer",
)


class NoUnixModules:
    """Finds none of the modules that Windows does not have."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name in UNIX_MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def become_windows() -> None:
    """Remove what this Python has and one on Windows has not."""
    for name in PACKAGES:
        importlib.import_module(name)
    sys.meta_path.insert(0, NoUnixModules())
    for name in UNIX_MODULES:
        sys.modules.pop(name, None)
    for name in UNIX_SIGNALS:
        delattr(signal, name)
    for name in UNIX_FUNCTIONS:
        delattr(os, name)
    sys.platform = "win32"


def main(modules: list[str]) -> None:
    become_windows()
    faults = []
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001  whatever it is, it is told
            faults.append([name, f"{type(error).__name__}: {error}"])
    print(json.dumps(faults))


if __name__ == "__main__":
    main(sys.argv[1:])
