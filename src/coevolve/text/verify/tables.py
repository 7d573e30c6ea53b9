"""The tables of words, signs and units beside this module."""

import tomllib
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / name).read_text(encoding="utf-8"))


WORDS = _read("words.toml")
SIGNS = _read("signs.toml")
UNITS = _read("units.toml")
WARM_UP_PAIRS = _read("warm.toml")["pairs"]
