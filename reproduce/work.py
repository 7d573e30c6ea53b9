"""Make one item, whole or not at all: execute its notebook, check what it wrote, say where it came from.

Works in a process of its own that leads a process group; `python -m reproduce.work` is such a process by hand.
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

from reproduce import HOME, UserError, keys, one_line, provenance, write_atomic
from reproduce.plan import Item, Plan, load

LAST = "import resource as _resource\nprint('finished', _resource.getrusage(_resource.RUSAGE_SELF).ru_maxrss)"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; form-action 'none'"
BEGAN = time.time()  # in a fork: when the server began, which has imported what most items need
Say = Callable[[str | None], None]  # takes None for a success, or one line that says what went wrong


def environment(root: Path, scratch: Path) -> dict[str, str]:
    """Return what makes kernels repeat: one thread, no hash noise, this repository's packages, no personal settings.

    One thread is required: a fork of a process whose OpenMP has several hangs in its first matrix product.
    """
    paths = [str(root / "src"), str(root), str(HOME), os.environ.get("PYTHONPATH", "")]
    return {
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
        "PYTHONHASHSEED": "0",
        "SOURCE_DATE_EPOCH": "0",
        "TMPDIR": str(scratch),
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "JUPYTER_RUNTIME_DIR": str(scratch / "runtime"),
        "IPYTHONDIR": str(scratch / "ipython"),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "TOKENIZERS_PARALLELISM": "false",
        "TQDM_DISABLE": "1",  # a page of a finished run needs no bars
    }


def make(plan: Plan, item: Item, scratch: Path, lifeline: int, say: Say) -> None:
    """Make the item and say how it ended. When `lifeline` reaches its end, so does this process group."""
    from reproduce.kernel import Manager

    Manager.fork()
    threading.Thread(target=watch, args=(lifeline, item.timeout, say), daemon=True).start()
    try:
        produce(plan, item, scratch)
        say(None)
    except Exception as error:  # noqa: BLE001  the boundary of an item: whatever it is, the others go on
        name = getattr(error, "ename", type(error).__name__)  # of what the notebook raised, if papermill says so
        text = getattr(error, "evalue", error)
        say(one_line(f"{name}: {text}"))
    finally:
        Manager.process.kill()


def watch(lifeline: int, timeout: int, say: Say) -> None:
    """End this process group when whoever asked for the item has gone, or when its time is used up."""
    if not select.select([lifeline], [], [], timeout)[0]:
        say(f"timed out after {timeout} s")
    os.killpg(0, signal.SIGKILL)


def produce(plan: Plan, item: Item, scratch: Path) -> None:
    """Make the item, a table or figure in a folder beside its place, which then takes its place."""
    import nbformat

    found, facts, files = keys.parts(plan, item), provenance.record(plan, item), keys.modules(plan.root)
    late = [name for name in found["modules"] if name in sys.modules and files.file_of(name).stat().st_mtime > BEGAN]
    if late:
        raise UserError(f"{late[0]} was edited after this command had loaded it; start the same command again")
    folder, target = prepare(plan, item, keys.key(found)), plan.folder / item.id
    started = time.monotonic()
    notebook, peak_kib = execute(plan, item, folder, scratch)
    facts["wall_seconds"] = round(time.monotonic() - started, 2)
    facts["peak_rss_mib"] = round(peak_kib / 1024, 1)
    facts["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
    write_atomic(folder / "provenance.json", json.dumps(facts, indent=1) + "\n")
    if item.kind == "run":
        write_atomic(folder / "notebook.ipynb", nbformat.writes(notebook) + "\n")
    else:  # what else the notebook wrote belongs to other artefacts
        for file in {*folder.iterdir()} - {folder / name for name in (*item.outputs, "provenance.json", keys.RUNNING)}:
            file.unlink()
        write_html(notebook, folder / "notebook.html", item.id)
    (folder / keys.RUNNING).unlink()
    keys.write_marker(item, folder, found)
    if folder != target:
        shutil.rmtree(target, ignore_errors=True)
        folder.rename(target)


def prepare(plan: Plan, item: Item, key: str) -> Path:
    """Return the folder to work in: an empty one, or a run's that was interrupted and has the same key."""
    folder = staging(plan, item)
    if keys.read_marker(folder, keys.STARTED).get("key") != key or (folder / keys.MARKER).exists():
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / keys.FAILED).unlink(missing_ok=True)
    if item.kind == "run":
        write_atomic(folder / keys.STARTED, json.dumps({"key": key}) + "\n")
    return folder


def execute(plan: Plan, item: Item, folder: Path, scratch: Path) -> tuple[Any, int]:
    """Execute the notebook and check what it wrote. Returns the executed notebook and the kernel's peak KiB."""
    import nbformat
    import papermill
    from traitlets.config import Config

    from reproduce.kernel import Manager

    path = plan.root / item.notebook
    notebook = nbformat.v4.upgrade(nbformat.read(path, as_version=4))
    notebook.cells.append(nbformat.v4.new_code_cell(LAST, id="finished"))
    sockets = tempfile.mkdtemp(prefix="k", dir=scratch)
    executed = papermill.execute_notebook(
        notebook,
        str(folder / keys.RUNNING).replace("{", "{{").replace("}", "}}"),  # papermill fills in braces
        dict(item.parameters),
        kernel_name="python3",
        language="python",
        progress_bar=False,
        start_timeout=240,  # seconds; on a busy machine a kernel may import for long
        kernel_manager_class=Manager,
        config=Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/k"}}),
        cwd=path.parent,
    )
    peak_kib = finish(executed)
    wanted = [folder / name for name in item.outputs]
    if missing := [file.name for file in wanted if not (file.is_file() and file.stat().st_size)]:
        raise RuntimeError(f"did not write {', '.join(missing)}")
    return executed, peak_kib


def finish(notebook: Any) -> int:
    """Check that the last cell, which is ours, has spoken, and remove it. Returns the kernel's peak KiB.

    Papermill calls a notebook complete that left by sys.exit or whose kernel died.
    """
    last = notebook.cells.pop()
    spoken = re.fullmatch(r"finished (\d+)\s*", "".join(output.get("text", "") for output in last.outputs))
    if not spoken:
        raise RuntimeError("the notebook left early (sys.exit?) or its kernel died")
    for cell in notebook.cells:
        if "injected-parameters" in cell.metadata.get("tags", []):
            cell.id = "injected-parameters"  # papermill draws a random one
    return int(spoken[1])


def write_html(notebook: Any, path: Path, title: str) -> None:
    """Write the executed notebook as one page that loads nothing and runs no script, whatever it holds."""
    from nbconvert import HTMLExporter

    addresses = ("mathjax", "require_js", "mermaid_js", "mermaid_layout_elk_js", "jquery", "jupyter_widgets_base")
    exporter = HTMLExporter(**{f"{name}_url": "" for name in addresses})
    page, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": title}})
    policy = f'<meta http-equiv="Content-Security-Policy" content="{html.escape(POLICY)}">'
    path.write_text(page.replace("<head>", f"<head>{policy}", 1), encoding="utf-8")


def staging(plan: Plan, item: Item) -> Path:
    """Return the folder that an item writes into while it is at work."""
    return plan.folder / (item.id if item.kind == "run" else f".{item.id}.part")


def keep_failed(plan: Plan, item: Item) -> None:
    """Keep a failed item's notebook where its results would be; throw an artefact's other files away."""
    folder, target = staging(plan, item), plan.folder / item.id
    if (folder / keys.RUNNING).exists():
        target.mkdir(parents=True, exist_ok=True)
        os.replace(folder / keys.RUNNING, target / keys.FAILED)
    if folder != target:
        shutil.rmtree(folder, ignore_errors=True)


def main(root: str, preset: str, id: str, registry: str = "") -> None:
    """Make one item of the repository and print {"error": null or what went wrong}. Standard input is the lifeline."""
    plan = load(Path(root), preset, Path(registry) if registry else None)
    say: Say = lambda error: print(json.dumps({"error": error}), flush=True)  # noqa: E731
    # A short name: the address of a socket has at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="coevolve-", dir="/tmp", ignore_cleanup_errors=True) as scratch:
        os.environ |= environment(plan.root, Path(scratch))
        make(plan, plan.items[id], Path(scratch), sys.stdin.fileno(), say)
    os.killpg(0, signal.SIGKILL)  # with whatever the notebook has left at work


if __name__ == "__main__":
    main(*sys.argv[1:])
