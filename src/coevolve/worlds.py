"""Worlds by name, and what methods can request from one.

A world supplies starting questions, held-out items and, where it has one, an oracle.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol

from coevolve import plugins

NAMES = "tiny, data, data:KEY,KEY, gym:FAMILY,FAMILY, file:PATH or package.module:Class"


class World(Protocol):
    """The interface of a world.

    The oracle's methods, from `valid` to `fits`, return None in a world without an oracle.
    """

    @property
    def name(self) -> str:
        """Name in configurations, of one of the forms in NAMES."""

    @property
    def grading(self) -> str:
        """The verifier that compares a mathematical answer with its gold: math or exact."""

    def seed_questions(self) -> list[str]:
        """Return reference questions without answers (MAE, Table 5)."""

    def seed_rows(self) -> list[tuple[str, Any]]:
        """Return (source, task) rows of the seed set with answers, for supervised baselines."""

    def zero_questions(self) -> list[str]:
        """Return the 16 starting questions of MAE's zero setting."""

    def training_questions(self) -> list[tuple[str, str]]:
        """Return (domain, question) rows to train on, without answers (CoMAS, section 4.1.1).

        Questions may repeat.
        """

    def verifiable_tasks(self) -> list[tuple[str, str, str]]:
        """Return starting tasks (question, math or code, gold answer or tests) (SAGE, Table 5)."""

    def program(self, question: str, answer: str) -> str:
        """Return an answer to a code question as Python source that its tests can call."""

    @property
    def has_interpreter(self) -> bool:
        """Whether `interpret` judges the world's programs where no sandbox can run them."""

    def interpret(self, answer: str, tests: str) -> float | None:
        """Return the share of the tests that an answer passes, without running a program.

        None for tests that the interpreter cannot read.
        """

    def questions(self, split: str, families: tuple[str, ...]) -> list[str]:
        """Return distinct questions of a split and these families (CoNL, section 4.1)."""

    def items(
        self,
        split: str,
        per_family: int = 40,
        families: tuple[str, ...] | None = None,
    ) -> Sequence[Any]:
        """Return the held-out items of a `split` (validation or test), `per_family` at most.

        An item has the `question` that the solver reads and the `family` that tables group by. Its
        `level`, the `temperature` of the paper's evaluation and the `misconception`, the answer of
        a typical mistake, are None where the world does not know them.
        """

    def grade(self, pairs: Sequence[tuple[Any, str | None]]) -> list[bool | None]:
        """Return whether each answer of (item, answer) pairs is correct; None if undecidable."""

    def held_out(self, question: str) -> bool:
        """Whether a question is in validation or test and therefore must not enter a pool."""

    def valid(self, question: str) -> bool | None:
        """Whether a question is well formed."""

    def is_correct(self, question: str, answer: str | None) -> bool | None:
        """Whether an answer is correct; None also for an ill-formed question."""

    def right_answer(self, question: str) -> str | None:
        """Return a correct answer, None where none is known.

        For readers of transcripts alone: methods never ask for it.
        """

    def level(self, question: str) -> int | None:
        """Return the difficulty level of a well-formed question."""

    def sound(self, question: str, kind: str, verifier: str) -> bool | None:
        """Whether a gold answer or tests accept a correct answer; None if ill-formed as well."""

    def fits(self, question: str, plan: str) -> bool | None:
        """Whether a plan suits this kind of question; None also for an ill-formed question."""

    def check(self) -> None:
        """Raise ValueError, in one line, if the world's data are not available; load nothing."""


def resolve(name: str | World, paper: str = "mae", seeds: bool = True) -> World:
    """Return the world with this name; a World is returned unchanged.

    `paper` selects the published tests and seeds of the world `data`; `seeds` says whether the
    method starts from published questions. Raises ValueError for an unknown name.
    """
    if not isinstance(name, str):
        return name
    first_part, _, second_part = name.partition(":")
    if first_part in plugins.announced(plugins.WORLDS):
        factory = plugins.load(plugins.WORLDS, first_part)
        world: World = factory(name, paper, seeds)
        return world
    try:
        module = import_module(first_part)
        world_class: type[World] = getattr(module, second_part)
        return world_class()
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f"world must be one of {NAMES}, got {name!r}: {error}"
        ) from None
