"""The embedded world: procedural task families, an exact oracle, and the backbones that speak its language."""

from pathlib import Path

BACKBONES = Path(__file__).with_name("backbones")
NAMES = ("tiny-small", "tiny", "tiny-large", "tiny-seasoned")


def backbone(name: str) -> Path | None:
    """Return the folder of an embedded backbone; None when there is none of this name."""
    return BACKBONES / name if name in NAMES else None
