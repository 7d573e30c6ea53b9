"""What happens in a worker process: produce one item's folder, whole or not at all.

Knows folders, markers and provenance; leaves the notebook itself to cell.py and the order to run.py.
"""

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from reproduce import cell, keys, provenance, warm, write_atomic
from reproduce.plan import Item, Plan


@dataclass(frozen=True)
class Job:
    """All that a worker needs to know."""

    plan: Plan
    item: Item
    found: keys.Parts
    fresh: bool  # True: start from nothing even if an interrupted run could be resumed
    scratch: Path
    environment: dict[str, str]
    common: dict[str, Any]  # provenance that all items share


def work(job: Job, pipe: Connection, parent: int) -> None:
    """Produce the item and send (None, seconds), or (one line saying what went wrong, seconds)."""
    warm.die_with_parent(signal.SIGKILL, parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the runner decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    log = os.open(job.scratch / "workers.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(log, stream.fileno())
    os.environ.clear()
    os.environ.update(job.environment)
    tempfile.tempdir = str(job.scratch)
    started, error = time.monotonic(), None
    try:
        (produce_run if job.item.kind == "run" else produce_artefact)(job, started)
    except Exception as fault:  # noqa: BLE001  the boundary of an item: whatever it is, the others go on
        error = cell.last_line(fault)
    pipe.send((error, time.monotonic() - started))


def produce_artefact(job: Job, started: float) -> None:
    """Make a table or figure in a folder beside its place, then put it there."""
    target, part = job.plan.folder / job.item.id, staging(job.plan.folder, job.item)
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    notebook = produce(job, part, started)
    (part / keys.RUNNING).unlink()
    cell.write_html(notebook, part / "notebook.html", job.item.id)
    keys.write_marker(job.item, part, job.found)
    old = job.plan.folder / f".{job.item.id}.old"
    if target.exists():
        target.rename(old)
    part.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def produce_run(job: Job, started: float) -> None:
    """Make a training run in its place, going on from its checkpoint if the key is the same."""
    folder = job.plan.folder / job.item.id
    key = keys.key(job.found)
    resumes = keys.read_marker(folder, keys.STARTED).get("key") == key and not (folder / keys.MARKER).exists()
    if job.fresh or not resumes:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    for left in (keys.FAILED, keys.RUNNING):
        (folder / left).unlink(missing_ok=True)
    write_atomic(folder / keys.STARTED, json.dumps({"key": key}) + "\n")
    notebook = produce(job, folder, started)
    write_atomic(folder / "notebook.ipynb", cell.as_text(notebook))
    (folder / keys.RUNNING).unlink()
    keys.write_marker(job.item, folder, job.found)


def produce(job: Job, folder: Path, started: float) -> Any:
    """Execute the notebook, check what it wrote, and write provenance. Returns the executed notebook."""
    item, root = job.item, job.plan.root
    # Through its client even a kernel without a server ends with this process, and leaves the folder to a next try.
    notebook, kernel, peak_kib = cell.execute(item, root, folder, warm.SPEC, job.scratch)
    kernel = kernel if warm.SERVER in job.environment else "python3"
    cell.check_outputs(item, folder)
    seconds = time.monotonic() - started
    facts = provenance.record(item, job.common, job.plan.preset.name, kernel, seconds, peak_kib)
    write_atomic(folder / "provenance.json", json.dumps(facts, indent=1) + "\n")
    return notebook


def staging(results: Path, item: Item) -> Path:
    """Return the folder that an item writes into while it is at work."""
    return results / item.id if item.kind == "run" else results / f".{item.id}.part"


def keep_failed(results: Path, item: Item) -> None:
    """Keep a failed item's notebook where its results would be; throw an artefact's other files away."""
    folder, target = staging(results, item), results / item.id
    if (folder / keys.RUNNING).exists():
        target.mkdir(parents=True, exist_ok=True)
        os.replace(folder / keys.RUNNING, target / keys.FAILED)
    if folder != target:
        shutil.rmtree(folder, ignore_errors=True)
