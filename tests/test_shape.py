"""The house rules as a test: sizes, who may import whom, docstrings, forbidden calls, notebooks."""

import ast
import graphlib
import json
import re
import sys
from pathlib import Path

import pytest

from reproduce.modules import Modules, import_statements
from tools.size import code_lines, here, total

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"
CORE = SRC / "coevolve"
NEIGHBOURS = {"tinyworld", "codesandbox", "published", "reproduce"}
CODE = [path for room in ("src", "reproduce", "tools", "benchmarks") for path in sorted((ROOT / room).rglob("*.py"))]
CEILINGS = {  # code lines, see tools/size.py; a ceiling only falls
    "src/coevolve": 5000,
    "src": 8000,
    "reproduce": 1900,
    "tests": 8500,
}
TORCH_FREE = """__init__ __main__ types driver pools checks shares parse prompts method papers worlds setups held_out
    show record config preflight loop verify""".split()
TENSORS = {"torch", "transformers", "trl", "peft", "accelerate", "unsloth", "vllm", "triton"}
NO_TEXT = "policies engines advantages losses learner ranks credit".split()
NOTEBOOKS = [p for p in sorted((ROOT / "notebooks").rglob("*.ipynb")) if ".ipynb_checkpoints" not in p.parts]
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in CODE}
OURS = Modules(ROOT)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


def below(folder: Path) -> list[Path]:
    """The files of a folder, which must exist, as a module may in its place."""
    files = [path for path in CODE if folder in path.parents or path == folder.with_suffix(".py")]
    assert files, f"{folder} does not exist"
    return files


def imports(path: Path, inside_functions: bool = True) -> set[str]:
    """Dotted names that the file imports; `from a import b` counts as a.b where that is a module, else as a."""
    names = set()
    base = path.parent.relative_to(SRC if SRC in path.parents else ROOT).parts
    for node, inside in import_statements(path.read_text(encoding="utf-8")):
        if inside and not inside_functions:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        else:
            home = ".".join([*base[: len(base) + 1 - node.level], *filter(None, [node.module])])
            module = home if node.level else str(node.module)
            inner = {f"{module}.{alias.name}" for alias in node.names}
            modules = set(filter(OURS.find, inner))
            names |= modules | ({module} if modules != inner else set())
    return names


def reached(path: Path) -> set[str]:
    """Top-level names of all that the file imports, wherever it does."""
    return {name.split(".")[0] for name in imports(path)}


def loaded(path: Path) -> set[str]:
    """Top-level names of everything outside this repository that importing the file loads."""
    waiting, seen, outside = [path], set(), set()
    while waiting:
        file = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        for name in imports(file, inside_functions=False):
            parts = name.split(".")
            homes = [OURS.find(".".join(parts[: i + 1])) for i in range(len(parts))]
            waiting += filter(None, homes)
            outside |= set() if any(homes) else {parts[0]}
    return outside


def test_rooms_stay_small():
    lines = here()
    assert not {room: total(lines, room) for room in CEILINGS if total(lines, room) > CEILINGS[room]}


def test_code_lines_are_counted_without_blanks_comments_and_docstrings():
    text = '"""Doc."""\n\n# comment\ndef f(x):\n    """Doc\n    string."""\n    y = [\n        1,\n    ]\n    return y  # why\n'
    assert code_lines(text) == 5


@pytest.mark.parametrize("path", CODE, ids=short)
def test_files_and_functions_stay_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300
    defined = [node for node in ast.walk(TREES[path]) if isinstance(node, FUNCTIONS)]
    long = [node.name for node in defined if node.end_lineno - node.lineno >= 60]
    assert not long, "functions of more than 60 lines"
    public = {node.name for node in TREES[path].body if isinstance(node, FUNCTIONS)}
    assert path.stem not in public, "a module and a function of one name"


def test_the_core_imports_no_neighbour_at_module_level_and_nothing_the_batch():
    for path in below(SRC):
        assert "reproduce" not in reached(path), short(path)
        neighbours = {name.split(".")[0] for name in imports(path, inside_functions=False)} & NEIGHBOURS
        assert not (neighbours and CORE in path.parents), f"{short(path)} imports {neighbours}"


def test_the_sandbox_needs_nothing_but_the_standard_library():
    for path in below(SRC / "codesandbox"):
        assert reached(path) <= {"codesandbox", "", *sys.stdlib_module_names}, short(path)


def test_no_imports_run_in_a_circle():
    graph = {path: {OURS.find(name) for name in imports(path, inside_functions=False)} - {None, path} for path in CODE}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the files


@pytest.mark.parametrize("room", TORCH_FREE)
def test_what_reads_text_loads_no_tensors(room):
    for path in below(CORE / room):
        assert not loaded(path) & TENSORS, short(path)


@pytest.mark.parametrize("room", NO_TEXT)
def test_what_computes_tensors_reads_no_text(room):
    for path in below(CORE / room):
        reads = {name for name in imports(path) if re.match(r"coevolve\.(parse|prompts|papers|baselines)\b", name)}
        assert not reads, f"{short(path)} imports {reads}"


@pytest.mark.parametrize("path", below(SRC), ids=short)
def test_a_module_says_briefly_what_it_is(path):  # that public names have docstrings, ruff sees (D100 to D103)
    module = ast.get_docstring(TREES[path])
    assert module and len(module.splitlines()) <= 5, "a module docstring of one to five lines"


@pytest.mark.parametrize("path", CODE, ids=short)
def test_no_library_is_told_to_run_what_it_loads(path):  # other ways to run text ruff sees (S)
    switches = {("weights_only", False), ("allow_pickle", True), ("trust_remote_code", True), ("shell", True)}
    words = [word for node in ast.walk(TREES[path]) if isinstance(node, ast.Call) for word in node.keywords]
    told = {(word.arg, word.value.value) for word in words if isinstance(word.value, ast.Constant)}
    assert not told & switches and not reached(path) & {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}


def test_run_is_flat_and_every_field_is_read():
    nodes = [node for tree in TREES.values() for node in ast.walk(tree)]
    homes = [node for node in nodes if isinstance(node, ast.ClassDef) and node.name == "Run"]
    assert len(homes) == 1
    fields = {node.target.id for node in homes[0].body if isinstance(node, ast.AnnAssign)}
    read = {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load)}
    assert 0 < len(fields) <= 26
    assert fields <= read, f"never read: {sorted(fields - read)}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=short)
def test_notebook_is_committed_clean_and_thin(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
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
