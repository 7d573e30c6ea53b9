"""The house rules as a test: density, layers of imports, names, forbidden calls, notebooks."""

import ast
import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from reproduce.modules import Modules, import_statements
from tools import density, imports, outputs, size

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"
CORE = SRC / "coevolve"
ROOMS_WITH_CODE = ("src", "reproduce", "tools", "benchmarks", "examples")
CODE = [file for room in ROOMS_WITH_CODE for file in density.python_files(ROOT / room)]
TESTS = density.python_files(ROOT / "tests")
MODULES = Modules(ROOT)

# The rooms of the core, lowest first. A room imports only from rooms on lower lines.
FLOORS = (
    {"plugins", "types", "validation"},
    {"advantages", "losses", "rollout", "text", "worlds"},
    {"models", "runs"},
    {"engines", "methods"},
    {"evaluation"},
    {"training"},
    {"commands"},
    {"cli"},
)
MAX_ROOMS = 16

TENSOR_LIBRARIES = {
    "torch",
    "transformers",
    "trl",
    "peft",
    "accelerate",
    "unsloth",
    "vllm",
    "triton",
}
# Parts of the core whose import loads tensor libraries; all others load none.
LOADS_TENSORS = (
    "losses",
    "models",
    "engines/vllm.py",
    "engines/vllm_server.py",
    "training/distributed.py",
    "training/memory.py",
    "training/plan.py",
    "training/trainer.py",
    "training/trl_grpo.py",
    "training/trl_trainer.py",
    "training/update.py",
    "training/value_baselines.py",
)
# Parts of the core that compute with tensors and know neither prompts nor methods.
READS_NO_TEXT = ("advantages", "losses", "models", "training/update.py")
TEXT_ROOMS = ("coevolve.text", "coevolve.methods")

UNPICKLERS = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
UNSAFE_ARGUMENTS = {
    ("weights_only", False),
    ("allow_pickle", True),
    ("trust_remote_code", True),
    ("shell", True),
}

# Names that gave way to the field's, see the table in CHANGELOG.md.
RETIRED = {
    "protocol",
    "split_protocol",
    "heat",
    "siblings",
    "micro_tokens",
    "length_norm",
    "Learning",
    "Tokens",
    "Team",
    "Ranks",
    "Switch",
    "Batched",
    "Steps",
    "Room",
    "SETUPS",
    "Setup",
    "setups",
    "in_words",
    "tally",
    "settable",
    "meanings",
    "settle",
    "TRAINING",
    "keep_references",
}

MAX_DOCSTRING_LINES = 5
MAX_CELLS = 25  # with more than one line of code
MAX_NOTEBOOK_FUNCTION_STATEMENTS = 5
MAX_RUN_FIELDS = 30
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
NOTEBOOKS = [
    path
    for path in sorted((ROOT / "notebooks").rglob("*.ipynb"))
    if ".ipynb_checkpoints" not in path.parts
]


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the parsed code of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def short(path: Path) -> str:
    """Name a file in the output of the tests."""
    return str(path.relative_to(ROOT))


def below(path: Path) -> list[Path]:
    """Return the Python files of a folder, or the file itself. They must exist."""
    files = [file for file in CODE if file == path or path in file.parents]
    assert files, f"{path} does not exist"
    return files


def part_of(path: Path, parts: tuple[str, ...]) -> bool:
    """Whether a file of the core is one of these, or stands in one of these folders."""
    homes = [CORE / part for part in parts]
    return any(path == home or home in path.parents for home in homes)


def imported(path: Path, inside_functions: bool = True) -> set[str]:
    """Return the dotted names that a file imports; a module's own name where there is one."""
    names = set()
    package = path.parent.relative_to(SRC if SRC in path.parents else ROOT).parts
    for node, is_late in import_statements(path.read_text(encoding="utf-8")):
        if is_late and not inside_functions:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
            continue
        ancestors = package[: len(package) + 1 - node.level] if node.level else ()
        home = ".".join([*ancestors, node.module or ""]).strip(".")
        for alias in node.names:
            inner = f"{home}.{alias.name}"
            names.add(inner if MODULES.find(inner) else home)
    return names


def packages(names: set[str]) -> set[str]:
    """Return the first parts of dotted names."""
    return {name.partition(".")[0] for name in names}


def loaded_libraries(path: Path) -> set[str]:
    """Return the foreign packages that importing the file loads."""
    waiting = [path]
    seen = set()
    libraries = set()
    while waiting:
        file = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        for name in imported(file, inside_functions=False):
            homes = [MODULES.find(prefix) for prefix in prefixes(name)]
            ours = [home for home in homes if home]
            waiting += ours
            if not ours:
                libraries |= packages({name})
    return libraries


def prefixes(name: str) -> Iterator[str]:
    """Yield a, a.b and a.b.c of a.b.c."""
    while name:
        yield name
        name, _, _ = name.rpartition(".")


# Density.


@pytest.mark.parametrize("path", [*CODE, *TESTS], ids=short)
def test_a_file_is_easy_to_read(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    is_dense = short(path) in density.DENSE_BY_NATURE
    assert density.findings(text, is_dense) == []


def test_few_files_are_dense_by_nature_and_each_says_why() -> None:
    assert len(density.DENSE_BY_NATURE) <= 4
    for name, reason in density.DENSE_BY_NATURE.items():
        assert (ROOT / name).is_file()
        assert reason


HARD_TO_READ = [
    ("a, b = 1, 2", "unrelated values"),
    ("x = [[j for j in i] for i in y]", "a comprehension inside"),
    ("x = 1 if a else 2 if b else 3", "a conditional expression inside"),
    ("x = {**{'a': 1}}", "a dict literal is spread"),
    ("f(a + b, c * d, e - g, h / i)", "expressions a code line"),
    (f"x = '{'-' * 100}'", "columns"),
    ("def f():\n" + "    pass\n" * 60, "f has 61 lines"),
    ("x = 1\n" * 501, "501 lines in a file"),
]


@pytest.mark.parametrize(("text", "fault"), HARD_TO_READ)
def test_the_guard_of_density_finds(text: str, fault: str) -> None:
    findings = density.findings(text)
    assert any(fault in finding for finding in findings)


EASY_TO_READ = ["a, b = b, a", "a, b = f(x)", "x = {**a, 'b': 1}"]


@pytest.mark.parametrize("line", EASY_TO_READ)
def test_the_guard_of_density_allows(line: str) -> None:
    assert density.findings(f"{line}\nc = 1\nd = 2") == []


def test_code_lines_are_counted_without_blanks_comments_and_docstrings() -> None:
    text = '''"""Doc."""

# comment
def f(x):
    """Doc
    string."""
    y = [
        1,
    ]
    return y  # why
'''
    assert size.Size.of(text).lines == 5


# Layers.


@pytest.fixture(scope="module")
def core() -> dict[str, str]:
    """The text of every module of the core."""
    return imports.sources()


def test_rooms_of_the_core_import_only_from_lower_floors(core: dict[str, str]) -> None:
    floor_of = {}
    for number, rooms in enumerate(FLOORS):
        floor_of |= dict.fromkeys(rooms, number)
    graph = imports.room_graph(imports.module_graph(core))
    assert set(graph) == set(floor_of)
    upward = [
        (room, target)
        for room, target in graph.edges
        if floor_of[target] >= floor_of[room]
    ]
    assert upward == []
    assert len(graph) <= MAX_ROOMS


def test_no_imports_of_the_core_run_in_a_circle(core: dict[str, str]) -> None:
    assert imports.circles(imports.module_graph(core)) == []


def test_a_circle_is_found_wherever_the_imports_stand() -> None:
    modules = {
        "coevolve.a": "def f():\n    from coevolve import b",
        "coevolve.b": "if TYPE_CHECKING:\n    import coevolve.a",
    }
    graph = imports.module_graph(modules)
    assert imports.circles(graph) == [["coevolve.a", "coevolve.b"]]


def test_the_core_names_no_neighbour(core: dict[str, str]) -> None:
    assert imports.neighbours_named(core) == []


def test_the_package_never_imports_the_batch() -> None:
    for path in below(SRC):
        assert "reproduce" not in packages(imported(path)), short(path)


def test_the_sandbox_needs_nothing_but_the_standard_library() -> None:
    allowed = {"codesandbox", "", *sys.stdlib_module_names}
    for path in below(SRC / "codesandbox"):
        assert packages(imported(path)) <= allowed, short(path)


@pytest.mark.parametrize("path", below(CORE), ids=short)
def test_only_parts_that_compute_load_tensor_libraries(path: Path) -> None:
    if not part_of(path, LOADS_TENSORS):
        assert loaded_libraries(path).isdisjoint(TENSOR_LIBRARIES)


@pytest.mark.parametrize("part", READS_NO_TEXT)
def test_what_computes_with_tensors_reads_no_text(part: str) -> None:
    for path in below(CORE / part):
        text_imports = [name for name in imported(path) if name.startswith(TEXT_ROOMS)]
        assert text_imports == [], short(path)


# Names and docstrings.


def identifiers(tree: ast.AST) -> set[str]:
    """Return all names that a source defines or uses, without strings."""
    names = set()
    for node in ast.walk(tree):
        for attribute in ("id", "attr", "arg", "name"):
            name = getattr(node, attribute, None)
            if isinstance(name, str):
                names.add(name)
    return names


@pytest.mark.parametrize("path", CODE, ids=short)
def test_retired_names_do_not_come_back(path: Path) -> None:
    assert identifiers(tree_of(path)).isdisjoint(RETIRED)


@pytest.mark.parametrize("path", below(SRC), ids=short)
def test_a_module_says_briefly_what_it_is(path: Path) -> None:
    # Ruff sees that public names have docstrings (D100 to D103).
    docstring = ast.get_docstring(tree_of(path))
    assert docstring
    assert len(docstring.splitlines()) <= MAX_DOCSTRING_LINES


# Safety.


@pytest.mark.parametrize("path", CODE, ids=short)
def test_no_library_is_told_to_run_what_it_loads(path: Path) -> None:
    # Ruff sees other ways to run text (S).
    arguments = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.keyword) and isinstance(node.value, ast.Constant):
            arguments.add((node.arg, node.value.value))
    assert arguments.isdisjoint(UNSAFE_ARGUMENTS)
    assert packages(imported(path)).isdisjoint(UNPICKLERS)


# Configuration.


def test_run_is_flat_and_every_field_is_read() -> None:
    nodes = [node for path in CODE for node in ast.walk(tree_of(path))]
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    (run,) = [node for node in classes if node.name == "Run"]
    fields = {node.target.id for node in run.body if isinstance(node, ast.AnnAssign)}
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    read = {node.attr for node in attributes if isinstance(node.ctx, ast.Load)}
    assert 0 < len(fields) <= MAX_RUN_FIELDS
    assert fields <= read, f"never read: {sorted(fields - read)}"


# Notebooks.


@pytest.mark.parametrize("path", NOTEBOOKS, ids=short)
def test_a_notebook_is_thin_and_has_no_outputs_of_older_code(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    tags = [tag for cell in cells for tag in cell["metadata"].get("tags", [])]
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    longer = [cell for cell in cells if len(cell["source"]) > 1]
    assert len(longer) <= MAX_CELLS
    assert tags.count("parameters") == 1
    name = path.relative_to(ROOT / "notebooks").with_suffix("").as_posix()
    if name in outputs.NAMES:
        assert outputs.is_current(name), f"python -m tools.outputs {name}"
        executed = [cell for cell in cells if cell["execution_count"] is not None]
        assert executed == cells
        for cell in notebook["cells"]:
            assert "slide_type" in cell["metadata"]["slideshow"]
    for cell in cells:
        if name not in outputs.NAMES:
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
        check_cell("".join(cell["source"]))


def check_cell(source: str) -> None:
    """Functions of more than a few statements belong in the package."""
    without_magics = re.sub(r"(?m)^\s*[%!].*$", "", source)
    for node in ast.walk(ast.parse(without_magics)):
        if isinstance(node, FUNCTIONS):
            statements = [n for n in ast.walk(node) if isinstance(n, ast.stmt)]
            inside = len(statements) - 1
            assert inside <= MAX_NOTEBOOK_FUNCTION_STATEMENTS, node.name
