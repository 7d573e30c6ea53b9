"""Prompt files, named <role>.<variant>.txt, and the loader that turns them into Roles.

`full` is for large models, `plain` (a sentence or two) for small ones, `compact` for the embedded
backbones; all share the same fields, tags and parsers. Leading lines that start with %% are
comments. Files of the same name in a user's folder take precedence.
"""

from itertools import dropwhile
from pathlib import Path
from typing import Any, Literal, get_args

from coevolve.types import Role
from coevolve.validation import check_choice, expand_home

Variant = Literal["full", "plain", "compact"]
PACKAGE = Path(__file__).parents[1]
# Prompts that belong to no paper; a paper's prompts are in methods/<paper>/prompts.
FOLDERS = {"azr": "methods/baselines/prompts", "strategies": "evaluation/prompts"}


def folder_of(paper: str) -> Path:
    """Return the folder of the shipped prompts of a paper, of `azr`, or of the `strategies`."""
    return PACKAGE / FOLDERS.get(paper, f"methods/{paper}/prompts")


def read(
    paper: str, role: str, variant: str = "full", folder: str | Path | None = None
) -> str:
    """Return a prompt without its comment lines.

    `folder` is a user's folder of prompts, searched first. Raises ValueError, with the existing
    prompts, if there is no such file.
    """
    check_choice("prompt variant", variant, get_args(Variant))
    folder = expand_home(folder) if folder else folder
    if folder and not any(Path(folder).rglob(f"*.{variant}.txt")):
        raise ValueError(
            f"prompt_folder must hold prompts named ROLE.{variant}.txt, "
            f"but {str(folder)!r} has none"
        )
    file_name = f"{role}.{variant}.txt"
    searched = [folder_of(paper)]
    if folder:
        searched = [Path(folder) / paper, Path(folder), *searched]
    for place in searched:
        path = place / file_name
        if path.is_file():
            return _without_comments(path.read_text(encoding="utf-8"))
    existing = ", ".join(available(paper, variant)) or "none"
    raise ValueError(f"no {variant} prompt {paper}/{role}; there are {existing}")


def _without_comments(text: str) -> str:
    lines = text.splitlines(keepends=True)
    body = dropwhile(lambda line: line.startswith("%%"), lines)
    return "".join(body).strip("\n")


def available(paper: str, variant: str = "full") -> list[str]:
    """Return the names of a paper's roles that have a prompt of this variant."""
    files = folder_of(paper).glob(f"*.{variant}.txt")
    return sorted(path.name.split(".")[0] for path in files)


def load_role(
    paper: str,
    role: str,
    variant: str = "full",
    *,
    name: str | None = None,
    folder: str | None = None,
    **settings: Any,
) -> Role:
    """Return the Role that speaks this prompt.

    `name` is its name in samples and metrics (default: `role`); `settings` are Role's policy,
    temperature and max_tokens. Raises ValueError if a user's prompt has other placeholders than
    the shipped one.
    """
    text = read(paper, role, variant, folder)
    loaded = Role(name or role, text, source=f"{paper}/{role}", **settings)
    if role not in available(paper, variant):
        return loaded
    shipped = Role(role, read(paper, role, variant))
    if loaded.fields != shipped.fields:
        raise ValueError(
            f"{role}.{variant}.txt must take the placeholders {sorted(shipped.fields)}, "
            f"got {sorted(loaded.fields)}"
        )
    return loaded
