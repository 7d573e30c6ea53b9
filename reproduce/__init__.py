"""The batch runner: every training run and every table or figure of the papers, through papermill.

Knows notebooks, parameters and files; knows nothing about models. Run it as `python -m reproduce`.
"""

import os
import tempfile
from pathlib import Path


class UserError(ValueError):
    """A mistake of the person at the keyboard: one line on stderr, exit code 2, nothing written."""


def one_line(text: str, limit: int = 300) -> str:
    """Fold text into one printable line: line breaks become `; `, control and bidirectional marks escapes."""
    folded = "; ".join(part.strip() for part in text.splitlines() if part.strip())
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in folded)
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."


def write_atomic(path: Path, text: str) -> None:
    """Write a text file so that a reader, or a crash, sees the old content or the new, never a part."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
