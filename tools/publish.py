"""Put the repository's owner in the place of OWNER: `python -m tools.publish OWNER`.

Badges, links and CITATION.cff have the placeholder until the repository is published. `--check`
changes nothing; its exit code is 1 if the placeholder is left.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tools import outputs

ROOT = Path(__file__).resolve().parents[1]
OWNER = "OWNER"
REPOSITORY = "coevolve"
SITE = f"{OWNER}.github.io/{REPOSITORY}"
CODE = f"{OWNER}/{REPOSITORY}"
CLONE = f"git clone https://github.com/{CODE}"
# What GitHub allows: letters and digits, single hyphens between them, at most 39 characters.
OWNER_NAME = re.compile(r"(?=.{1,39}$)[A-Za-z0-9]+(-[A-Za-z0-9]+)*")
REPOSITORY_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}")


def unpublished(root: Path) -> list[Path]:
    """Return the tracked files of text that hold the placeholder."""
    command = ["git", "grep", "-l", "-I", "-z", "-F", "-e", CODE, "-e", SITE]
    process = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if process.returncode > 1:  # 1: no file
        sys.exit(process.stderr.strip())
    return [root / name for name in process.stdout.split("\0") if name]


def publish(root: Path, owner: str, repository: str) -> Iterator[Path]:
    """Put the names into all files; yield those that changed."""
    for file in unpublished(root):
        text = file.read_text(encoding="utf-8")
        named = with_names(text, owner, repository)
        if file.suffix == ".ipynb":
            named = with_digest(file.relative_to(root), text, named)
        file.write_text(named, encoding="utf-8", newline="\n")
        yield file


def with_names(text: str, owner: str, repository: str) -> str:
    """Return a text with the names in the places of the placeholders.

    A clone keeps its folder's name, by which other lines enter it.
    """
    if repository != REPOSITORY:
        text = text.replace(CLONE, f"{CLONE} {REPOSITORY}")
    text = text.replace(SITE, f"{owner.lower()}.github.io/{repository}")
    return text.replace(CODE, f"{owner}/{repository}")


def with_digest(notebook: Path, text: str, named: str) -> str:
    """Return a notebook whose outputs, if they were current, still count as current.

    An address in its code changes no output, but the digest of the code.
    """
    name = notebook.relative_to("notebooks").with_suffix("").as_posix()
    if name not in outputs.NAMES:
        return named
    before = _digests(name, text)
    after = _digests(name, named)
    if before["committed"] != before["current"]:
        return named
    return named.replace(before["current"], after["current"])


def _digests(name: str, text: str) -> dict[str, Any]:
    """Return the digest that a notebook's outputs were made of, and that of its cells today."""
    import nbformat  # which takes two seconds, and --check does without it

    notebook = nbformat.reads(text, as_version=4)
    return {
        "committed": notebook.metadata.get(outputs.DIGEST),
        "current": outputs.digest(name, notebook),
    }


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Put the names into the files, or list the files without them."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.publish", description=__doc__
    )
    parser.add_argument("owner", nargs="?", help="a user or an organisation on GitHub")
    parser.add_argument("--repository", default=REPOSITORY, metavar="NAME")
    parser.add_argument("--check", action="store_true", help="change nothing")
    options = parser.parse_args(arguments)
    if options.check:
        left = unpublished(root)
        for file in left:
            print(f"{file.relative_to(root)} has the placeholder {OWNER}")
        return int(bool(left))
    if options.owner is None:
        parser.error("name the owner, or ask for --check")
    if options.owner == OWNER or not OWNER_NAME.fullmatch(options.owner):
        parser.error(
            "owner must be a name on GitHub: letters, digits and single hyphens between them, "
            f"at most 39 characters; got {options.owner!r}"
        )
    if not REPOSITORY_NAME.fullmatch(options.repository):
        parser.error(
            "--repository must be a name on GitHub: letters, digits, -, _ and ., "
            f"at most 100 characters; got {options.repository!r}"
        )
    changed = 0
    for file in publish(root, options.owner, options.repository):
        print(file.relative_to(root))
        changed += 1
    print(f"{changed} files had the placeholder {OWNER}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
