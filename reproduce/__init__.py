"""The batch runner: every training run and every table or figure of the papers, through papermill.

Knows notebooks, parameters and files; knows nothing about models. Run it as `python -m reproduce`.
"""

import os
from pathlib import Path

HOME = Path(__file__).resolve().parents[1]


class UserError(ValueError):
    """A mistake of the person at the keyboard: one line on stderr, exit code 2, nothing written."""


def one_line(text: str, limit: int = 300) -> str:
    """Fold text into one printable line: line breaks become `; `, control and bidirectional marks escapes."""
    folded = "; ".join(part.strip() for part in text.splitlines() if part.strip())
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in folded)
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."


def write_atomic(path: Path, text: str) -> None:
    """Write a text file so that a reader sees the old content or the new, never a part. One writer at a time."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
