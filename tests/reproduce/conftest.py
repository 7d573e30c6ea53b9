"""A copy of the toy repository for every test that uses one."""

from pathlib import Path

import pytest
from toy_repository import Toy


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    """Copy the toy repository to a folder whose name has a blank, an umlaut and braces."""
    return Toy(tmp_path / "ein Bäumchen {x}")
