"""Execute one notebook with papermill and make sure that it really finished.

Papermill calls a notebook complete that left by sys.exit or whose kernel died; here a last cell of our own
must have run, and every declared output must be there. Does not know what else is to be done, and when.
"""

import html
import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import nbformat
import papermill
from jupyter_client.kernelspec import NoSuchKernel
from nbclient.exceptions import DeadKernelError
from nbconvert import HTMLExporter
from papermill.exceptions import PapermillExecutionError
from traitlets.config import Config

from reproduce import one_line
from reproduce.keys import RUNNING
from reproduce.plan import Item

LAST = "import resource as _resource\nprint('finished', _resource.getrusage(_resource.RUSAGE_SELF).ru_maxrss)"
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; media-src data:; "
    "form-action 'none'; base-uri 'none'"
)
START_TIMEOUT = 240  # seconds; a warm kernel may wait for its server's imports


class Unfinished(RuntimeError):
    """A notebook that did not come to its end, or did not write what it promised."""


def execute(item: Item, root: Path, folder: Path, kernel: str, scratch: Path) -> tuple[Any, str, int]:
    """Run the item's notebook, once more if its kernel did not start. Returns notebook, kernel, peak KiB."""
    prepared = prepare(root / item.notebook)
    try:
        executed = run_once(item, root, folder, kernel, scratch, prepared)
    except (RuntimeError, OSError, TimeoutError, NoSuchKernel) as error:
        if isinstance(error, DeadKernelError) or began(folder / RUNNING):
            raise
        kernel = "python3"
        executed = run_once(item, root, folder, kernel, scratch, prepared)
    return executed, kernel, finish(executed)


def prepare(path: Path) -> Any:
    """Read a notebook and append the cell that tells whether the end was reached."""
    notebook = nbformat.v4.upgrade(nbformat.read(path, as_version=4))
    notebook.cells.append(nbformat.v4.new_code_cell(LAST, id="finished"))
    return notebook


def run_once(item: Item, root: Path, folder: Path, kernel: str, scratch: Path, notebook: Any) -> Any:
    """Hand a notebook to papermill, its kernel on sockets of a fresh folder of their own."""
    sockets = tempfile.mkdtemp(prefix="k", dir=scratch)
    config = Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/k"}})
    output = str(folder / RUNNING).replace("{", "{{").replace("}", "}}")  # papermill fills in braces
    copy = nbformat.from_dict(json.loads(json.dumps(notebook)))
    try:
        return papermill.execute_notebook(
            copy,
            output,
            dict(item.parameters),
            kernel_name=kernel,
            language="python",
            progress_bar=False,
            start_timeout=START_TIMEOUT,
            config=config,
            cwd=(root / item.notebook).parent,
        )
    finally:
        shutil.rmtree(sockets, ignore_errors=True)


def began(path: Path) -> bool:
    """Say whether any cell of a notebook that papermill gave up has begun."""
    if not path.exists():
        return False
    cells = nbformat.read(path, as_version=4).cells
    return any(cell.metadata.get("papermill", {}).get("start_time") for cell in cells)


def finish(notebook: Any) -> int:
    """Check that every code cell ran and the last one spoke; remove that. Returns the kernel's peak KiB."""
    last = notebook.cells.pop()
    left = "the notebook left early (sys.exit?) or its kernel died"
    for number, cell in enumerate(notebook.cells, 1):
        skipped = "skip-execution" in cell.metadata.get("tags", [])
        if cell.cell_type == "code" and cell.source.strip() and cell.execution_count is None and not skipped:
            raise Unfinished(f"cell {number} never ran: {left}")
    spoken = re.fullmatch(r"finished (\d+)\s*", "".join(output.get("text", "") for output in last.outputs))
    if last.execution_count is None or not spoken:
        raise Unfinished(f"the end was not reached: {left}")
    for cell in notebook.cells:
        if "injected-parameters" in cell.metadata.get("tags", []):
            cell.id = "injected-parameters"  # papermill draws a random one
    return int(spoken.group(1))


def check_outputs(item: Item, folder: Path) -> None:
    """Refuse a notebook that ran but did not write what it promised."""
    files = {name: folder / name for name in item.outputs}
    if missing := [name for name, file in files.items() if not (file.is_file() and file.stat().st_size)]:
        raise Unfinished(f"did not write {', '.join(missing)}")


def write_html(notebook: Any, path: Path, title: str) -> None:
    """Write the executed notebook as one page that loads nothing and runs no script, whatever it holds."""
    addresses = (
        "mathjax_url",
        "require_js_url",
        "mermaid_js_url",
        "mermaid_layout_elk_js_url",
        "jquery_url",
        "jupyter_widgets_base_url",
    )
    exporter = HTMLExporter(**dict.fromkeys(addresses, ""))
    page, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": title}})
    policy = f'<meta http-equiv="Content-Security-Policy" content="{html.escape(POLICY)}">'
    path.write_text(page.replace("<head>", f"<head>{policy}", 1), encoding="utf-8")


def as_text(notebook: Any) -> str:
    """Return the notebook as the text of its file."""
    return nbformat.writes(notebook) + "\n"


def last_line(error: BaseException) -> str:
    """Say in one line what went wrong."""
    if isinstance(error, PapermillExecutionError):
        return one_line(f"{error.ename}: {error.evalue}")
    text = [line for line in str(error).splitlines() if line.strip()]
    name = "" if isinstance(error, Unfinished) else f"{type(error).__name__}: "
    return one_line(f"{name}{text[0] if text else 'no message'}")
