"""Folders that a program filled as it liked: measured and removed, whatever is in them."""

import contextlib
import os
from itertools import islice


def size(folder: str, most: int) -> tuple[int, int]:
    """Number and bytes of the entries below a folder; the number passes `most` where a part cannot be read."""
    count = total = 0
    waiting = [folder]
    while waiting and count <= most:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in islice(entries, most + 1):
                    count += 1
                    with contextlib.suppress(FileNotFoundError):  # deleted since it was listed
                        total += entry.stat(follow_symlinks=False).st_size
                        waiting += [entry.path] if entry.is_dir(follow_symlinks=False) else []
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:  # its path is too long or it may not be read: a place to hide files in
            return most + 1, total
    return count, total


def sweep(path: str) -> None:
    """Remove a folder; one that is not empty is left to the system's own tools, which know any depth and any mode."""
    try:
        os.rmdir(path)
    except OSError:
        for command in (["chmod", "-R", "u+rwx", path], ["rm", "-rf", path]):
            os.waitpid(os.posix_spawnp(command[0], command, {}), 0)
