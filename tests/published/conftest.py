"""A mirror of all data sets for the tests of this folder, written once."""

from pathlib import Path

import mirror
import pytest

from published import row_counts


@pytest.fixture(scope="session")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the mirror."""
    folder = tmp_path_factory.mktemp("mirror")
    return mirror.write(folder)


@pytest.fixture
def local(copies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make data sets come from the mirror."""
    monkeypatch.setenv("COEVOLVE_DATA", str(copies))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A path for a user's own questions; lines on stderr are said anew."""
    row_counts.say.cache_clear()
    return tmp_path / "own.jsonl"
