"""Make one item, whole or not at all: execute its notebook, check its files, record its origin.

Works in its own process, which leads a process group; `python -m reproduce.work` is such a process.
"""

import html
import json
import os
import re
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from reproduce import HOME, UserError, keys, one_line, provenance
from reproduce.plan import Item, Plan, load

# Added to every notebook as its last cell: shows that the end was reached, and the peak memory.
LAST_CELL = """\
import resource as _resource
print('finished', _resource.getrusage(_resource.RUSAGE_SELF).ru_maxrss)"""
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; "
    "form-action 'none'"
)
SCRIPTS = (  # addresses of scripts that nbconvert's pages would load
    "mathjax",
    "require_js",
    "mermaid_js",
    "mermaid_layout_elk_js",
    "jquery",
    "jupyter_widgets_base",
)
KERNEL_START_SECONDS = 240  # on a busy machine, a kernel's imports may take long
# In a fork: when the fork server had imported what most items need.
IMPORTED_AT = time.time()
# Called with None for a success, or a one-line error.
Answer = Callable[[str | None], None]


def environment(root: Path, scratch: Path) -> dict[str, str]:
    """Return the variables that make kernels reproducible.

    One thread, no hash randomisation, this repository's packages, no personal settings. One thread
    is required: a fork of a process with several OpenMP threads hangs in its first matrix product.
    """
    paths = [str(root / "src"), str(root), str(HOME)]
    inherited = os.environ.get("PYTHONPATH")
    if inherited:
        paths.append(inherited)
    return {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "SOURCE_DATE_EPOCH": "0",
        "TMPDIR": str(scratch),
        "PYTHONPATH": os.pathsep.join(paths),
        "JUPYTER_RUNTIME_DIR": str(scratch / "runtime"),
        "IPYTHONDIR": str(scratch / "ipython"),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "TOKENIZERS_PARALLELISM": "false",
        "TQDM_DISABLE": "1",  # the page of a finished run needs no progress bars
    }


def make(plan: Plan, item: Item, scratch: Path, lifeline: int, answer: Answer) -> None:
    """Make the item and report the result to `answer`.

    When the file descriptor `lifeline` reaches its end, this process group ends.
    """
    from reproduce.kernel import Manager

    Manager.fork()
    watcher = threading.Thread(
        target=watch, args=(lifeline, item.timeout, answer), daemon=True
    )
    watcher.start()
    try:
        produce(plan, item, scratch)
        answer(None)
    except Exception as error:  # noqa: BLE001  whatever fails in one item, the others continue
        # Papermill's errors carry the name and text of the exception in the notebook.
        name = getattr(error, "ename", type(error).__name__)
        text = getattr(error, "evalue", error)
        answer(one_line(f"{name}: {text}"))
    finally:
        Manager.process.kill()


def watch(lifeline: int, timeout: int, answer: Answer) -> None:
    """End this process group when its parent has gone or after `timeout` seconds."""
    readable, _, _ = select.select([lifeline], [], [], timeout)
    if not readable:
        answer(f"timed out after {timeout} s")
    os.killpg(0, signal.SIGKILL)


def produce(plan: Plan, item: Item, scratch: Path) -> None:
    """Make the item. An artefact is made in a folder beside its place and then moved there.

    Raises UserError if code that the item needs was edited after this process had imported it.
    """
    parts = keys.dependencies(plan, item)
    facts = provenance.record(plan, item)
    check_imported(plan, parts["modules"])
    folder = prepare(plan, item, keys.key_of(parts))
    started_at = time.monotonic()
    notebook, peak_kib = execute(plan, item, folder, scratch)
    facts["wall_seconds"] = round(time.monotonic() - started_at, 2)
    facts["peak_rss_mib"] = round(peak_kib / 1024, 1)
    facts["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
    write_files(item, folder, notebook, facts)
    keys.write_marker(item, folder, parts)
    target = plan.folder / item.id
    if folder != target:
        shutil.rmtree(target, ignore_errors=True)
        folder.rename(target)


def check_imported(plan: Plan, modules: dict[str, str]) -> None:
    """Raise UserError if one of these modules is imported and its file was edited since."""
    code = keys.modules(plan.root)
    for name in modules:
        if name in sys.modules and code.file_of(name).stat().st_mtime > IMPORTED_AT:
            raise UserError(
                f"{name} was edited after this command had loaded it; start the same command again"
            )


def write_files(item: Item, folder: Path, notebook: Any, facts: dict[str, Any]) -> None:
    """Write the item's origin and its executed notebook, an artefact's as a page."""
    import nbformat

    from coevolve.runs.record import write_atomically

    write_atomically(folder / keys.PROVENANCE, json.dumps(facts, indent=1) + "\n")
    if item.kind == "run":
        write_atomically(folder / keys.EXECUTED, nbformat.writes(notebook) + "\n")
    else:
        remove_unlisted(item, folder)
        write_html(notebook, folder / "notebook.html", item.id)
    (folder / keys.RUNNING).unlink()


def remove_unlisted(item: Item, folder: Path) -> None:
    """Remove files that the notebook wrote for other artefacts."""
    kept = {*item.outputs, keys.PROVENANCE, keys.RUNNING}
    for file in [*folder.iterdir()]:
        if file.name not in kept:
            file.unlink()


def prepare(plan: Plan, item: Item, key: str) -> Path:
    """Return the folder to work in: empty, or that of an interrupted run with the same key."""
    from coevolve.runs.record import write_atomically

    folder = staging(plan, item)
    is_same = keys.read_marker(folder, keys.STARTED).get("key") == key
    if not is_same or (folder / keys.MARKER).exists():
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / keys.FAILED).unlink(missing_ok=True)
    if item.kind == "run":
        write_atomically(folder / keys.STARTED, json.dumps({"key": key}) + "\n")
    return folder


def execute(plan: Plan, item: Item, folder: Path, scratch: Path) -> tuple[Any, int]:
    """Execute the notebook and return it with its kernel's peak memory in KiB.

    Raises RuntimeError if it stopped early or an output is missing or empty.
    """
    import nbformat
    import papermill
    from traitlets.config import Config

    from reproduce.kernel import Manager

    path = plan.root / item.notebook
    notebook = nbformat.v4.upgrade(nbformat.read(path, as_version=4))
    notebook.cells.append(nbformat.v4.new_code_cell(LAST_CELL, id="finished"))
    sockets = tempfile.mkdtemp(prefix="k", dir=scratch)
    # Papermill formats the path with the parameters, so braces in it are doubled.
    output_path = str(folder / keys.RUNNING).replace("{", "{{").replace("}", "}}")
    executed = papermill.execute_notebook(
        notebook,
        output_path,
        dict(item.parameters),
        kernel_name="python3",
        language="python",
        progress_bar=False,
        start_timeout=KERNEL_START_SECONDS,
        kernel_manager_class=Manager,
        config=Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/k"}}),
        cwd=path.parent,
    )
    peak_kib = finish(executed)
    missing = [name for name in item.outputs if not _is_written(folder / name)]
    if missing:
        raise RuntimeError(f"did not write {', '.join(missing)}")
    return executed, peak_kib


def _is_written(file: Path) -> bool:
    return file.is_file() and file.stat().st_size > 0


def finish(notebook: Any) -> int:
    """Remove the added last cell and return the peak memory in KiB that it printed.

    Raises RuntimeError if the cell did not run: for papermill, a notebook that called sys.exit or
    whose kernel died is complete.
    """
    last_cell = notebook.cells.pop()
    printed = "".join(output.get("text", "") for output in last_cell.outputs)
    match = re.fullmatch(r"finished (\d+)\s*", printed)
    if not match:
        raise RuntimeError("the notebook left early (sys.exit?) or its kernel died")
    for cell in notebook.cells:
        if "injected-parameters" in cell.metadata.get("tags", []):
            cell.id = "injected-parameters"  # papermill draws a random id
    return int(match[1])


def write_html(notebook: Any, path: Path, title: str) -> None:
    """Write the executed notebook as one page that loads nothing and runs no script."""
    from nbconvert import HTMLExporter

    no_addresses = {f"{name}_url": "" for name in SCRIPTS}
    exporter = HTMLExporter(**no_addresses)
    page, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": title}})
    content = html.escape(POLICY)
    policy = f'<meta http-equiv="Content-Security-Policy" content="{content}">'
    path.write_text(page.replace("<head>", f"<head>{policy}", 1), encoding="utf-8")


def staging(plan: Plan, item: Item) -> Path:
    """Return the folder that an item writes to while it is being made."""
    return plan.folder / (item.id if item.kind == "run" else f".{item.id}.part")


def keep_failed(plan: Plan, item: Item) -> None:
    """Keep a failed item's notebook in its results folder; remove an artefact's other files."""
    folder = staging(plan, item)
    target = plan.folder / item.id
    if (folder / keys.RUNNING).exists():
        target.mkdir(parents=True, exist_ok=True)
        os.replace(folder / keys.RUNNING, target / keys.FAILED)
    if folder != target:
        shutil.rmtree(folder, ignore_errors=True)


def print_answer(error: str | None) -> None:
    """Print an item's error, or null for a success, as JSON."""
    print(json.dumps({"error": error}), flush=True)


def main(root: str, preset: str, id: str, registry: str = "") -> None:
    """Make one item of the repository and print its error as JSON. Standard input is the lifeline.

    Ends with this process group, so that nothing that the notebook started lives on.
    """
    plan = load(Path(root), preset, Path(registry) if registry else None)
    # A short name: the address of a socket has at most 107 characters.
    with tempfile.TemporaryDirectory(
        prefix="coevolve-", dir="/tmp", ignore_cleanup_errors=True
    ) as scratch:
        os.environ |= environment(plan.root, Path(scratch))
        make(plan, plan.items[id], Path(scratch), sys.stdin.fileno(), print_answer)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
