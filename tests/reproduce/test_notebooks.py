"""Every notebook runs, the way its user runs it: through the batch, at a tiny budget, in a copy of the tree.

Each method is trained once and its files stand for all its runs; every artefact is made, as parameters can be wrong too.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from reproduce import keys, modules
from reproduce.notebooks import code_cells
from reproduce.plan import Item, Plan, load

ROOT = Path(__file__).resolve().parents[2]
DRAWN = sorted([*ROOT.glob("notebooks/tables/*.ipynb"), *ROOT.glob("notebooks/figures/*.ipynb")])
# Of test_notebooks_by_hand.py and test_report.py.
BY_HAND = {f"{name}.ipynb" for name in "start_here train train_gpu real_model evaluate kernels run_report".split()}
TRAINED_TOO = (
    "runs/base-s0",  # answers once, where other runs of that name answer under several set-ups
    "runs/conl_n5-s0",  # its rankings can be read, which few tiny runs of CoNL's can
)

pytestmark = [pytest.mark.timeout(2700), pytest.mark.xdist_group("notebooks")]  # one worker makes the copy for all


def reproduce(plan: Plan, *arguments: str) -> str:
    """Run the batch, which must succeed, on a copy of the tree; return what it prints."""
    command = [sys.executable, "-m", "reproduce", "--preset", "smoke", "--root", str(plan.root)]
    command += ["--registry", str(plan.registry), *arguments]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=2700)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def make(plan: Plan, ids: list[str]) -> None:
    """Train every method once, and untrained where a run has no steps; let the others' folders be copies.

    Artefacts that need no copies are made with the runs: where something is trained, torch is imported only once.
    """
    models: dict[tuple[str, bool], Item] = {}
    runs = [item for item in plan.items.values() if item.kind == "run"]
    for item in runs:
        models.setdefault((item.protocol, item.config.get("steps") == 0), item)
    trained = {item.id for item in models.values()} | {*TRAINED_TOO}
    early = [id for id in ids if {*plan.items[id].needs} <= trained]
    reproduce(plan, "--only", ",".join([*sorted(trained), *early]))
    for item in runs:
        if item.id not in trained:
            model = models[item.protocol, item.config.get("steps") == 0]
            shutil.copytree(plan.folder / model.id, plan.folder / item.id)
            keys.write_marker(item, plan.folder / item.id, keys.parts(plan, item))
    reproduce(plan, "--only", ",".join(ids))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, list[str]]:
    """A plan of a copy of the tree, and the ids of the artefacts, which are made there."""
    root = tmp_path_factory.mktemp("copy")
    for name in ("benchmarks", "docs", "notebooks", "reproduce", "src"):
        ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", ".ipynb_checkpoints")
        shutil.copytree(ROOT / name, root / name, ignore=ignore)
    plan = load(root, "smoke", root / "reproduce" / "extra" / "real.toml")
    ids = [item.id for item in plan.items.values() if item.kind == "artefact" and item.skip is None]
    make(plan, ids)
    return plan, ids


def test_every_notebook_makes_something_complete_and_labelled(made: tuple[Plan, list[str]]) -> None:
    plan, ids = made
    expected = [*DRAWN, *ROOT.glob("notebooks/episodes/*.ipynb")]
    assert {str(path.relative_to(ROOT)) for path in expected} == {plan.items[id].notebook for id in ids}
    assert {path.name for path in ROOT.glob("notebooks/*.ipynb")} == BY_HAND
    assert not any(keys.reasons(plan, [plan.items[id] for id in ids]).values())
    unlabelled = ("mae_listings", "spice_figs8_10", "smollm2_gym")  # measured on no world, or on another
    for id in ids:
        folder = plan.folder / id
        page = (folder / "notebook.html").read_text(encoding="utf-8")
        assert len(page) > 10_000 and "Warning: " not in page, id
        assert json.loads((folder / "provenance.json").read_text())["id"] == id
        for table in folder.glob("table.md"):
            assert "tiny world" in table.read_text().lower() or id.startswith(unlabelled), id


def test_the_glossary_has_every_metric_of_every_method(made: tuple[Plan, list[str]]) -> None:
    words = "|".join(re.findall(r"`([\w/]+)`", (ROOT / "docs/metrics.md").read_text("utf-8")))
    named = {name for path in made[0].folder.glob("runs/*/metrics.jsonl") for name in pd.read_json(path, lines=True)}
    assert len(named) > 100 and [one for one in named if not re.fullmatch(re.sub("[A-Z]+", "[^/]+", words), one)] == []


def test_every_cell_of_table_1_is_its_count(made: tuple[Plan, list[str]]) -> None:
    plan, _ = made
    cells = pd.read_csv(plan.folder / "mae_table1" / "cells.csv")
    counted = cells[cells["kind"] == "cell"]
    assert len(counted) == 7 * 14
    assert (counted["accuracy"] - 100 * counted["k"] / counted["n"]).abs().max() < 1e-9
    base = json.loads((plan.folder / "runs/base-s0/summary.json").read_text())["held_out"]["after"]
    assert counted[counted["method"] == "Base"]["k"].sum() == base["k"] and base["n"] > 0


def test_a_second_call_does_nothing_and_a_forced_one_writes_the_same_bytes(made: tuple[Plan, list[str]]) -> None:
    plan, ids = made
    assert "ran 0, " in reproduce(plan, "--only", ",".join(ids))
    names = ["mae_table2/table.csv", "mae_table2/table.tex", "mae_fig3_mid/figure.svg", "mae_fig3_mid/figure.png"]
    names.append("runs/comas_base-s0/metrics.jsonl")
    before = [(plan.folder / name).read_bytes() for name in names]
    out = reproduce(plan, "--force", "--only", "mae_table2,mae_fig3_mid,runs/comas_base")
    assert "ran 3, " in out
    assert [(plan.folder / name).read_bytes() for name in names] == before


def test_tables_and_figures_load_no_torch() -> None:
    found = modules.Modules(ROOT)
    texts = [text for path in DRAWN for text, _ in code_cells(path)]
    todo, seen = {name for text in texts for name, late in found.imports(text) if not late}, set()
    while todo:
        seen.add(name := todo.pop())
        file = found.file_of(name)
        todo |= {other for other, late in found.facts(name, file)[1] if not late} - seen
        for node, late in modules.import_statements(file.read_text(encoding="utf-8")):
            named = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            assert late or not {"torch", "transformers"} & {one.split(".")[0] for one in named}, name
