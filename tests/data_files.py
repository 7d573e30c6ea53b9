"""The files in tests/data, which hold test cases in their own notation instead of Python's."""

import tomllib
from pathlib import Path
from typing import Any

DATA = Path(__file__).with_name("data")
OWN = f"{Path(__file__).with_name('core')}/own_method.py:Debate"


def tables(name: str) -> dict[str, Any]:
    """Return the tables of a TOML file."""
    path = DATA / f"{name}.toml"
    text = path.read_text("utf-8")
    return tomllib.loads(text)
