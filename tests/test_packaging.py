"""The environment files agree with each other, with the code's imports and with what is shipped."""

import ast
import importlib.metadata as metadata
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from test_shape import CODE, reached

import coevolve
from reproduce.modules import import_statements
from tools import installed, readme_numbers
from tools.make_environment import pins, render

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
CONSTRAINTS = (ROOT / "constraints.txt").read_text()
PINS = pins(CONSTRAINTS)
*_, PIP = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
SHARED = ["torch", "transformers", "trl", "datasets", "peft", "accelerate", "pandas", "seaborn", "papermill"]


def requirements(lines: list[str]) -> dict[str, Requirement]:
    return {canonicalize_name(req.name): req for req in map(Requirement, lines)}


def test_environment_file_is_regenerated():
    assert (ROOT / "environment.yml").read_text() == render(PROJECT, CONSTRAINTS)


@pytest.mark.parametrize("group", ["dependencies", "dev", "real"])
def test_every_requirement_is_pinned_within_its_limits(group):
    for name, req in requirements(EXTRAS.get(group, PROJECT["dependencies"])).items():
        assert name in PINS, f"{name} has no line in constraints.txt"
        assert req.specifier.contains(PINS[name]), f"constraints.txt pins {name}=={PINS[name]}, not {req}"


def test_constraints_are_plain_exact_pins_in_order():
    lines = [line for line in CONSTRAINTS.splitlines() if not line.startswith("#")]
    assert lines == [f"{name}=={version}" for name, version in sorted(PINS.items())]
    assert not [line for line in lines if "+" in line]


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="constraints.txt lists what Python 3.11 needs")
def test_constraints_cover_all_that_gets_installed():
    waiting, seen = [*map(Requirement, PROJECT["dependencies"] + EXTRAS["dev"])], set()
    while waiting:
        req = waiting.pop()
        name = canonicalize_name(req.name)
        if (name, *req.extras) in seen:
            continue
        seen.add((name, *req.extras))
        if name == "torch":  # its CUDA build brings a platform's libraries that its CPU build lacks
            continue
        below = map(Requirement, metadata.distribution(name).requires or [])
        extras = req.extras or {""}
        waiting += [r for r in below if not r.marker or any(r.marker.evaluate({"extra": e}) for e in extras)]
    assert {name for name, *_ in seen} <= PINS.keys()


def test_cpu_and_gpu_machines_run_the_same_learner():
    *lines, last = PIP["pip"]
    assert last == "-e ."
    gpu = requirements(lines)
    for name in SHARED:
        assert str(gpu[name].specifier) == f"=={PINS[name]}", name
    for name in ("unsloth", "unsloth-zoo", "vllm"):  # without an exact pin a resolver goes back a year
        assert str(requirements(EXTRAS["gpu"])[name].specifier).startswith("=="), name
    allowed = requirements(PROJECT["dependencies"])
    for name, req in gpu.items():
        for pin in req.specifier:
            if pin.operator == "==" and name in allowed:
                assert allowed[name].specifier.contains(pin.version), name
    assert allowed.keys() <= gpu.keys()


def test_every_import_is_declared():
    extras = [line for group in EXTRAS.values() for line in group]
    declared = requirements([*PROJECT["dependencies"], *extras]).keys()
    own = {path.name for path in (ROOT / "src").iterdir()} | {"reproduce", "tools", "benchmarks", ""}
    homes = metadata.packages_distributions()
    for path in CODE:
        for name in reached(path) - own - {*sys.stdlib_module_names}:
            assert {canonicalize_name(home) for home in homes.get(name, [name])} & declared, f"{path} imports {name}"


def test_version_and_licence_are_said_once():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert PROJECT["version"] == coevolve.__version__ == citation["version"]
    licence = (ROOT / PROJECT["license-files"][0]).read_text()
    assert "Apache License" in licence and "Copyright 2026 coevolve authors" in licence
    assert PROJECT["license"] == citation["license"] == "Apache-2.0"


def test_every_data_file_is_shipped_with_the_package():
    package = ROOT / "src/coevolve"
    patterns = PYPROJECT["tool"]["setuptools"]["package-data"]["coevolve"]
    shipped = {path for pattern in patterns for path in package.glob(pattern)}
    data = {path for path in package.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    ignored = {path for path in data if fnmatch(path.name, ".*") or path.suffix == ".tmp"}
    assert data - ignored <= shipped
    assert any(path.suffix == ".txt" for path in shipped)


def test_every_code_folder_is_a_package():
    for path in (ROOT / "src/coevolve").rglob("*.py"):
        assert (path.parent / "__init__.py").exists(), f"{path.parent} is left out of the built package"


@pytest.mark.parametrize("name", readme_numbers.BLOCKS)
def test_tables_of_the_pages_are_those_of_the_measurements(name):
    page, made = readme_numbers.BLOCKS[name]
    block = (ROOT / page).read_text(encoding="utf-8").split(f"<!-- {name}: tools/readme_numbers.py -->")[1]
    assert block.split(f"<!-- end of {name} -->")[0].strip() == made()


def test_the_readme_stays_short_and_its_links_lead_somewhere():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 130
    targets = [target for target in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in target]
    assert len(targets) > 20 and [target for target in targets if not (ROOT / target).exists()] == []


LIST = ["git", "ls-files", "*.py", ":!tests/data"]
TRACKED = subprocess.run(LIST, cwd=ROOT, capture_output=True, text=True).stdout.split()


def imported(path: Path) -> Iterator[str]:
    """Dotted names that may be modules."""
    for node, _ in import_statements(path.read_text(encoding="utf-8")):
        home = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        yield from [*home, *(".".join([*home, alias.name]) for alias in node.names)]


@pytest.mark.skipif(not TRACKED, reason="not a clone")
def test_whatever_a_tracked_file_imports_is_tracked():
    bases = [ROOT / "src", ROOT, *{(ROOT / name).parent for name in TRACKED if name.startswith("tests/")}]
    for name in TRACKED:
        paths = [base / one.replace(".", "/") for one in imported(ROOT / name) if one for base in bases]
        files = [file for path in paths for file in (path.with_name(f"{path.name}.py"), path / "__init__.py")]
        assert {str(file.relative_to(ROOT)) for file in files if file.is_file()} <= {*TRACKED}, name


def test_what_is_installed_is_known_by_content(tmp_path):
    known = installed.known()
    assert {name: version.split("+")[0] for name, (version, _) in known.items()}.items() <= PINS.items()
    assert requirements(PROJECT["dependencies"] + EXTRAS["dev"]).keys() <= known.keys()
    folder = tmp_path / "aaa-1.dist-info"
    folder.mkdir()
    (folder / "RECORD").write_text("aaa.py,,\naaa-1.dist-info/INSTALLER,,\n../../../bin/aaa,,\n")
    hashes = []
    for file, text in (("aaa.py", "x = 1"), ("aaa-1.dist-info/INSTALLER", "pip"), ("aaa.py", "x = 2")):
        (tmp_path / file).write_text(text)
        hashes.append(installed.content(metadata.PathDistribution(folder)))
    assert hashes[0] == hashes[1] != hashes[2]
