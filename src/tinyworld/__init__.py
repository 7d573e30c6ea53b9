"""The embedded world: procedural task families, an exact oracle, and the backbones that speak its language.

Importing this package loads no model library; what it offers is imported when it is asked for.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

BACKBONES = Path(__file__).with_name("backbones")  # a folder for each shipped backbone
NAMES = ("tiny-small", "tiny", "tiny-large")
OFFERED = {"TinyWorld": "oracle", "TinyCorpus": "documents", "corpus": "documents", "Task": "tasks"}
__all__ = ["BACKBONES", "NAMES", "backbone", *OFFERED]  # noqa: PLE0604


def backbone(name: str) -> Path | None:
    """The folder of the shipped backbone of this name, or None."""
    return BACKBONES / name if name in NAMES else None


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in OFFERED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"tinyworld.{OFFERED[name]}"), name)
