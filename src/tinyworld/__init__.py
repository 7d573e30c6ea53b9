"""The embedded world: procedural task families, an exact oracle, and backbones that speak it.

Importing this package loads no model library.
"""

from pathlib import Path

from tinyworld.oracle import TinyWorld

__all__ = ["BACKBONES", "NAMES", "TinyWorld", "backbone"]

BACKBONES = Path(__file__).with_name("backbones")  # one folder per shipped backbone
# tiny and tiny-N are warm starts of one shape, from other random weights and demonstrations.
NAMES = ("tiny-small", "tiny", "tiny-1", "tiny-2", "tiny-3", "tiny-4", "tiny-large")


def named(name: str, paper: str = "mae", seeds: bool = True) -> TinyWorld:
    """Return the tiny world, which is the same for every paper and has seed questions for all."""
    return TinyWorld()


def backbone(name: str) -> Path | None:
    """Return the folder of a shipped backbone, or None for any other name."""
    return BACKBONES / name if name in NAMES else None
