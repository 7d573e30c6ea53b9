"""A world as protocols see it: starting questions, what is held out, and an oracle where there is one.

Oracle verdicts go into facts, not into rewards (AZR's verifier excepted); answers leave only as SAGE's seed verifiers.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import ClassVar

from tinyworld import programs, tasks
from tinyworld.tasks import NAMES, Task

SOURCES = tomllib.loads(Path(__file__).with_name("oracle.toml").read_text(encoding="utf-8"))  # of each paper


def _drawn(seed: str, paper: str) -> list[tuple[str, Task]]:
    """(source, task) rows of the train split, none of an open fact: as many of each source as SOURCES says."""
    rng = Random(seed)
    rows: list[tuple[str, Task]] = []
    for source, (count, families, *rest) in SOURCES[paper].items():
        levels, wanted = rest[0] if rest else tasks.LEVELS, len(rows) + count
        while len(rows) < wanted:
            task = tasks.draw(rng, rng.choice(families), rng.choice(levels))
            if task.level in levels and tasks.closed(task) and task.split == "train":
                rows.append((source, task))
    return rows


@dataclass(frozen=True)
class TinyWorld:
    """The embedded world: everything is exact."""

    name: ClassVar[str] = "tiny"  # in configurations
    grading: ClassVar[str] = "exact"  # names and lists are answers here, too

    def seed_rows(self) -> list[tuple[str, Task]]:
        """(source, task) rows in the proportions of Table 5, all of the train split; questions may repeat."""
        return _drawn("seed questions", "mae")

    def seed_questions(self) -> list[str]:
        """The questions of `seed_rows`, repeats left out: no answer ever leaves this method."""
        return list(dict.fromkeys(task.question for _, task in self.seed_rows()))

    def zero_questions(self) -> list[str]:
        """Sixteen easy questions of in-distribution families, ours: the paper does not print its own."""
        return list(SOURCES["zero"])

    def training_questions(self) -> list[tuple[str, str]]:
        """2,000 rows in the proportions of CoMAS's training set, all of the train split."""
        return [(domain, task.question) for domain, task in _drawn("training questions", "comas")]

    def task_rows(self) -> list[tuple[str, Task]]:
        """(source, task) rows in the proportions of SAGE's Table 5, all of the train split; tasks may repeat."""
        return _drawn("seed tasks", "sage")

    def verifiable_tasks(self) -> list[tuple[str, str, str]]:
        """The tasks of `task_rows` with their verifiers, repeats left out."""
        rows = [(task.question, *programs.verifier_of(task, task.answer)) for _, task in self.task_rows()]
        return list(dict.fromkeys(rows))

    def program(self, question: str, answer: str) -> str:
        """A list program g or a one-line function f."""
        return programs.program(question, answer)

    def questions(self, split: str, families: tuple[str, ...]) -> list[str]:
        """Up to 200 questions of each family; `test` is for CoNL's training at test time only."""
        return [task.question for task in self.items(split, 200, families)]

    def items(self, split: str, per_family: int = 40, families: tuple[str, ...] | None = None) -> list[Task]:
        """Distinct tasks of a split, up to `per_family` of each of these families (None: of all)."""
        return tasks.items(split, per_family, NAMES if families is None else families)

    def held_out(self, question: str) -> bool:
        """Whether the text's hash puts it into validation or test."""
        return tasks.split(question) != "train"

    def valid(self, question: str) -> bool:
        """Whether the oracle can read the question."""
        return tasks.read(question) is not None

    def is_correct(self, question: str, answer: str | None) -> bool | None:
        """The oracle's verdict, or None for an ill-formed question."""
        return tasks.is_correct(question, answer) if self.valid(question) else None

    def grade(self, pairs: Sequence[tuple[Task, str | None]]) -> list[bool | None]:
        """The oracle's verdicts on (task, answer) pairs."""
        return [self.is_correct(task.question, answer) for task, answer in pairs]

    def level(self, question: str) -> int | None:
        """Level 1 to 3, or None for an ill-formed question."""
        return task.level if (task := tasks.read(question)) else None

    def sound(self, question: str, kind: str, verifier: str) -> bool | None:
        """The oracle's verdict on a verifier, or None for an ill-formed question."""
        return programs.sound(question, kind, verifier)

    def fits(self, question: str, plan: str) -> bool | None:
        """Whether the plan is the family's own, word for word; None for an ill-formed question."""
        return plan == task.plan if (task := tasks.read(question)) else None

    def check(self) -> None:
        """Nothing that this world needs can be missing."""
