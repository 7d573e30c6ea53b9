"""Every notebook runs, the way its user runs it: through the batch runner, at a tiny budget, in a copy of the tree."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pandas as pd
import papermill
import pytest

ROOT = Path(__file__).resolve().parents[2]
DRAWN = sorted([*ROOT.glob("notebooks/tables/*.ipynb"), *ROOT.glob("notebooks/figures/*.ipynb")])

LOOSE = {"kernels.ipynb": {}}  # notebooks that no table or run is made of


def reproduce(root: Path, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "reproduce", "--preset", "smoke", "--root", str(root), *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=2700)


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """A copy of what a reproduction reads, reproduced once."""
    root = tmp_path_factory.mktemp("copy")
    for name in ("benchmarks", "notebooks", "reproduce", "src"):
        ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", ".ipynb_checkpoints")
        shutil.copytree(ROOT / name, root / name, ignore=ignore)
    done = reproduce(root)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return root


def claimed(root: Path) -> list[dict]:
    listed = json.loads(reproduce(root, "--list", "--json").stdout)
    return [item for item in listed if item["status"] != "unclaimed"]


@pytest.mark.timeout(2700)
def test_every_notebook_ran_to_its_end(tree):
    assert {item["status"] for item in claimed(tree)} == {"done"}
    listed = "".join(path.read_text() for path in ROOT.glob("reproduce/*.toml"))
    for path in [*DRAWN, *ROOT.glob("notebooks/episodes/*.ipynb")]:
        assert f'"{path.relative_to(ROOT)}"' in listed, f"{path.name} is run by nothing"
    others = {path.name for path in ROOT.glob("notebooks/*.ipynb")}
    assert others == {"train.ipynb", "train_gpu.ipynb", "evaluate.ipynb", *LOOSE}, "the first is every run's"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", LOOSE)
def test_the_other_notebooks_run(name, tmp_path):
    papermill.execute_notebook(
        ROOT / "notebooks" / name, tmp_path / name, LOOSE[name], cwd=ROOT / "notebooks", progress_bar=False
    )


def test_a_second_call_does_nothing(tree):
    assert "ran 0" in reproduce(tree).stdout


def test_artefacts_are_complete_and_labelled(tree):
    results = tree / "results" / "smoke"
    for item in claimed(tree):
        folder = results / item["id"]
        if item["id"].startswith("runs/"):
            assert json.loads((folder / "summary.json").read_text())["held_out"]["after"]["n"] > 0
            continue
        assert (folder / "notebook.html").stat().st_size > 10_000
        assert json.loads((folder / "provenance.json").read_text())
        for page in folder.glob("table.md"):
            assert "tiny world" in page.read_text().lower() or item["id"] in (
                "mae_table3",
                "mae_listings_1_9",
                "spice_figs8_10",
            )


def test_every_cell_of_table_1_is_its_count(tree):
    cells = pd.read_csv(tree / "results" / "smoke" / "mae_table1" / "cells.csv")
    counted = cells[cells["kind"] == "cell"]
    assert len(counted) == 7 * 14
    assert (counted["accuracy"] - 100 * counted["k"] / counted["n"]).abs().max() < 1e-9
    runs = tree / "results" / "smoke" / "runs"
    base = json.loads((runs / "base-s0" / "summary.json").read_text())["held_out"]["after"]
    assert counted[counted["method"] == "Base"]["k"].sum() == base["k"]


def test_two_reproductions_write_the_same_bytes(tree, tmp_path):
    kept = tmp_path / "first"
    shutil.copytree(tree / "results" / "smoke", kept)
    done = reproduce(tree, "--force", "--only", "mae_table2,runs/mae_half,mae_fig3_mid", "--jobs", "1")
    assert done.returncode == 0, done.stdout[-2000:]
    for name in (
        "mae_table2/table.csv",
        "mae_table2/table.tex",
        "mae_fig3_mid/figure.svg",
        "mae_fig3_mid/figure.png",
        "runs/mae_half-s0/metrics.jsonl",
    ):
        assert (kept / name).read_bytes() == (tree / "results" / "smoke" / name).read_bytes(), name


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.stem)
def test_tables_and_figures_load_no_torch(path):
    cells = [cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]
    lines = [line for source in cells for line in source.splitlines() if line.startswith(("import ", "from "))]
    code = "\n".join([*lines, "import sys", "assert 'torch' not in sys.modules"])
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, env=os.environ | {"MPLBACKEND": "agg"})
