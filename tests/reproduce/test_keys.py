"""What makes a result stale: the code, prompts and numbers it depends on, and nothing else."""

import importlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from data_files import tables

from reproduce import keys, modules
from reproduce.plan import Plan, load

ROOT = Path(__file__).resolve().parents[2]
MAE = "runs/mae_half-s0"
SPICE = "runs/spice-s0"
SFT = "runs/sft-s0"
RUNS = {MAE, SPICE, SFT}
LEDGER = {"records", "claims"}
TABLES = {"mae_table1", "mae_fig4", "spice_table1", "mae_alg1"} | LEDGER
SCORES = "notebooks/tables/scores.ipynb"
PRESETS = "src/coevolve/training/presets.toml"


@dataclass(frozen=True)
class Original:
    """An unchanged copy of the repository, and the keys of some of its items."""

    root: Path
    keys: dict[str, str]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    """Copy everything that keys are made of."""
    root = tmp_path_factory.mktemp("copy")
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("notebooks", "reproduce", "src"):
        shutil.copytree(ROOT / name, root / name, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", root)
    return Original(root, keys_of(load(root, "quick")))


def keys_of(plan: Plan) -> dict[str, str]:
    """Return the keys of some items, from the files as they are now."""
    keys.digest_input.cache_clear()
    keys.code_cells.cache_clear()
    keys.modules(plan.root).facts.cache_clear()
    current = {}
    for id in RUNS | TABLES:
        parts = keys.dependencies(plan, plan.items[id])
        current[id] = keys.key_of(parts)
    return current


def add_statement(text: str) -> str:
    """Add a statement at the end."""
    return f"{text}\nADDED = 1\n"


def add_prose(text: str) -> str:
    """Change the module's docstring, and add a comment and a string that stands alone."""
    return (
        text.replace('"""', '"""Another word. ', 1) + '\n# a comment\n"""A string."""\n'
    )


def replace(old: str, new: str) -> Callable[[str], str]:
    """Return an edit that replaces a part of the text."""
    return lambda text: text.replace(old, new)


@dataclass(frozen=True)
class Case:
    """An edit of a file, and the items that it must make stale."""

    path: str
    edit: Callable[[str], str]
    stale: set[str]


CASES = [
    # The ledger counts the replies that each method pays.
    Case(
        "src/coevolve/methods/mae/rewards.py",
        add_statement,
        {MAE, "mae_alg1", "claims"},
    ),
    Case("src/coevolve/methods/mae/rewards.py", add_prose, set()),
    Case("src/coevolve/methods/spice/rewards.py", add_statement, {SPICE} | LEDGER),
    Case(
        "src/coevolve/methods/baselines/trl_trainers.py",
        add_statement,
        RUNS | {"records"},  # trainer=trl shares its head
    ),
    Case("src/coevolve/training/loop.py", add_statement, RUNS),
    Case(PRESETS, replace("[quick.mae]\nsteps", "[quick.mae]\nseed = 1\nsteps"), {MAE}),
    # The preset quick extends standard.
    Case(PRESETS, replace("[standard.mae]", "[standard.mae]\nseed = 1"), {MAE}),
    Case(
        "src/coevolve/methods/mae/prompts/solver.compact.txt",
        add_statement,
        {MAE, SFT, "mae_alg1"},
    ),
    Case(
        "src/coevolve/methods/spice/prompts/challenger_alone.compact.txt",
        add_statement,
        {SPICE} | LEDGER,
    ),
    # Tables count how much of the tiny world was asked.
    Case("src/tinyworld/facts.py", add_statement, RUNS | TABLES),
    Case("src/published/corpus.py", add_statement, {SPICE}),
    Case("reproduce/analysis/stats.py", add_statement, TABLES),
    Case(
        "reproduce/analysis/figures.py",
        add_statement,
        # An episode's notebook draws its roles.
        {"mae_fig4", "mae_table1", "spice_table1", "mae_alg1"},
    ),
    Case("reproduce/analysis/crossplay.py", add_statement, LEDGER),
    Case("reproduce/keys.py", add_statement, set()),
    Case("reproduce/claims.toml", add_statement, LEDGER),
    Case("reproduce/paper_numbers/known.csv", add_statement, TABLES),
    Case(SCORES, replace("markdown", "raw"), set()),
    Case(SCORES, replace("import ", "import os, "), {"mae_table1", "spice_table1"}),
]


@pytest.mark.parametrize("case", CASES)
def test_an_edit_makes_stale_what_depends_on_it(original: Original, case: Case) -> None:
    file = original.root / case.path
    text = file.read_text()
    edited = case.edit(text)
    assert edited != text
    file.write_text(edited)
    try:
        current = keys_of(load(original.root, "quick"))
    finally:
        file.write_text(text)
    assert {id for id in current if current[id] != original.keys[id]} == case.stale


@pytest.fixture
def small(tmp_path: Path) -> modules.Modules:
    """Write the repository of a few modules in data/modules.toml."""
    for name, text in tables("modules").items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return modules.Modules(tmp_path)


def test_imports_are_followed(small: modules.Modules) -> None:
    needed = small.needed(["a.one"])
    assert set(needed) == {"a", "a.one", "a.two", "b", "b.c", "published"}
    needed = small.needed(["own/method.py", "no.such"])
    assert set(needed) == {"own/method.py", "a", "a.late", "a.two"}


def test_data_files_belong_to_the_module_beside_them_or_to_their_package(
    small: modules.Modules,
) -> None:
    assert small.data == {"a.two": ["src/a/two.toml"], "b": ["src/b/numbers.csv"]}


@pytest.mark.parametrize("text", ["x = (1)\n# why\n", '"""Doc."""\nx = 1', "x =  1"])
def test_comments_docstrings_and_layout_do_not_count(text: str) -> None:
    assert modules.without_prose(text) == "x = 1"


def test_other_strings_and_cells_with_magics_count_as_they_are() -> None:
    assert modules.without_prose("x = 'a'") != modules.without_prose("x = 'b'")
    assert modules.without_prose("%matplotlib inline") == "%matplotlib inline"


def test_every_run_depends_on_its_method_the_loop_and_the_world() -> None:
    plan = load(ROOT, "quick")
    runs = [item for item in plan.items.values() if item.kind == "run"]
    for run in runs:
        parts = keys.run_sources(plan, run)
        needed = parts["modules"]
        assert {"coevolve.training.loop", "tinyworld.oracle"} <= set(needed), run.id
        assert "all" in parts["preset"], run.id
        assert any(name.startswith(keys.METHODS_AT) for name in needed), run.id


def test_the_fork_server_has_parsed_the_code_that_items_depend_on() -> None:
    modules.without_prose.cache_clear()
    importlib.reload(importlib.import_module("reproduce.warm"))
    parsed_before = modules.without_prose.cache_info().misses
    modules.Modules(ROOT).needed(
        ["coevolve.training.loop", "reproduce.analysis.claims"]
    )
    assert modules.without_prose.cache_info().misses == parsed_before
