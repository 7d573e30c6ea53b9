"""The batch runner: every training run, table and figure of the papers, executed by papermill.

Knows notebooks, parameters and files; knows nothing about models. Run it as `python -m reproduce`.
"""

import os
from pathlib import Path

HOME = Path(__file__).resolve().parents[1]


def cores() -> int:
    """Return the number of processors that this process may use, on any system."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class UserError(ValueError):
    """A user's mistake: reported in one line on stderr with exit code 2; nothing is written."""


def user_path(path: str) -> Path:
    """Return a path that a user gave, with a leading ~ or ~USER replaced by the home folder.

    As `coevolve.validation.user_path`, which the batch must not import before it knows the
    repository.
    """
    return Path(os.path.expanduser(path))


def one_line(text: str, limit: int = 300) -> str:
    """Fold text into one printable line of at most `limit` characters.

    Line breaks become `; `, unprintable characters (control and bidirectional marks) their escapes.
    """
    lines = []
    for line in text.splitlines():
        if line.strip():
            lines.append(line.strip())
    folded = "; ".join(lines)
    shown = "".join(_printable(character) for character in folded)
    if len(shown) > limit:
        return shown[: limit - 3] + "..."
    return shown


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode()
