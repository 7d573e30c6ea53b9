"""Folders that a program filled as it liked: measured and removed, whatever is in them."""

import contextlib
import os
import stat
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
    """Remove a folder of any depth: folders are moved up to the top first, so no path and no recursion grows."""
    try:
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    waiting, moved = ["."], 0
    while waiting:
        name = waiting.pop()
        with contextlib.suppress(OSError):
            at = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
            for inner in os.listdir(at):
                with contextlib.suppress(OSError):
                    if stat.S_ISDIR(os.stat(inner, dir_fd=at, follow_symlinks=False).st_mode):
                        os.chmod(inner, 0o700, dir_fd=at)
                        moved += 1
                        os.rename(inner, f".sweep{moved}", src_dir_fd=at, dst_dir_fd=top)
                        waiting.append(f".sweep{moved}")
                    else:
                        os.unlink(inner, dir_fd=at)
            os.close(at)
            if name != ".":
                os.rmdir(name, dir_fd=top)
    os.close(top)
    with contextlib.suppress(OSError):
        os.rmdir(path)
