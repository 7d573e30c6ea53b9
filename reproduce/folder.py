"""Who may write into a preset's results folder: locks, scratch folders, and sweeping up after a killed command.

A batch holds the whole lock file; a cell holds one byte of it, so cells exclude a batch but not each other.
Byte locks work over NFS, and the system frees them however a process ends.
"""

import errno
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from reproduce import UserError
from reproduce.keys import digest
from reproduce.plan import Item, Plan

LOCK = ".lock"
LATENCY = 60.0  # seconds that a network file system may hide what another machine wrote
LONGEST = 50  # characters of a temporary folder: the address of a socket in it has at most 107


def check_writable(plan: Plan, items: list[Item]) -> None:
    """Refuse a results folder that is read-only, or marked so: the mark counts for the superuser too."""
    results = plan.folder
    for folder in (results.parent, results, results / "runs", *(results / item.id for item in items)):
        if folder.is_dir():
            marked = not stat.S_IMODE(folder.stat().st_mode) & 0o222
            if marked or not os.access(folder, os.W_OK):
                raise UserError(f"{folder} is read-only")


def take(plan: Plan, id: str, patience: float) -> IO[str]:
    """Lock the byte of one item, or all bytes for a batch (id ""); wait at most `patience` seconds for it."""
    try:
        plan.folder.mkdir(parents=True, exist_ok=True)
        file = (plan.folder / LOCK).open("a+", encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write to {plan.folder}: {error.strerror}") from None
    length, start = (1, 1 + int(digest(id.encode())[:12], 16)) if id else (0, 0)
    limit = time.monotonic() + patience
    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)
            return file
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):  # some network file systems are mounted without locks
                file.close()
                raise UserError(f"cannot lock {plan.folder / LOCK}: {error.strerror}") from None
            if time.monotonic() >= limit:
                file.close()
                where = f"{plan.folder}{f' on {id}' if id else ''}"
                raise UserError(f"another command is at work in {where}; wait for it or stop it") from None
        time.sleep(0.1)


def sweep(plan: Plan, id: str) -> None:
    """Remove what a killed command left of one item, or of all (id "*"); put back what it was replacing."""
    for path in plan.folder.glob(f".{id}.part"):
        shutil.rmtree(path, ignore_errors=True)
    for path in plan.folder.glob(f".{id}.old"):
        target = plan.folder / path.name[1:-4]
        shutil.rmtree(path, ignore_errors=True) if target.exists() else path.rename(target)


def scratch_folder(plan: Plan, id: str) -> Path:
    """Make a scratch folder for one item or a batch (id ""), after removing those that killed ones left."""
    temporary = tempfile.gettempdir() if len(tempfile.gettempdir()) <= LONGEST else "/tmp"
    prefix = f"coevolve-{digest(str(plan.folder).encode())[:6]}-"
    prefix += f"{digest(id.encode())[:10]}-" if id else ""
    for old in Path(temporary).glob(f"{prefix}*"):
        shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=prefix, dir=temporary))


@contextmanager
def workshop(
    plan: Plan, items: list[Item], cell: bool = False, apart: bool = False, patience: float = 0.0
) -> Iterator[Path]:
    """Hold the results folder, or as a `cell` only one item's place in it, and a fresh scratch folder.

    `apart`: the items are made by cells; after sweeping up, the folder is open to them and closed to batches.
    """
    check_writable(plan, items)
    id = items[0].id if cell else ""
    with take(plan, id, patience) as file:
        sweep(plan, id or "*")
        scratch = scratch_folder(plan, id)
        if apart:
            fcntl.lockf(file, fcntl.LOCK_UN, 0, 1)
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
