"""A world as methods see it: starting questions, what is held out, and an oracle where there is one."""

from typing import Protocol


class World(Protocol):
    """What a protocol may ask of a world. The oracle's methods return None where there is no oracle."""

    name: str  # in configurations: tiny, data or data:KEY,KEY
    domains: tuple[str, ...]  # that occur in `training`
    grading: str  # the kind of coevolve.verify that compares a math answer with its gold: math, or exact

    def seeds(self) -> list[str]:
        """Reference questions without answers (MAE's Table 5)."""

    def zero(self) -> list[str]:
        """The 16 starting questions of the zero setting."""

    def training(self) -> list[tuple[str, str]]:
        """(domain, question) rows to train on, without answers (CoMAS, section 4.1.1); questions may repeat."""

    def tasks(self) -> list[tuple[str, str, str]]:
        """(question, math or code, gold answer or tests) to start from (SAGE's Table 5)."""

    def program(self, question: str, answer: str) -> str:
        """An answer to a code question as Python source that its tests can call."""

    def problems(self, split: str, families: tuple[str, ...]) -> list[str]:
        """Distinct questions of a split and these families, without answers (CoNL, section 4.1)."""

    def items(self, split: str, per_family: int = 40, families: tuple[str, ...] | None = None) -> list:
        """Evaluation items of validation or test, at most so many a family (see `evaluate.score`)."""

    def held_out(self, question: str) -> bool:
        """Whether a question belongs to validation or test, and so may not enter a pool."""

    def valid(self, question: str) -> bool | None:
        """Whether a question is well formed."""

    def right(self, question: str, answer: str | None) -> bool | None:
        """Whether an answer is right; None for an ill-formed question as well."""

    def level(self, question: str) -> int | None:
        """The difficulty level of a well-formed question."""

    def sound(self, question: str, kind: str, verifier: str) -> bool | None:
        """Whether a gold answer or tests accept what is right; None for an ill-formed question as well."""

    def fits(self, question: str, plan: str) -> bool | None:
        """Whether a plan is the one for this kind of question; None for an ill-formed question as well."""
