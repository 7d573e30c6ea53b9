"""Execute start_here and the episodes, and keep their outputs: `python -m tools.outputs`.

These notebooks are committed with outputs, so that they can be read where they lie. `--check` says
which of them are older than their code.
"""

import argparse
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
NAMES = (
    "start_here",
    *(f"episodes/{m}" for m in ("mae", "sage", "spice", "comas", "conl")),
)
DIGEST = (
    "outputs_of"  # in the metadata of a notebook: the digest of what made its outputs
)
TIMEOUT = 1800  # seconds per cell
WIDGET = "application/vnd.jupyter.widget-view+json"
# What an episode depends on, beside its cells and its method.
SHARED = (
    "src/coevolve/rollout/**/*.py",
    "src/coevolve/runs/show.py",
    "src/coevolve/runs/algorithm.py",
    "src/tinyworld/backbones/tiny/SHA256SUMS",
)


def path_of(name: str) -> Path:
    """Return the file of a notebook."""
    return NOTEBOOKS / f"{name}.ipynb"


def digest(name: str, notebook: Any) -> str:
    """Return the digest of a notebook's cells and of the files that its outputs rest on."""
    content = hashlib.sha256()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            content.update(cell.source.encode())
    for file in sorted(_files(name)):
        content.update(file.read_bytes())
    return content.hexdigest()[:16]


def _files(name: str) -> Iterator[Path]:
    method = name.rpartition("/")[2]
    if name == "start_here":
        method = "mae"
    for pattern in (f"src/coevolve/methods/{method}/**/*", *SHARED):
        for path in ROOT.glob(pattern):
            if path.is_file() and path.suffix != ".pyc":
                yield path


def execute(name: str) -> None:
    """Execute a notebook where it lies, and write it with its outputs."""
    import nbformat  # which takes two seconds, and tests import this module
    from nbclient import NotebookClient

    path = path_of(name)
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(notebook, timeout=TIMEOUT, resources=resources)
    client.execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when each cell began and ended
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if _is_kept(output)]
    notebook.metadata = {
        "kernelspec": notebook.metadata["kernelspec"],
        "language_info": {"name": "python"},
        DIGEST: digest(name, notebook),
    }
    text = nbformat.writes(notebook, indent=1, ensure_ascii=False)
    path.write_text(text.rstrip("\n") + "\n", encoding="utf-8")


def _is_kept(output: Any) -> bool:
    """Whether an output is more than a progress bar."""
    if output.output_type == "stream":
        return bool(output.name == "stdout")
    return WIDGET not in output.get("data", {})


def is_current(name: str) -> bool:
    """Whether a notebook's outputs are those of today's code."""
    import nbformat

    notebook = nbformat.read(path_of(name), as_version=4)
    return bool(notebook.metadata.get(DIGEST) == digest(name, notebook))


def main() -> int:
    """Execute the notebooks that are named, or all; or check all."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.outputs", description=__doc__
    )
    parser.add_argument("names", nargs="*", metavar="NOTEBOOK", help=", ".join(NAMES))
    parser.add_argument("--check", action="store_true", help="execute nothing")
    options = parser.parse_args()
    names = options.names or NAMES
    if options.check:
        old = [name for name in names if not is_current(name)]
        if old:
            print(f"outputs of older code, or none: {', '.join(old)}")
        return int(bool(old))
    for name in names:
        print(name)
        execute(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
