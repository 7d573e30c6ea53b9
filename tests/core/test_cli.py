"""The command line: a user's mistake is exit code 2 and one line, before torch loads and before anything is written."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from coevolve import config
from coevolve.__main__ import main

SOURCE = str(Path(__file__).resolve().parents[2] / "src")
PROBE = """
import json, sys
from coevolve.__main__ import main
code = main(json.loads(sys.argv[1]))
print(json.dumps([code, sorted({"torch", "transformers", "pandas"} & sys.modules.keys())]))
"""
MISTAKES = {  # arguments after `train`, and what the line has to name
    "protocol": (["nope", "--out", "run"], ["protocol must be one of", "mae,", "'nope'"]),
    "preset": (["mae", "--preset", "huge", "--out", "run"], ["preset must be one of", "quick,", "'huge'"]),
    "field": (["mae", "--out", "run", "stps=3"], ["field must be one of", "'stps'", "did you mean 'steps'?"]),
    "value": (["mae", "--out", "run", "batch_size=0"], ["batch_size must be at least 1, got 0"]),
    "type": (["mae", "--out", "run", "steps=many"], ["steps must be int, got 'many'"]),
    "nothing": (["mae", "--out", "run", "steps=null"], ["steps must be int, got None"]),
    "choice": (["mae", "--out", "run", "setting=most"], ["setting must be one of zero, no, half, with", "'most'"]),
    "seed": (["mae", "--out", "run", "--seed", "-1"], ["seed must be at least 0, got -1"]),
    "pair": (["mae", "--out", "run", "--fast"], ["expected field=value, got '--fast'"]),
    "model": (["mae", "--out", "run", "model=missing"], ["model must be one of tiny-small, tiny,", "'missing'"]),
    "model folder": (["mae", "--out", "run", "model=."], ["model must be one of", "got '.'"]),
    "out is a file": (["mae", "--out", "here/file", "model=here"], ["out must be a folder", "here/file"]),
    "out in a file": (["mae", "--out", "here/file/run", "model=here"], ["out must be a folder", "here/file/run"]),
    "out in /proc": (["mae", "--out", "/proc/nope/run", "model=here"], ["out must be a folder", "/proc/nope/run"]),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with what looks like a model, and a file."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "config.json").write_text("{}")
    (tmp_path / "here" / "file").write_text("mine")
    return tmp_path


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_and_leaves_nothing(name: str, folder: Path) -> None:
    arguments, parts = MISTAKES[name]
    before = files(folder)
    done = python(folder, "-c", PROBE, json.dumps(["train", *arguments]))
    assert json.loads(done.stdout) == [2, []], done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("coevolve: ") and all(part in line for part in parts), line
    assert files(folder) == before and (folder / "here" / "file").read_text() == "mine"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(folder: Path, capsys: pytest.CaptureFixture) -> None:
    locked = folder / "locked"
    locked.mkdir(mode=0o500)
    assert main(["train", "mae", "--out", str(locked), f"model={folder / 'here'}"]) == 2
    assert "out must be a folder that can be written" in capsys.readouterr().err
    assert list(locked.iterdir()) == []


def test_the_module_is_the_command(folder: Path) -> None:
    done = python(folder, "-m", "coevolve", "train", "nope", "--out", "run")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and "'nope'" in done.stderr


@pytest.mark.parametrize("arguments", [[], ["train"], ["train", "mae"], ["fly"], ["train", "mae", "--seed", "x"]])
def test_wrong_grammar_shows_the_usage(arguments: list[str], capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith("usage: coevolve")


def test_fields_lists_every_field_with_the_papers_value(capsys: pytest.CaptureFixture) -> None:
    assert main(["fields", "mae"]) == 0
    rows = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()}
    assert set(rows) == set(config.settable(config.Run)) | set(config.settable(config.method("mae")))
    assert rows["threshold"] == ["0.7"] and rows["solves"] == ["1", str(config.presets()["quick"]["mae"]["solves"])]
    assert rows["learning_rate"] == ["1e-06", str(config.presets()["quick"]["all"]["learning_rate"])]
    assert main(["fields", "mae", "--preset", "gpu"]) == 0
    assert "prompt               'compact'                'full'" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["fields", "nope"], ["fields", "mae", "--preset", "none"]])
def test_fields_of_nothing(arguments: list[str], capsys: pytest.CaptureFixture) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and said.err.startswith("coevolve: p")
