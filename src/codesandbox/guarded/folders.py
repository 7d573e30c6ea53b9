"""Measure and remove folders that an untrusted program filled, whatever it put into them."""

import contextlib
import os
from itertools import islice
from typing import NamedTuple


class FolderSize(NamedTuple):
    """Number of entries below a folder, and their size in bytes."""

    entries: int
    size_bytes: int


def measure(folder: str, max_entries: int) -> FolderSize:
    """Measure everything below a folder, and stop soon after `max_entries`.

    A part that cannot be read counts as more than `max_entries`.
    """
    count = 0
    size_bytes = 0
    pending = [folder]
    while pending and count <= max_entries:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in islice(entries, max_entries + 1):
                    count += 1
                    with contextlib.suppress(
                        FileNotFoundError
                    ):  # deleted since it was listed
                        size_bytes += entry.stat(follow_symlinks=False).st_size
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(entry.path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:  # too long a path or no permission: a place to hide files in
            return FolderSize(max_entries + 1, size_bytes)
    return FolderSize(count, size_bytes)


def remove(path: str) -> None:
    """Remove a folder; chmod and rm, which cope with any depth and mode, remove a full one."""
    try:
        os.rmdir(path)
    except OSError:
        make_accessible = ["chmod", "-R", "u+rwx", path]
        delete = ["rm", "-rf", path]
        for command in (make_accessible, delete):
            pid = os.posix_spawnp(command[0], command, {})
            os.waitpid(pid, 0)
