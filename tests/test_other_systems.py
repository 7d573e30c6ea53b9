"""macOS and Windows: what needs Linux refuses in one line, and everything else imports.

Windows is simulated, in a process of its own, by taking away what its Python does not have.
"""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_shape import CODE, CORE, LOADS_TENSORS, ROOT, SRC, part_of, short, tree_of

from codesandbox.pool import Pool, SandboxError
from coevolve import cli
from coevolve.methods.sage import verifier
from reproduce import UserError, cores
from reproduce.__main__ import main
from tools.imports import module_name

PROBE = Path(__file__).with_name("other_systems.py")
# Unix alone has these; they may be used inside functions that refuse other systems before.
UNIX = {"fcntl", "resource", "termios", "pwd", "grp"}
UNIX_ATTRIBUTES = {"SIGKILL", "SIGALRM", "SIGHUP", "SIGCHLD"}
# Programs that run in the guarded processes of Linux, and tools of this repository's developers.
LINUX_ONLY = ("src/codesandbox/guarded/", "tools/", "benchmarks/")
METHODS = ("mae", "sage", "spice", "comas", "conl")
# Modules that need torch, whose Windows build is another file.
WITH_TORCH = ("tinyworld.warmstart", "tinyworld.gates")


def modules_to_import() -> list[str]:
    """Return the modules of the packages that load no tensor library."""
    names = []
    for path in CODE:
        is_package = SRC in path.parents
        if not is_package or part_of(path, LOADS_TENSORS):
            continue
        name = module_name(path.relative_to(SRC))
        if "guarded" not in name and name not in WITH_TORCH and "__main__" not in name:
            names.append(name)
    return names


def test_all_modules_without_torch_can_be_imported_on_windows() -> None:
    names = modules_to_import()
    assert len(names) > 80
    done = subprocess.run(
        [sys.executable, str(PROBE), *names, "reproduce.run", "reproduce.plan"],
        env={**os.environ, "PYTHONPATH": f"{SRC}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_the_simulation_finds_what_windows_does_not_have(tmp_path: Path) -> None:
    (tmp_path / "of_unix.py").write_text("import fcntl")
    (tmp_path / "kills.py").write_text("import signal\nsignal.SIGKILL")
    done = subprocess.run(
        [sys.executable, str(PROBE), "of_unix", "kills"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    faults = dict(json.loads(done.stdout.splitlines()[-1]))
    assert "No module named 'fcntl'" in faults["of_unix"]
    assert "SIGKILL" in faults["kills"]


@pytest.mark.parametrize("path", CODE, ids=short)
def test_no_file_needs_unix_when_it_is_imported(path: Path) -> None:
    if short(path).startswith(LINUX_ONLY):
        return
    for node in outside_functions(tree_of(path)):
        if isinstance(node, ast.Import):
            assert UNIX.isdisjoint(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module not in UNIX
        elif isinstance(node, ast.Attribute):
            assert node.attr not in UNIX_ATTRIBUTES


def outside_functions(node: ast.AST) -> list[ast.AST]:
    """Return the nodes of a tree that run when the file is imported."""
    found = []
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            found += [child, *outside_functions(child)]
    return found


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_the_sandbox_refuses_other_systems_in_one_line(
    platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    with pytest.raises(SandboxError, match="^guarded processes exist on Linux only.*$"):
        Pool(2)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_plays_in_the_tiny_world_without_a_sandbox(
    method: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COEVOLVE_SANDBOX", "refuse")
    monkeypatch.setattr(verifier, "SOUND", set())
    monkeypatch.setattr(verifier, "PASS_RATES", {})
    assert cli.main(["play", method, "--seed", "0"]) == 0
    assert "with a reward" in capsys.readouterr().out


def test_the_batch_refuses_windows_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(UserError, match="^the batch needs .*; on Windows use WSL"):
        main(["--only", "claims"])


def test_processors_are_counted_without_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert cores() == os.cpu_count()


def test_the_core_is_where_the_simulation_looks() -> None:
    assert any(name.startswith("coevolve.commands.") for name in modules_to_import())
    assert CORE.is_dir()
