"""Notebooks run as their users run them: by the batch, at a tiny budget, in a copy of the tree.

Each method is trained once, and its files stand for all its runs. A few artefacts are made for
every push. Thorough tests make all others, whose parameters can be wrong too; so does
`make reproduce`.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from reproduce import keys, modules
from reproduce.notebooks import code_cells
from reproduce.plan import Item, Plan, load

ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT.glob("notebooks/tables/*.ipynb")
FIGURES = ROOT.glob("notebooks/figures/*.ipynb")
DRAWN = sorted([*TABLES, *FIGURES])
TESTED_ELSEWHERE = {  # in test_notebooks_by_hand.py and test_report.py
    "start_here.ipynb",
    "train.ipynb",
    "train_gpu.ipynb",
    "real_model.ipynb",
    "evaluate.ipynb",
    "ablation.ipynb",
    "judge_sliders.ipynb",
    "kernels.ipynb",
}
TRAINED_TOO = {
    "runs/base-s0",  # evaluated once, where other runs of this method use several strategies
    "runs/conl_n5-s0",  # with readable rankings, which few tiny runs of CoNL produce
}
# Artefacts whose content is tested below, and an episode.
FEW_ARTEFACTS = [
    "comas_table5",
    "mae_fig3_mid",
    "mae_alg1",
]
# Artefacts that are measured on no world, or on another one.
NOT_OF_THE_TINY_WORLD = ("mae_listings", "spice_figs8_10", "smollm2_gym")
# Files of reproduce/extra whose notebooks are tested as well.
EXTRA = ("real.toml", "judge.toml", "controls.toml")
TIMEOUT_SECONDS = 2700

pytestmark = pytest.mark.timeout(TIMEOUT_SECONDS)


@dataclass(frozen=True)
class Copy:
    """A copy of the tree, in which artefacts have been made."""

    plan: Plan
    artefacts: list[str]  # ids of those that have been made

    def folder(self, id: str) -> Path:
        """Return the folder of an item's results."""
        return self.plan.folder / id


def reproduce(plan: Plan, *arguments: str) -> str:
    """Run the batch on a copy of the tree, which must succeed; return what it prints."""
    command = [
        sys.executable,
        "-m",
        "reproduce",
        "--preset",
        "smoke",
        "--root",
        str(plan.root),
        "--registry",
        str(plan.registry),
        *arguments,
    ]
    process = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-3000:]
    return process.stdout


def kind_of_run(item: Item) -> tuple[str, bool]:
    """Return a run's method, and whether it takes no steps."""
    return item.method, item.config.get("steps") == 0


def make(plan: Plan, artefacts: list[str], runs: list[Item]) -> None:
    """Make artefacts from one trained run of each kind, which is copied for the other runs.

    Artefacts that need no copies are made together with the runs, so that torch is imported once.
    """
    first_of_kind: dict[tuple[str, bool], Item] = {}
    for run in runs:
        first_of_kind.setdefault(kind_of_run(run), run)
    trained = {run.id for run in first_of_kind.values()}
    trained |= TRAINED_TOO & {run.id for run in runs}
    early = [id for id in artefacts if trained.issuperset(plan.items[id].needs)]
    reproduce(plan, "--only", ",".join([*sorted(trained), *early]))
    for run in runs:
        if run.id not in trained and not (plan.folder / run.id).exists():
            source = first_of_kind[kind_of_run(run)]
            folder = plan.folder / run.id
            shutil.copytree(plan.folder / source.id, folder)
            keys.write_marker(run, folder, keys.dependencies(plan, run))
    reproduce(plan, "--only", ",".join(artefacts))


def extra_registry(root: Path) -> Path:
    """Join the registries with artefacts beside those of the five papers; return the file."""
    folder = root / "reproduce" / "extra"
    texts = [(folder / name).read_text("utf-8") for name in EXTRA]
    joined = folder / "joined.toml"
    joined.write_text("\n".join(texts), "utf-8")
    return joined


def runs_of(plan: Plan) -> list[Item]:
    """Return all runs of a plan."""
    return [item for item in plan.items.values() if item.kind == "run"]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """Copy the tree, and make a few of its artefacts."""
    root = tmp_path_factory.mktemp("copy")
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", ".ipynb_checkpoints")
    for name in ("benchmarks", "docs", "notebooks", "reproduce", "src"):
        shutil.copytree(ROOT / name, root / name, ignore=ignore)
    plan = load(root, "smoke", extra_registry(root))
    needed: set[str] = set()
    for id in FEW_ARTEFACTS:
        needed.update(plan.items[id].needs)
    runs = [run for run in runs_of(plan) if run.id in needed]
    make(plan, FEW_ARTEFACTS, runs)
    return Copy(plan, FEW_ARTEFACTS)


@pytest.fixture(scope="module")
def full_copy(copy: Copy) -> Copy:
    """Make all artefacts of the copy."""
    artefacts = []
    for item in copy.plan.items.values():
        if item.kind == "artefact" and item.skip is None:
            artefacts.append(item.id)
    make(copy.plan, artefacts, runs_of(copy.plan))
    return Copy(copy.plan, artefacts)


def test_every_notebook_at_the_top_has_a_test_of_its_own() -> None:
    others = {path.name for path in ROOT.glob("notebooks/*.ipynb")}
    assert others == TESTED_ELSEWHERE


@pytest.mark.thorough
def test_every_other_notebook_is_executed(full_copy: Copy) -> None:
    expected = [*DRAWN, *ROOT.glob("notebooks/episodes/*.ipynb")]
    executed = {full_copy.plan.items[id].notebook for id in full_copy.artefacts}
    assert {str(path.relative_to(ROOT)) for path in expected} == executed


def test_a_few_artefacts_are_complete_and_up_to_date(copy: Copy) -> None:
    check_artefacts(copy, copy.artefacts)


@pytest.mark.thorough
def test_all_artefacts_are_complete_and_up_to_date(full_copy: Copy) -> None:
    check_artefacts(full_copy, full_copy.artefacts)


def check_artefacts(copy: Copy, artefacts: list[str]) -> None:
    """Check the files of artefacts, and what tables say of their world."""
    items = [copy.plan.items[id] for id in artefacts]
    assert not any(keys.reasons(copy.plan, items).values())
    for id in artefacts:
        page = (copy.folder(id) / "notebook.html").read_text(encoding="utf-8")
        assert len(page) > 10_000, id
        assert "Warning: " not in page, id
        origin = json.loads((copy.folder(id) / "provenance.json").read_text())
        assert origin["id"] == id
        table = copy.folder(id) / "table.md"
        if table.exists() and not id.startswith(NOT_OF_THE_TINY_WORLD):
            assert "tiny world" in table.read_text().lower(), id


@pytest.mark.thorough
def test_the_glossary_has_every_metric_of_every_method(full_copy: Copy) -> None:
    glossary = (ROOT / "docs/metrics.md").read_text("utf-8")
    names = "|".join(re.findall(r"`([\w/]+)`", glossary))
    pattern = re.sub("[A-Z]+", "[^/]+", names)  # capitals stand for any part of a name
    metrics: set[str] = set()
    for path in full_copy.plan.folder.glob("runs/*/metrics.jsonl"):
        metrics |= set(pd.read_json(path, lines=True))
    assert len(metrics) > 100
    assert [name for name in metrics if not re.fullmatch(pattern, name)] == []


def test_every_cell_of_a_table_is_its_count(copy: Copy) -> None:
    counted = cells_of(copy, "comas_table5")
    rows = counted.groupby(["setup", "method"])["benchmark"].nunique()
    assert rows.to_list() == [7] * 8


@pytest.mark.thorough
def test_every_cell_of_table_1_is_its_count(full_copy: Copy) -> None:
    counted = cells_of(full_copy, "mae_table1")
    assert len(counted) == 7 * 14


@pytest.mark.thorough
def test_the_row_of_the_base_model_adds_up_to_its_run(full_copy: Copy) -> None:
    counted = cells_of(full_copy, "mae_table1")
    is_base = counted["method"] == "Base"
    run = full_copy.folder("runs/base-s0")
    summary = json.loads((run / "summary.json").read_text())
    held_out = summary["held_out"]["after"]
    assert counted[is_base]["k"].sum() == held_out["k"]
    assert held_out["n"] > 0


def cells_of(copy: Copy, id: str) -> pd.DataFrame:
    """Return the cells of a table that are no averages; each is its count, in percent."""
    cells = pd.read_csv(copy.folder(id) / "cells.csv")
    counted = cells[cells["kind"] == "cell"]
    error = counted["accuracy"] - 100 * counted["k"] / counted["n"]
    assert error.abs().max() < 1e-9
    return counted


@pytest.mark.thorough
def test_the_parts_of_conls_gains_add_up_on_real_runs(full_copy: Copy) -> None:
    parts = pd.read_csv(full_copy.folder("conl_one_room") / "decomposition.csv")
    is_whole = parts["part"] == "as compared in the paper"
    whole = parts[is_whole].set_index("over")["delta"]
    summed = parts[~is_whole].groupby("over")["delta"].sum()
    assert set(whole.index) == {"untrained", "SRT-S", "SRT-M"}
    assert (whole - summed).abs().max() < 1e-9


@pytest.mark.thorough
def test_five_policies_discuss_the_same_questions(full_copy: Copy) -> None:
    discussed = set()
    for run in full_copy.plan.items["conl_one_room"].needs:
        path = full_copy.folder(run) / "conversations.jsonl"
        discussed.add(tuple(pd.read_json(path, lines=True)["question"]))
    (questions,) = discussed
    assert len(questions) == 24


REPEATED = [
    "mae_fig3_mid/figure.svg",
    "mae_fig3_mid/figure.png",
    "runs/base-s0/metrics.jsonl",
]


def test_a_second_call_does_nothing(copy: Copy) -> None:
    assert "ran 0, " in reproduce(copy.plan, "--only", ",".join(copy.artefacts))


@pytest.mark.thorough
def test_a_forced_call_writes_the_same_bytes(copy: Copy) -> None:
    before = [copy.folder(name).read_bytes() for name in REPEATED]
    items = "mae_fig3_mid,runs/base"
    assert "ran 2, " in reproduce(copy.plan, "--force", "--only", items)
    assert [copy.folder(name).read_bytes() for name in REPEATED] == before


def names_imported_by(node: ast.Import | ast.ImportFrom) -> set[str]:
    """Return the top-level names of the packages that a statement imports."""
    if isinstance(node, ast.ImportFrom):
        return {(node.module or "").split(".")[0]}
    return {alias.name.split(".")[0] for alias in node.names}


def test_tables_and_figures_load_no_torch() -> None:
    code = modules.Modules(ROOT)
    pending: set[str] = set()
    for path in DRAWN:
        for cell in code_cells(path):
            pending |= {
                found.module for found in code.imports(cell.text) if not found.is_late
            }
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        seen.add(name)
        file = code.file_of(name)
        imports = code.facts(name, file).imports
        pending |= {found.module for found in imports if not found.is_late} - seen
        for statement in modules.import_statements(file.read_text(encoding="utf-8")):
            if not statement.is_late:
                assert not names_imported_by(statement.node) & {
                    "torch",
                    "transformers",
                }, name
