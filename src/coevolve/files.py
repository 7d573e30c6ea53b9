"""Files that are written whole or not at all."""

from pathlib import Path

LONE = "backslashreplace"  # half a surrogate pair, which UTF-8 cannot hold, becomes its escape


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file, text as UTF-8, so that a reader finds either the old content or the new, never a part of it."""
    aside = path.with_name(f".{path.name}.tmp")
    aside.write_bytes(content.encode("utf-8", LONE) if isinstance(content, str) else content)
    aside.replace(path)
