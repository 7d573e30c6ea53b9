"""What the batch runner refuses before anything starts, and how it compares results."""

import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from toy_repository import ROOT, Toy, write_notebook

from reproduce import UserError, compare
from reproduce.parameters import check_parameters, declared


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    """Build the toy repository in a folder with a blank and an umlaut."""
    return Toy(tmp_path / "ein Bäumchen {x}")


@pytest.mark.parametrize(
    ("file", "old", "new", "arguments", "message"),
    [
        ("toy.toml", "", "", ["--only", "toy_tabel1"], "did you mean toy_table1"),
        ("toy.toml", "", "", ["--preset", "huge"], "unknown preset 'huge'; allowed: quick, warm"),
        ("toy.toml", "", "", ["--jobs", "0"], "jobs must be a whole number"),
        ("toy.toml", "", "", ["--nonsense"], "unrecognized arguments: --nonsense"),
        ("toy.toml", "", "", ["--paper", "toi"], "--paper toi: nothing is called that; did you mean toy?"),
        ("toy.toml", "", "", ["--paper", "late", "--only", "toy_*"], "--only toy_* and --paper late have nothing"),
        ("toy.toml", "", "", ["--executor", "dask"], "--executor: invalid choice: 'dask'"),
        ("toy.toml", "", "", ["--address", "a:1"], "--address is for --executor ray"),
        ("toy.toml", "", "", ["--", "--cores", "2"], "arguments after -- are for --executor snakemake"),
        ("toy.toml", "", "", ["--check", "no-such-commit"], "neither a folder nor a commit"),
        ("toy.toml", "tags =", "tag =", [], "[runs.odd]: unknown field 'tag'; allowed: outputs"),
        ("toy.toml", "steps = 1", "stebs = 1", [], "[runs.odd]: unknown field 'stebs'; allowed:"),
        ("toy.toml", "tags = [", "seeds = { quik = [0] }\ntags = [", [], "did you mean quick?"),
        ("toy.toml", "tags = [", "seeds = { quick = [-1] }\ntags = [", [], "different whole numbers from 0"),
        ("toy.toml", "steps = 1", "api_key = 1", [], "looks like a secret"),
        ("toy.toml", 'runs = ["odd"]', 'runs = ["oddd"]', [], "unknown run 'oddd'; did you mean odd?"),
        ("toy.toml", "artefacts.toy_table2", "artefacts.toy_tabl2", [], "did you mean toy_table2"),
        ("toy.toml", "steps = 1", 'model = "models/none"', [], "checkpoint models/none does not exist"),
        ("toy.toml", 'outputs = ["table.csv"]', 'outputs = ["../../x"]', [], "is not a plain name"),
        ("toy.toml", "scale = 10.0", "scales = 10.0", [], "unknown parameter 'scales'; declared: preset, out"),
        ("toy.toml", "scale = 10.0", 'scale = "10"', [], "scale must be float, not '10'"),
        ("toy.toml", "scale = 10.0", "scale = nan", [], "is not finite"),
        ("toy.toml", "toy_table.ipynb", "gone.ipynb", [], "gone.ipynb does not exist"),
        ("toy.toml", "[runs.odd]", "[runs.odd", [], "toy.toml: "),
        ("presets.toml", "jobs = 2", "job = 2", [], "unknown field 'job'; allowed: gpus, hub, jobs, kernel"),
        ("presets.toml", "jobs = 2", "gpus = -1", [], "presets.toml [quick]: gpus must be at least 0, not -1"),
        ("presets.toml", "jobs = 2", "retries = 0.5", [], "presets.toml [quick]: retries must be int, not 0.5"),
        ("presets.toml", "timeout = 600", "timeout = 0", [], "presets.toml [quick]: timeout must be at least 1, not 0"),
        ("presets.toml", 'kernel = "python3"', 'kernel = "python2"', [], "kernel must be warm or python3"),
        ("presets.toml", "seeds = [0, 1]", "seeds = [0, 0]", [], "one or more different whole numbers"),
        ("presets.toml", "steps = 2", "stebs = 2", [], "unknown field 'stebs'"),
    ],
)
def test_mistakes_are_one_line(toy: Toy, file: str, old: str, new: str, arguments: list[str], message: str) -> None:
    if old:
        toy.edit(f"reproduce/{file}", old, new)
    assert message in toy(*arguments, code=2)
    assert not (toy.root / "results").exists()


def test_read_only_results(toy: Toy) -> None:
    (toy.root / "results/quick").mkdir(parents=True)
    (toy.root / "results/quick").chmod(0o555)
    assert "is read-only" in toy(code=2)
    assert list((toy.root / "results").rglob("*")) == [toy.root / "results/quick"]
    (toy.root / "results/quick").chmod(0o755)
    (toy.root / "results/quick").rmdir()
    (toy.root / "results").rmdir()
    (toy.root / "results").write_text("in the way")
    assert "cannot write to" in toy(code=2)


def test_diff_and_check(toy: Toy, tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    for folder, value in ((a, "0.5"), (b, "0.5004")):
        (folder / "t").mkdir(parents=True)
        (folder / "t/table.csv").write_text(f"name,value\nx,{value}\ny,nan\n")
    assert toy("diff", str(a), str(b), "--tolerance", "1e-3") == "no differences\n"
    assert toy("diff", str(a), str(b), code=1) == ("t/table.csv: row 1 (x), value: 0.5 -> 0.5004\n1 differences\n")
    (b / "t/more.csv").write_text("x\n")
    assert "t/more.csv: only in the second tree" in toy("diff", str(a), str(b), code=1)
    assert "is not a folder" in toy("diff", str(a), str(tmp_path / "c"), code=2)

    for folder in ("toy_table1", "runs/plain-s0"):
        toy.result(folder).mkdir(parents=True)
        toy.result(f"{folder}/table.csv").write_text("name,value\nx,1.0\n")
    git = ["git", "-C", str(toy.root), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *command], check=True)
    toy.result("runs/plain-s0/table.csv").write_text("name,value\nx,9.0\n")
    assert toy("--check") == "no differences\n"
    toy.result("toy_table1/table.csv").write_text("name,value\nx,1.5\n")
    assert "toy_table1/table.csv: row 1 (x), value: 1.0 -> 1.5" in toy("--check", code=1)
    assert toy("--check", "--tolerance", "0.5") == "no differences\n"
    toy.result("toy_table1/table.csv").unlink()
    assert "toy_table1/table.csv: only in the first tree" in toy("--check", code=1)


def test_cells_compare_as_numbers_or_text() -> None:
    assert compare.close("1.0", "1.0000001", 1e-6) and not compare.close("1.0", "1.00001", 1e-6)
    assert compare.close("nan", "nan", 0.0) and not compare.close("nan", "1", 1.0)
    assert compare.close("x", "x", 0.0) and not compare.close("x", "y", 1.0)
    assert not compare.close("", "0", 1.0)
    assert compare.differences("t", "a,b\n1,2\n", "a,c\n1,2\n", 0.0) == ["t: columns a, b -> a, c"]
    assert compare.differences("t", "a\n1\n", "a\n1\n2\n", 0.0) == ["t: 1 -> 2 rows"]


HOSTILE = [
    ({"steps": 5, "lr": 1e-4}, True),
    ({"steps": 5, "lr": 1}, True),
    ({"x = 0; __import__('os').system('true'); y": 1}, False),
    ({"steps": "5"}, False),
    ({"steps": True}, False),
    ({"steps": 5.0}, False),
    ({"steps": 2**63}, False),
    ({"steps": None}, False),
    ({"lr": math.nan}, False),
    ({"lr": math.inf}, False),
    ({"name": b"__import__('os')"}, False),
    ({"name": "\ud800"}, False),
    ({"name": '"""; import os #\\'}, True),
    ({"name": None}, True),
    ({"table": {(1, 2): 3}}, False),
    ({"table": {"a": {1, 2}}}, False),
    ({"table": {"a": [1, {"b": None}]}}, True),
    ({"free": b"x"}, False),
    ({"free": "x" * 70_000}, False),
    ({1: 2}, False),
    (["steps"], False),
]


def bomb() -> list[object]:
    """Build a list that is small in memory and enormous when written out."""
    level: list[object] = ["x"] * 9
    for _ in range(7):
        level = [level] * 9
    return level


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Write a notebook that declares parameters in every accepted way."""
    path = tmp_path_factory.mktemp("n") / "n.ipynb"
    write_notebook(
        path,
        [
            "steps = 1  # how many\nlr: float = 1e-3\nname: str | None = None\n"
            "table: dict[str, int] = {}\nfree = None\nsign = -1.5"
        ],
    )
    yield path


@pytest.mark.parametrize(("values", "accepted"), [*HOSTILE, ({"free": bomb()}, False)])
def test_hostile_parameters(notebook: Path, values: dict[str, object], accepted: bool) -> None:
    if accepted:
        check_parameters(notebook, values)
    else:
        with pytest.raises(UserError):
            check_parameters(notebook, values)


def test_declared_types(notebook: Path) -> None:
    assert declared(notebook) == {
        "steps": (int,),
        "lr": (float,),
        "name": (str, type(None)),
        "table": (dict,),
        "free": (),
        "sign": (float,),
    }


@pytest.mark.parametrize("cell", ["x: complex = 1", "x = = 1"])
def test_unreadable_parameters_cell(tmp_path: Path, cell: str) -> None:
    write_notebook(tmp_path / "n.ipynb", [cell])
    with pytest.raises(UserError):
        declared(tmp_path / "n.ipynb")


def test_listing_imports_no_torch(toy: Toy) -> None:
    code = (
        "import sys; from reproduce.__main__ import main; "
        f"main(['--list', '--root', {str(toy.root)!r}]); "
        "assert not {'torch', 'papermill', 'pandas', 'rich'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
