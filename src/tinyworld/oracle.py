"""The tiny world as methods see it: questions to start from, held-out items, an exact oracle.

Oracle verdicts go into facts, not into rewards (AZR's verifier excepted). Answers leave this
module only as the verifiers of SAGE's seed tasks, and for readers of transcripts.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from tinyworld import programs, tasks
from tinyworld.tasks import Task

TOML = Path(__file__).with_name("oracle.toml")
Verdict = bool | None  # None: the question is ill-formed
Row = tuple[str, Task]  # name of the source, task


@dataclass(frozen=True)
class Source:
    """The stand-in for one of a paper's data sets: a number of tasks from some families."""

    rows: int
    families: Sequence[str]
    levels: Sequence[int] = tasks.LEVELS


Sources = dict[str, Source]  # by name of the data set


def _read_sources(tables: dict[str, Any]) -> dict[str, Sources]:
    sources: dict[str, Sources] = {}
    for paper, table in tables.items():
        sources[paper] = {}
        for name, fields in table.items():
            sources[paper][name] = Source(**fields)
    return sources


_TABLES = tomllib.loads(TOML.read_text(encoding="utf-8"))
ZERO_QUESTIONS = _TABLES.pop("zero")
SOURCES = _read_sources(_TABLES)  # by paper


def _draw_rows(seed: str, paper: str) -> list[Row]:
    """Draw (source, task) rows of the train split for a paper's sources, without open facts."""
    rng = Random(seed)
    rows: list[Row] = []
    for name, source in SOURCES[paper].items():
        for task in _draw_tasks(rng, source):
            rows.append((name, task))
    return rows


def _draw_tasks(rng: Random, source: Source) -> list[Task]:
    drawn: list[Task] = []
    while len(drawn) < source.rows:
        family = rng.choice(source.families)
        task = tasks.draw(rng, family, rng.choice(source.levels))
        # Small numbers may make a task easier than the level asked for.
        has_level = task.level in source.levels
        if has_level and tasks.closed(task) and task.split == "train":
            drawn.append(task)
    return drawn


@dataclass(frozen=True)
class TinyWorld:
    """The embedded world, with an exact oracle."""

    name: ClassVar[str] = "tiny"  # in configurations
    grading: ClassVar[str] = "exact"  # some answers are names or lists, not numbers

    def seed_rows(self) -> list[Row]:
        """Return MAE's (source, task) rows of the train split (Table 5); questions may repeat."""
        return _draw_rows("seed questions", "mae")

    def seed_questions(self) -> list[str]:
        """Return the distinct questions of `seed_rows`, without their answers."""
        questions = [task.question for _, task in self.seed_rows()]
        return list(dict.fromkeys(questions))

    def zero_questions(self) -> list[str]:
        """Return 16 easy questions of our own (MAE does not print its own)."""
        return list(ZERO_QUESTIONS)

    def training_questions(self) -> list[tuple[str, str]]:
        """Return 2,000 (domain, question) rows of the train split in CoMAS's proportions."""
        questions = []
        for domain, task in _draw_rows("training questions", "comas"):
            questions.append((domain, task.question))
        return questions

    def task_rows(self) -> list[Row]:
        """Return SAGE's (source, task) rows of the train split (Table 5); tasks may repeat."""
        return _draw_rows("seed tasks", "sage")

    def verifiable_tasks(self) -> list[tuple[str, str, str]]:
        """Return the distinct tasks of `task_rows` as (question, kind, verifier)."""
        verified = []
        for _, task in self.task_rows():
            kind, verifier = programs.verifier_of(task, task.answer)
            verified.append((task.question, kind, verifier))
        return list(dict.fromkeys(verified))

    def program(self, question: str, answer: str) -> str:
        """Write an answer as a list program g or a one-line function f."""
        return programs.program(question, answer)

    has_interpreter = True

    def interpret(self, answer: str, tests: str) -> float | None:
        """Return the share of the tests that an answer passes, by the world's own arithmetic."""
        return programs.interpret(answer, tests)

    def questions(self, split: str, families: tuple[str, ...]) -> list[str]:
        """Return up to 200 questions per family; "test" serves CoNL's test-time training only."""
        return [task.question for task in self.items(split, 200, families)]

    def items(
        self, split: str, per_family: int = 40, families: tuple[str, ...] | None = None
    ) -> list[Task]:
        """Return distinct tasks of a split, up to `per_family` per family (None: all families)."""
        return tasks.items(
            split, per_family, tasks.NAMES if families is None else families
        )

    def held_out(self, question: str) -> bool:
        """Whether a text belongs to the validation or test split."""
        return tasks.split(question) != "train"

    def valid(self, question: str) -> bool:
        """Whether a question is well-formed."""
        return tasks.read(question) is not None

    def is_correct(self, question: str, answer: str | None) -> Verdict:
        """Whether an answer is correct; None for an ill-formed question."""
        if not self.valid(question):
            return None
        return tasks.is_correct(question, answer)

    def right_answer(self, question: str) -> str | None:
        """Return the correct answer, for readers of transcripts; None if ill-formed."""
        task = tasks.read(question)
        return None if task is None else task.answer

    def grade(self, pairs: Sequence[tuple[Task, str | None]]) -> list[Verdict]:
        """Verify (task, answer) pairs."""
        return [self.is_correct(task.question, answer) for task, answer in pairs]

    def level(self, question: str) -> int | None:
        """Return the level of a question, 1 to 3; None for an ill-formed one."""
        task = tasks.read(question)
        if task is None:
            return None
        return task.level

    def sound(self, question: str, kind: str, verifier: str) -> Verdict:
        """Whether a verifier accepts the oracle's answer; None for an ill-formed question."""
        return programs.sound(question, kind, verifier)

    def fits(self, question: str, plan: str) -> Verdict:
        """Whether a plan is literally the family's correct one; None for an ill-formed question."""
        task = tasks.read(question)
        if task is None:
            return None
        return plan == task.plan

    def check(self) -> None:
        """Do nothing: this world needs no files."""
