"""How much code each room holds, and how dense it is, beside well-known model codebases.

`python -m tools.size [--before REVISION] [--anchors FOLDER]` prints one row for each room: code
lines, expressions (AST nodes of kind `expr`) and what makes lines hard to read. FOLDER holds
clones of the codebases in ANCHORS under their names.
"""

import argparse
import ast
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

from coevolve.validation import user_path
from tools import density

ROOT = Path(__file__).resolve().parents[1]
PARENTS = (
    "src/coevolve",
    "src/tinyworld",
    "src/codesandbox",
    "src/published",
    "src",
    "reproduce",
    "tests",
    "benchmarks",
    "tools",
    "examples",
)


@dataclass(frozen=True)
class Anchor:
    """A codebase to compare with: the name of its clone, and the folder that is measured."""

    clone: str
    folder: str


ANCHORS = (
    Anchor("nanochat", "nanochat"),
    Anchor("nanochat", "scripts"),
    Anchor("tinker-cookbook", "tinker_cookbook/rl"),
    Anchor("verifiers", "verifiers"),
    Anchor("cleanrl", "cleanrl"),
    Anchor("rliable", "rliable"),
    Anchor("torchtune", "torchtune/rlhf"),
    Anchor("trl", "trl/trainer"),
)


@dataclass(frozen=True)
class Size:
    """Counts of some sources, which add up."""

    lines: int = 0
    """Code lines, without blanks, comments and docstrings."""

    expressions: int = 0
    characters: int = 0
    """Characters of the code lines, without indentation."""

    long_lines: int = 0
    """Code lines of more than 100 columns."""

    tuple_assignments: int = 0
    conditionals: int = 0
    comprehensions: int = 0
    nested_comprehensions: int = 0

    @classmethod
    def of(cls, text: str) -> Self:
        """Count one source."""
        tree = ast.parse(text)
        numbers = density.code_lines(text)
        all_lines = text.splitlines()
        lines = [all_lines[number - 1] for number in sorted(numbers)]
        nodes = list(ast.walk(tree))
        return cls(
            lines=len(lines),
            expressions=density.expressions(tree),
            characters=sum(len(line.strip()) for line in lines),
            long_lines=sum(len(line) > density.MAX_COLUMNS for line in lines),
            tuple_assignments=sum(map(density.assigns_unrelated_values, nodes)),
            conditionals=count(nodes, ast.IfExp),
            comprehensions=count(nodes, density.COMPREHENSIONS),
            nested_comprehensions=sum(map(density.nests_comprehensions, nodes)),
        )

    def __add__(self, other: Self) -> Self:
        """Add count by count."""
        sums = {}
        for field in fields(self):
            mine = getattr(self, field.name)
            sums[field.name] = mine + getattr(other, field.name)
        return type(self)(**sums)

    def cells(self) -> list[str]:
        """Return the cells of the table below HEADER, without the room's name."""
        lines = max(self.lines, 1)

        def per_thousand(number: int) -> str:
            return f"{1000 * number / lines:.1f}"

        return [
            f"{self.lines:,}",
            f"{self.expressions:,}",
            f"{self.expressions / lines:.2f}",
            f"{self.characters / lines:.1f}",
            f"{100 * self.long_lines / lines:.1f} %",
            per_thousand(self.tuple_assignments),
            per_thousand(self.conditionals),
            per_thousand(self.comprehensions),
            per_thousand(self.nested_comprehensions),
        ]


HEADER = (
    "room",
    "code lines",
    "expressions",
    "expressions a line",
    "characters a line",
    "over 100 columns",
    "tuple assignments a thousand lines",
    "conditional expressions a thousand",
    "comprehensions a thousand",
    "nested a thousand",
)


def count(nodes: Iterable[ast.AST], kinds: density.Kinds) -> int:
    """Count the nodes of some kinds."""
    return sum(isinstance(node, kinds) for node in nodes)


def git(repository: Path, *arguments: str) -> str:
    """Return what git prints about a repository."""
    command = ["git", "-C", str(repository), *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout


def is_counted(path: str) -> bool:
    """Whether a file counts: Python, and not among the tests' hostile programs."""
    return path.endswith(".py") and not path.startswith(density.HOSTILE)


def sizes_now() -> dict[str, Size]:
    """Measure every file of the working tree that git does not ignore, by path."""
    listing = git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard")
    sizes = {}
    for path in listing.splitlines():
        if is_counted(path) and (ROOT / path).is_file():
            text = (ROOT / path).read_text(encoding="utf-8")
            sizes[path] = Size.of(text)
    return sizes


def sizes_then(repository: Path, revision: str, folder: str = "") -> dict[str, Size]:
    """Measure every file of a revision, below a folder, by path."""
    listing = git(repository, "ls-tree", "-r", "--name-only", revision)
    sizes = {}
    for path in listing.splitlines():
        if is_counted(path) and path.startswith(folder):
            text = git(repository, "show", f"{revision}:{path}")
            sizes[path] = Size.of(text)
    return sizes


def total(sizes: dict[str, Size], room: str) -> Size:
    """Add up a folder or file."""
    is_inside = f"{room}/"
    parts = [
        size
        for path, size in sizes.items()
        if path == room or path.startswith(is_inside)
    ]
    return sum(parts, Size())


def rooms_of_the_core(paths: Iterable[str]) -> list[str]:
    """Return the folders and files that stand directly in the core."""
    core = "src/coevolve/"
    inside = [path.removeprefix(core) for path in paths if path.startswith(core)]
    names = {path.split("/")[0] for path in inside}
    return [core + name for name in sorted(names)]


def rows(sizes: dict[str, Size], when: str = "") -> Iterator[list[str]]:
    """Yield the rows of all rooms that have code."""
    for room in (*PARENTS, *rooms_of_the_core(sizes)):
        size = total(sizes, room)
        if size.lines:
            yield [f"{room}{when}", *size.cells()]


def anchor_rows(folder: Path) -> Iterator[list[str]]:
    """Yield the rows of the codebases whose clones are there."""
    for anchor in ANCHORS:
        clone = folder / anchor.clone
        if clone.exists():
            sizes = sizes_then(clone, "HEAD", f"{anchor.folder}/")
            size = sum(sizes.values(), Size())
            yield [f"{anchor.clone}: {anchor.folder}", *size.cells()]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", metavar="REVISION", help="an older revision")
    parser.add_argument("--anchors", metavar="FOLDER", type=user_path, help="clones")
    arguments = parser.parse_args()
    table = [list(HEADER), ["---"] * len(HEADER)]
    table += rows(sizes_now())
    if arguments.before:
        table += rows(sizes_then(ROOT, arguments.before), f", {arguments.before}")
    if arguments.anchors:
        table += anchor_rows(arguments.anchors)
    for cells in table:
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
