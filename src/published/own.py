"""A user's own questions as a world: file:PATH, a .jsonl, .json, .csv or .parquet file.

The world's name has the absolute path and the hash of the content, so a run resumes only with the
questions that it began with.
"""

import hashlib
import re
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from coevolve.validation import user_path
from published.data import Paper
from published.own_answers import OwnItem
from published.own_rows import FILE_READERS, read_items
from published.rows import Item
from published.world import ItemWorld, Parts

PREFIX = "file:"
CONTENT = re.compile(r"(?P<path>.+)#(?P<hash>[0-9a-f]{12})")


class OwnWorld(ItemWorld):
    """The questions of a file, which are trained on, validated and tested by their splits.

    `content` is the hash of the file; `needs_training` says whether a method starts from questions
    of the train split.
    """

    paper: ClassVar[str] = "file"

    def __init__(self, path: Path, content: str, needs_training: bool = True):
        self.path = path
        self.content = content
        self.needs_training = needs_training

    @property
    def name(self) -> str:
        """The world's name in a configuration."""
        return f"{PREFIX}{self.path}#{self.content}"

    @cached_property
    def grading(self) -> str:  # type: ignore[override]
        """How SAGE compares an answer with its gold: as formulas, if there are any."""
        scorers = {item.scorer for item in self._items}
        return "math" if scorers & {"math", "float"} else "exact"

    @cached_property
    def lists(self) -> Paper:
        """All topics, of which all questions are trained on or tested."""
        all_of_each = dict.fromkeys((item.family for item in self._items), 0)
        return Paper(tests=all_of_each, seeds=all_of_each)

    def check(self) -> None:
        """Raise ValueError, in one line, if the file does not make a world."""
        self._parts  # noqa: B018  reads the file

    @cached_property
    def _items(self) -> list[OwnItem]:
        if content_of(self.path) != self.content:
            raise ValueError(f"world: {self.path} has changed since it was named")
        return read_items(self.path)

    def _of(self, split: str) -> list[Item]:
        return [item for item in self._items if item.split == split]

    @cached_property
    def _parts(self) -> Parts:
        seeds = self._of("train")
        test = self._of("test")
        if not test or (self.needs_training and not seeds):
            empty = "train" if test else "test"
            raise ValueError(
                f"world: {self.path} has no question in split {empty}; "
                "add questions, or a column split with train, validation and test"
            )
        return Parts(seeds, self._of("validation"), test, evaluated=test)


def content_of(path: Path) -> str:
    """Return twelve hex digits of the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def named(name: str, paper: str = "", seeds: bool = True) -> OwnWorld:
    """Return the world file:PATH; no row is read yet.

    A relative path starts at the current folder, and ~ at the user's. The name may end with #HASH,
    as in the config.json of a run. `paper` has no effect. Raises ValueError when there is no such
    file, when its name has another ending, and when its content has another hash.
    """
    path = user_path(name.removeprefix(PREFIX))
    match = CONTENT.fullmatch(str(path))
    expected = ""
    if match and not path.exists():
        path = Path(match["path"])
        expected = match["hash"]
    path = path.resolve()
    endings = ", ".join(FILE_READERS)
    if path.suffix.lower() not in FILE_READERS:
        raise ValueError(
            f"PATH of world=file:PATH must end with one of {endings}, got {str(path)!r}"
        )
    if not path.is_file():
        raise ValueError(f"world: there is no file {path}")
    content = content_of(path)
    if expected not in ("", content):
        raise ValueError(
            f"world: {path} has changed: its hash is {content}, and was {expected}"
        )
    return OwnWorld(path, content, seeds)
