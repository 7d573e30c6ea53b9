"""Entry points of other packages: worlds, models, corpora, executors, methods and commands.

The core imports none of them by name. `pyproject.toml` lists those in this repository; your own
package can add to the same groups.
"""

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

# Each group is documented as {name of its entries: the object that they load}.

# {world name, before a colon: factory(name, paper, needs_seeds) -> World}
WORLDS = "coevolve.worlds"
# {model name: factory(name) -> its folder}
MODELS = "coevolve.models"
# {"find": factory(names, documents, max_bytes) -> a source of documents}
CORPORA = "coevolve.corpora"
# {task language: a module that reads and verifies tasks}
EXECUTORS = "coevolve.executors"
# {name: a Method class outside the core}
METHODS = "coevolve.methods"
# {command: the function behind it}
COMMANDS = "coevolve.commands"


@cache
def announced(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name."""
    return {entry.name: entry for entry in entry_points(group=group)}


def load(group: str, name: str) -> Any:
    """Import and return the object announced under a name.

    Raises ValueError if there is none, because the package is not installed or its metadata is
    older than its code.
    """
    entry = announced(group).get(name)
    if entry is None:
        names = ", ".join(sorted(announced(group))) or "none"
        raise ValueError(
            f"no installed package announces {name!r} in {group} (there are: {names}); "
            "reinstall coevolve with `make setup` or `pip install -e .`"
        )
    return entry.load()
