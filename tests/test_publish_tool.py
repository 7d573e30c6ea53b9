"""Publishing puts the owner's name into all files, and nothing else changes."""

import subprocess
from pathlib import Path

import pytest

from tools import outputs, publish

README = f"""{publish.CLONE} && cd coevolve
[a page](https://{publish.SITE}/docs/tour.html)
[bugs](https://github.com/{publish.CODE}/issues)
OWNER/NAME is another placeholder.
"""
PUBLISHED = """git clone https://github.com/Some-One/roles coevolve && cd coevolve
[a page](https://some-one.github.io/roles/docs/tour.html)
[bugs](https://github.com/Some-One/roles/issues)
OWNER/NAME is another placeholder.
"""


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A clone with a page, a notebook whose outputs are current, and a picture."""
    import nbformat  # which takes two seconds, so no module of tests imports it

    (tmp_path / "README.md").write_text(README)
    (tmp_path / "picture.png").write_bytes(b"\x00" + publish.CODE.encode())
    cell = nbformat.v4.new_code_cell(f"source = 'https://github.com/{publish.CODE}'")
    notebook = nbformat.v4.new_notebook(cells=[cell])
    notebook.metadata[outputs.DIGEST] = outputs.digest("start_here", notebook)
    (tmp_path / "notebooks").mkdir()
    nbformat.write(notebook, tmp_path / "notebooks/start_here.ipynb")
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    return tmp_path


def run(root: Path, *arguments: str) -> int:
    return publish.main(arguments, root)


def test_the_owner_is_named_in_every_file_of_text(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(root, "--check") == 1
    assert run(root, "Some-One", "--repository", "roles") == 0
    *files, summary = capsys.readouterr().out.splitlines()[2:]
    assert files == ["README.md", "notebooks/start_here.ipynb"]
    assert summary.startswith("2 files")
    assert (root / "README.md").read_text() == PUBLISHED
    assert publish.CODE.encode() in (root / "picture.png").read_bytes()
    assert run(root, "--check") == 0


def test_a_second_call_changes_nothing(root: Path) -> None:
    run(root, "Some-One", "--repository", "roles")
    run(root, "another")
    assert (root / "README.md").read_text() == PUBLISHED


@pytest.mark.parametrize("is_current", [True, False])
def test_outputs_are_as_current_as_before(root: Path, is_current: bool) -> None:
    import nbformat

    file = root / "notebooks/start_here.ipynb"
    if not is_current:
        file.write_text(file.read_text().replace("source =", "address ="))
    run(root, "Some-One")
    notebook = nbformat.read(file, as_version=4)
    assert "Some-One/coevolve" in notebook.cells[0].source
    digest = outputs.digest("start_here", notebook)
    assert (notebook.metadata[outputs.DIGEST] == digest) == is_current


NO_NAMES = [
    ["OWNER"],
    ["two--hyphens"],
    ["-first"],
    ["last-"],
    ["under_score"],
    ["a" * 40],
    [""],
    ["someone", "--repository", "a/b"],
    ["someone", "--repository", ".."],
    [],
]


@pytest.mark.parametrize("arguments", NO_NAMES, ids=" ".join)
def test_what_is_no_name_on_github_is_refused(root: Path, arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        run(root, *arguments)
    assert (root / "README.md").read_text() == README
