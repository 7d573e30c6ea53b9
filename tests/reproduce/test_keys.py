"""What makes a result stale: the code, prompts and numbers that it depends on, and nothing else."""

import shutil
from pathlib import Path

import pytest
from data_files import tables

from reproduce import keys, modules
from reproduce.plan import Plan, load

ROOT = Path(__file__).resolve().parents[2]
RUNS = ("runs/mae_half-s0", "runs/spice-s0", "runs/sft-s0")
TABLES = ("mae_table1", "mae_fig4", "spice_table1", "mae_alg1", "claims")


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Copy what keys are made of; return the copy and the keys of some items."""
    root = tmp_path_factory.mktemp("copy")
    for name in ("notebooks", "reproduce", "src"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    return root, keys_of(load(root, "quick"))


def keys_of(plan: Plan) -> dict[str, str]:
    """Return the keys of some items from the files as they are now."""
    keys.digest_input.cache_clear()
    keys.code_cells.cache_clear()
    return {id: keys.key(keys.parts(plan, plan.items[id])) for id in (*RUNS, *TABLES)}


def end_of(text: str) -> str:
    """Add a statement."""
    return f"{text}\nADDED = 1\n"


def prose(text: str) -> str:
    """Change the module's docstring, add a comment and a string that stands alone, and lay a line out anew."""
    return text.replace('"""', '"""Another word. ', 1) + '\n# a comment\n"""A string."""\n'


MAE, SPICE, SFT = RUNS
SCORES, PRESETS = "notebooks/tables/scores.ipynb", "src/coevolve/training/presets.toml"
EDITS = [
    ("src/coevolve/methods/mae/rewards.py", end_of, {MAE, "mae_alg1"}),
    ("src/coevolve/methods/mae/rewards.py", prose, set()),
    ("src/coevolve/methods/spice/rewards.py", end_of, {SPICE, "claims"}),
    ("src/coevolve/methods/baselines/trl_trainers.py", end_of, {SFT, "claims"}),
    ("src/coevolve/training/loop.py", end_of, {*RUNS}),
    (PRESETS, lambda text: text.replace("[quick.mae]\nsteps", "[quick.mae]\nseed = 1\nsteps"), {MAE}),
    (PRESETS, lambda text: text.replace("[standard.mae]", "[standard.mae]\nseed = 1"), {MAE}),  # quick is read over it
    ("src/coevolve/methods/mae/prompts/solver.compact.txt", end_of, {MAE, SFT, "mae_alg1"}),
    ("src/coevolve/methods/spice/prompts/challenger_alone.compact.txt", end_of, {SPICE, "claims"}),
    ("src/tinyworld/facts.py", end_of, {*RUNS, "mae_alg1", "claims"}),
    ("src/published/corpus.py", end_of, {SPICE}),
    ("reproduce/analysis/stats.py", end_of, {*TABLES}),
    ("reproduce/analysis/figures.py", end_of, {"mae_fig4", "mae_table1", "spice_table1"}),
    ("reproduce/analysis/crossplay.py", end_of, {"claims"}),
    ("reproduce/keys.py", end_of, set()),
    ("reproduce/claims.toml", end_of, {"claims"}),
    ("reproduce/paper_numbers/known.csv", end_of, {*TABLES}),
    (SCORES, lambda text: text.replace("markdown", "raw"), set()),
    (SCORES, lambda text: text.replace("import ", "import os, "), {"mae_table1", "spice_table1"}),
]


@pytest.mark.parametrize(("path", "edit", "expected"), EDITS)
def test_an_edit_makes_stale_what_depends_on_it(before: tuple[Path, dict], path: str, edit, expected: set) -> None:
    root, old = before
    text = (root / path).read_text()
    assert edit(text) != text
    (root / path).write_text(edit(text))
    keys.modules(root).facts.cache_clear()
    new = keys_of(load(root, "quick"))
    (root / path).write_text(text)
    keys.modules(root).facts.cache_clear()
    assert {id for id in old if old[id] != new[id]} == expected


def test_imports_are_followed_and_prose_is_not_read(tmp_path: Path) -> None:
    files = tables("modules")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = modules.Modules(tmp_path)
    assert set(found.needed(["a.one"])) == {"a", "a.one", "a.two", "b", "b.c", "published"}
    assert set(found.needed(["own/method.py", "no.such"])) == {"own/method.py", "a", "a.late", "a.two"}
    assert found.data == {"a.two": ["src/a/two.toml"], "b": ["src/b/numbers.csv"]}
    same = ["x = (1)\n# why\n", '"""Doc."""\nx = 1', "x =  1"]
    assert {modules.without_prose(text) for text in same} == {"x = 1"}
    assert modules.without_prose("x = 'a'") != modules.without_prose("x = 'b'")
    assert modules.without_prose("%matplotlib inline") == "%matplotlib inline"


def test_every_run_knows_its_method() -> None:
    plan = load(ROOT, "quick")
    for item in (item for item in plan.items.values() if item.kind == "run"):
        parts = keys.run_sources(plan, item)
        assert {"coevolve.training.loop", "tinyworld.oracle"} <= {*parts["modules"]} and "all" in parts["preset"], item.id
        assert any(name.startswith(("coevolve.methods.", "coevolve.methods.baselines.")) for name in parts["modules"]), item.id
