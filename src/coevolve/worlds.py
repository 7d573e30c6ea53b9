"""Worlds by name, and what a method may ask of one: questions to start from, what is held out, an oracle."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol

from coevolve import plugins

NAMES = "tiny, data, data:KEY,KEY, gym:FAMILY,FAMILY or package.module:Class"


class World(Protocol):
    """What a method may ask of a world. The oracle's methods return None where there is no oracle, as they do here."""

    @property
    def name(self) -> str:
        """Name in configurations: tiny, data, data:KEY,KEY, gym:FAMILY,FAMILY or package.module:Class."""

    @property
    def grading(self) -> str:
        """The verifier that compares a mathematical answer with its gold: math or exact."""

    def seed_questions(self) -> list[str]:
        """Reference questions without answers (MAE's Table 5)."""

    def seed_rows(self) -> list[tuple[str, Any]]:
        """(source, task) rows of the seed set with their answers, for supervised baselines."""

    def zero_questions(self) -> list[str]:
        """The 16 starting questions of MAE's zero setting."""

    def training_questions(self) -> list[tuple[str, str]]:
        """(domain, question) rows to train on, without answers (CoMAS, section 4.1.1); questions may repeat."""

    def verifiable_tasks(self) -> list[tuple[str, str, str]]:
        """(question, math or code, gold answer or tests) to start from (SAGE's Table 5)."""

    def program(self, question: str, answer: str) -> str:
        """An answer to a code question as Python source that its tests can call."""

    def questions(self, split: str, families: tuple[str, ...]) -> list[str]:
        """Distinct questions of a split and these families, without answers (CoNL, section 4.1)."""

    def items(self, split: str, per_family: int = 40, families: tuple[str, ...] | None = None) -> Sequence[Any]:
        """Held-out items of validation or test (their `split`), at most `per_family` of each family.

        An item has a `question`, which the solver reads, and a `family`, which tables group by. None where a world
        does not know: its `level`, the `temperature` that the paper evaluates it at, and the `misconception`, which
        is the answer of a typical mistake.
        """

    def grade(self, pairs: Sequence[tuple[Any, str | None]]) -> list[bool | None]:
        """Verdicts on (item, answer) pairs; None where no verifier can tell."""

    def held_out(self, question: str) -> bool:
        """Whether a question belongs to validation or test, and so may not enter a pool."""

    def valid(self, question: str) -> bool | None:
        """Whether a question is well formed."""

    def is_correct(self, question: str, answer: str | None) -> bool | None:
        """Whether an answer is right; None for an ill-formed question as well."""

    def level(self, question: str) -> int | None:
        """The difficulty level of a well-formed question."""

    def sound(self, question: str, kind: str, verifier: str) -> bool | None:
        """Whether a gold answer or tests accept what is right; None for an ill-formed question as well."""

    def fits(self, question: str, plan: str) -> bool | None:
        """Whether a plan is the one for this kind of question; None for an ill-formed question as well."""

    def check(self) -> None:
        """Raise ValueError in one line when data that the world needs cannot be had; loads nothing large."""


def resolve(name: str | World, paper: str = "mae", seeds: bool = True) -> World:
    """Return the world of this name; a world itself is returned as it is.

    `paper` says whose published tests and seeds `data` means, `seeds` whether the method starts from published
    questions. Raises ValueError in one line for an unknown name.
    """
    if not isinstance(name, str):
        return name
    factory_name = name.partition(":")[0]
    if factory_name in plugins.announced(plugins.WORLDS):
        world: World = plugins.load(plugins.WORLDS, factory_name)(name, paper, seeds)
        return world
    module, _, wanted = name.partition(":")
    try:
        kind: type[World] = getattr(import_module(module), wanted)
        return kind()
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"world must be one of {NAMES}, got {name!r}: {error}") from None
