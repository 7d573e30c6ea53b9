"""The files in tests/data, which hold cases as they are written and not as Python spells them."""

import tomllib
from pathlib import Path
from typing import Any

DATA = Path(__file__).with_name("data")
OWN = f"{Path(__file__).with_name('core')}/own_method.py:Debate"


def tables(name: str) -> dict[str, Any]:
    """The tables of a TOML file."""
    return tomllib.loads((DATA / f"{name}.toml").read_text("utf-8"))
