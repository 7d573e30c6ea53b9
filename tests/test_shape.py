"""The house rules as a test: sizes, who may import whom, docstrings, forbidden calls, notebooks."""

import ast
import io
import json
import os
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"
PACKAGE = SRC / "coevolve"
SANDBOX = SRC / "codesandbox" / "guarded" / "child.py"
ROOMS = ("src", "reproduce", "tools", "benchmarks")
CODE = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
TEXT_WING = """types play pools checks shares parse prompts rewards protocols worlds show record verify
    evaluate.stats evaluate.tables evaluate.figures""".split()
TENSOR_WING = "policies advantages losses learn".split()
TENSORS = {"torch", "transformers", "trl", "peft", "accelerate", "unsloth", "vllm", "triton"}
NOTEBOOKS = [p for p in sorted((ROOT / "notebooks").rglob("*.ipynb")) if ".ipynb_checkpoints" not in p.parts]
TREES = {path: ast.parse(path.read_text()) for path in CODE}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


def files_of(room: str) -> list[Path]:
    """The files of a module or package of coevolve, which must exist."""
    at = PACKAGE.joinpath(*room.split("."))
    files = [at.with_suffix(".py")] if at.with_suffix(".py").exists() else sorted(at.rglob("*.py"))
    assert files, f"coevolve.{room} does not exist"
    return files


def located(name: str) -> Path | None:
    """The file of a dotted module of the package, None for anything else."""
    at = SRC.joinpath(*name.split("."))
    return next((p for p in (at.with_suffix(".py"), at / "__init__.py") if p in TREES), None)


def code_lines(path: Path) -> int:
    """How many lines of a file hold code."""
    found, silent = set(), {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type not in silent and token.string:
            found |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(TREES[path]):
        if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)) and ast.get_docstring(node):
            found -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(found)


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def statements(node: ast.AST, inside_functions: bool) -> list[ast.AST]:
    """All nodes below, without those only a type checker reads; function bodies only when asked for."""
    found = []
    for child in ast.iter_child_nodes(node):
        if is_type_checking(child) or (isinstance(child, FUNCTIONS) and not inside_functions):
            continue
        found += [child, *statements(child, inside_functions)]
    return found


def imports(path: Path, inside_functions: bool = True) -> set[str]:
    """Dotted names that the file imports; `from a import b` counts as a and a.b."""
    names = set()
    for node in statements(TREES[path], inside_functions):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = path.relative_to(SRC).parts if SRC in path.parents else ()
            base = ".".join([*parts[: len(parts) - node.level], *filter(None, [node.module])])
            base = base if node.level else node.module
            names |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return names


def loaded(path: Path) -> set[str]:
    """Third-party and standard names loaded, directly or through the package, by importing the file."""
    waiting, seen, outside = [path], set(), set()
    while waiting:
        file = waiting.pop()
        if file not in seen:
            seen.add(file)
            for name in imports(file, inside_functions=False):
                parts = name.split(".")
                homes = (located(".".join(parts[: i + 1])) for i in range(len(parts)))
                waiting += filter(None, homes)
                outside |= set() if name.startswith("coevolve") else {name.split(".")[0]}
    return outside


def test_import_reader_sees_through_modules_and_functions():
    path = SRC / "coevolve" / "parse.py"
    tree = ast.parse("import torch.nn\nfrom .types import Turn\ndef f():\n    from coevolve import play\n")
    kept, TREES[path] = TREES[path], tree
    try:
        assert {"torch.nn", "coevolve.types", "coevolve.types.Turn", "coevolve.driver"} <= imports(path)
        assert "coevolve.driver" not in imports(path, inside_functions=False)
        assert {"torch", "dataclasses"} <= loaded(path)
    finally:
        TREES[path] = kept


@pytest.mark.parametrize("path", CODE, ids=short)
def test_files_and_functions_stay_short(path):
    assert len(path.read_text().splitlines()) <= 300
    for node in ast.walk(TREES[path]):
        if isinstance(node, FUNCTIONS):
            assert node.end_lineno - node.lineno < 60, f"{node.name} is longer than 60 lines"


def test_package_stays_small():
    """Lines of code, without blank lines, comments and docstrings: five methods, a sandbox, kernels, engines, data."""
    assert sum(code_lines(path) for path in PACKAGE.rglob("*.py")) <= 10_600


@pytest.mark.parametrize("room", TEXT_WING)
def test_text_wing_loads_no_tensors(room):
    for path in files_of(room):
        direct = {name.split(".")[0] for name in imports(path)} & TENSORS
        assert not direct, f"{short(path)} imports {direct}"
        indirect = loaded(path) & TENSORS
        assert not indirect, f"{short(path)} loads {indirect} through another module"


@pytest.mark.parametrize("room", TENSOR_WING)
def test_tensor_wing_reads_no_text(room):
    for path in files_of(room):
        for other in ("coevolve.parse.", "coevolve.prompts.", "coevolve.papers."):
            reads = [name for name in imports(path) if f"{name}.".startswith(other)]
            assert not reads, f"{short(path)} imports {reads}"


@pytest.mark.parametrize("path", [p for p in CODE if PACKAGE in p.parents], ids=short)
def test_every_public_name_has_a_docstring(path):
    def undocumented(node: ast.Module | ast.ClassDef) -> list[str]:
        found = []
        for child in node.body:
            if isinstance(child, (*FUNCTIONS, ast.ClassDef)) and not child.name.startswith("_"):
                found += [] if ast.get_docstring(child) else [child.name]
                found += undocumented(child) if isinstance(child, ast.ClassDef) else []
        return found

    assert undocumented(TREES[path]) == []
    module = ast.get_docstring(TREES[path])
    assert module and len(module.splitlines()) <= 5, "a module docstring of one to five lines"


@pytest.mark.parametrize("path", CODE, ids=short)
def test_nothing_runs_text_or_unpickles(path):
    unpicklers = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
    switches = {("weights_only", False), ("allow_pickle", True), ("trust_remote_code", True), ("shell", True)}
    assert not {name.split(".")[0] for name in imports(path)} & unpicklers
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func).removeprefix("builtins.")
            if path != SANDBOX or called != "exec":  # its business, in a guarded process
                assert called not in ("eval", "exec", "os.system"), f"{called} in line {node.lineno}"
            for word in node.keywords:
                value = word.value.value if isinstance(word.value, ast.Constant) else None
                assert (word.arg, value) not in switches, f"{word.arg}={value} in line {node.lineno}"


def test_run_is_flat_and_every_field_is_read():
    nodes = [node for tree in TREES.values() for node in ast.walk(tree)]
    homes = [node for node in nodes if isinstance(node, ast.ClassDef) and node.name == "Run"]
    assert len(homes) == 1
    fields = {node.target.id for node in homes[0].body if isinstance(node, ast.AnnAssign)}
    read = {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load)}
    assert 0 < len(fields) <= 26
    assert fields <= read, f"never read: {sorted(fields - read)}"


def test_both_forms_of_a_prompt_take_the_same_fields():
    def fields(path: Path) -> set[str]:
        kept = [line for line in path.read_text().splitlines() if not line.startswith("%%")]
        return set(re.findall(r"\{([a-z_][a-z0-9_]*)\}", "\n".join(kept)))

    fulls = [p for p in PACKAGE.glob("prompts/*/*.full.txt")]
    pairs = [(p, p.with_name(p.name.replace(".full.", ".compact."))) for p in fulls]
    assert fulls
    for full, compact in pairs:
        if compact.exists():
            assert fields(full) == fields(compact), f"{short(full)} and {short(compact)}"


def fresh(code: str) -> str:
    """Run the code in a new interpreter and return what it prints."""
    env = os.environ | {"PYTHONPATH": str(SRC)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_tables_and_figures_load_no_torch():
    rooms = "coevolve, coevolve.record, reproduce.analysis.tables, reproduce.analysis.figures"
    assert fresh(f"import sys, {rooms}; print(sorted({TENSORS} & set(sys.modules)))") == "[]"


def test_public_verbs_win_over_modules_of_the_same_name():
    code = """
import coevolve.loop, coevolve.driver
from coevolve import Policy, Run, Steps, play, train
print([callable(name) for name in (Policy, Run, Steps, play, train, coevolve.loop, coevolve.driver)])
"""
    assert fresh(code) == str([True] * 7)


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=short)
def test_notebook_is_committed_clean_and_thin(path):
    notebook = json.loads(path.read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    assert len(cells) <= 25
    assert sum("parameters" in cell["metadata"].get("tags", []) for cell in cells) == 1
    for cell in cells:
        assert not cell["outputs"] and cell["execution_count"] is None
        source = re.sub(r"(?m)^\s*[%!].*$", "", "".join(cell["source"]))
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, FUNCTIONS):
                assert node.end_lineno - node.lineno < 5, f"{node.name} belongs in the package"
