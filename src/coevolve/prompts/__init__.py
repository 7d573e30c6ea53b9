"""Prompt files and the loader that makes Roles of them. Data, not code: <paper>/<role>.<variant>.txt.

`full` is for real models, `plain` (a sentence or two) for small ones, `compact` for the embedded backbones: the same
fields, tags and parser. Lines that start with %% at the top of a file are comments. A user's own folder with the same
names takes precedence.
"""

from itertools import dropwhile
from pathlib import Path
from typing import Any

from coevolve.checks import among
from coevolve.types import Role

HERE = Path(__file__).parent


def text(paper: str, role: str, variant: str = "full", folder: str | Path | None = None) -> str:
    """Read a prompt without its comment lines; raise ValueError naming what exists when it does not."""
    among("prompt variant", variant, ("full", "plain", "compact"))
    if folder and not any(Path(folder).rglob(f"*.{variant}.txt")):
        raise ValueError(f"prompt_folder must hold prompts, ROLE.{variant}.txt, and in {str(folder)!r} there are none")
    name = f"{role}.{variant}.txt"
    places = [Path(folder) / paper / name, Path(folder) / name] if folder else []
    for path in (*places, HERE / paper / name):
        if path.is_file():
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            return "".join(dropwhile(lambda line: line.startswith("%%"), lines)).strip("\n")
    raise ValueError(f"no {variant} prompt {paper}/{role}; there are {', '.join(available(paper, variant)) or 'none'}")


def available(paper: str, variant: str = "full") -> list[str]:
    """Names of the roles of a paper that have a prompt of this variant."""
    return sorted(path.name.split(".")[0] for path in (HERE / paper).glob(f"*.{variant}.txt"))


def load(
    paper: str, role: str, variant: str = "full", *, name: str | None = None, folder: str | None = None, **more: Any
) -> Role:
    """Make the Role that speaks this prompt; `more`: a policy and a temperature.

    `name` is what samples and metrics call it (default: `role`).
    """
    made = Role(name or role, text(paper, role, variant, folder), **more)
    shipped = Role(role, text(paper, role, variant)) if role in available(paper, variant) else made
    if made.fields != shipped.fields:
        raise ValueError(f"{role}.{variant}.txt must take {sorted(shipped.fields)}, and takes {sorted(made.fields)}")
    return made
