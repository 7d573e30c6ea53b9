"""What other packages announce as entry points: worlds, models, corpora, executors, methods, commands.

The core names none of them. `pyproject.toml` lists those that ship here; a package of your own
adds to the same groups.
"""

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

WORLDS = "coevolve.worlds"  # world name (before a colon): factory(name, paper, needs_seeds) -> World
MODELS = "coevolve.models"  # model name: factory(name) -> its folder
CORPORA = "coevolve.corpora"  # `find`: factory(names, documents, max_bytes) -> a source of documents
EXECUTORS = "coevolve.executors"  # task language: a module that reads and verifies tasks
METHODS = "coevolve.methods"  # role: a Method class that belongs to a neighbour
COMMANDS = "coevolve.commands"  # command: the function behind it


@cache
def announced(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name."""
    return {entry.name: entry for entry in entry_points(group=group)}


def load(group: str, name: str) -> Any:
    """Import and return what is announced under this name.

    Raises ValueError if nothing is: the package is not installed, or its metadata is older than
    its code.
    """
    entry = announced(group).get(name)
    if entry is None:
        names = ", ".join(sorted(announced(group))) or "none"
        raise ValueError(
            f"no installed package announces {name!r} in {group} (there are: {names}); "
            "reinstall coevolve with `make setup` or `pip install -e .`"
        )
    return entry.load()
