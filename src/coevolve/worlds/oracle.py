"""A world as protocols see it: starting questions, what is held out, and an oracle where there is one.

Protocols never read an answer here; oracle verdicts go into facts, not into rewards (AZR's verifier excepted).
"""

from dataclasses import dataclass
from random import Random
from typing import Protocol

from coevolve.worlds import tiny

SEED_SHARES = {  # Table 5 of MAE: its sources, and the families that stand in for them
    "CommonsenseQA": (70, ("fact",)), "TriviaQA": (71, ("fact",)), "Natural Questions": (79, ("fact",)),
    "OpenBookQA": (75, ("fact",)), "BoolQ": (88, ("yn",)), "SQuAD": (82, ("word", "word2")),
    "MATH": (84, ("add", "sub", "mul", "prec", "eq")), "Hellaswag": (90, ("next",)),
    "GSM8K": (77, ("word", "word2")), "GPQA": (69, ("rate", "unit")), "MBPP": (53, ("code",)),
    "ARC-Challenge": (78, ("rate", "unit")), "MMLU": (69, ("rate", "unit")), "HumanEval": (15, ("ops",)),
}  # fmt: skip


class World(Protocol):
    """What a protocol may ask of a world. The oracle's methods return None where there is no oracle."""

    def seeds(self) -> list[str]:
        """Reference questions without answers (MAE's Table 5)."""

    def zero(self) -> list[str]:
        """The 16 starting questions of the zero setting."""

    def held_out(self, question: str) -> bool:
        """Whether a question belongs to validation or test, and so may not enter a pool."""

    def valid(self, question: str) -> bool | None:
        """Whether a question is well formed."""

    def right(self, question: str, answer: str | None) -> bool | None:
        """Whether an answer is right; None for an ill-formed question as well."""

    def level(self, question: str) -> int | None:
        """The difficulty level of a well-formed question."""


@dataclass(frozen=True)
class TinyWorld:
    """The embedded world: everything is exact."""

    def seed_rows(self) -> list[tuple[str, tiny.Task]]:
        """(source, task) rows in the proportions of Table 5, all of the train split; questions may repeat."""
        rng, rows = Random("seed questions"), []
        for source, (count, families) in SEED_SHARES.items():
            while sum(name == source for name, _ in rows) < count:
                task = tiny.draw(rng, rng.choice(families))
                if tiny.closed(task) and tiny.split(task.question) == "train":
                    rows.append((source, task))
        return rows

    def seeds(self) -> list[str]:
        """The questions of `seed_rows`, repeats left out: no answer ever leaves this method."""
        return list(dict.fromkeys(task.question for _, task in self.seed_rows()))

    def zero(self) -> list[str]:
        """Sixteen easy questions of in-distribution families, ours: the paper does not print its own."""
        rng, questions = Random("zero questions"), []
        names = tiny.IN_DISTRIBUTION
        while len(questions) < 16:
            task = tiny.draw(rng, names[len(questions) % len(names)], 1)
            if tiny.split(task.question) == "train" and task.question not in questions:
                questions.append(task.question)
        return questions

    def held_out(self, question: str) -> bool:
        """Whether the text's hash puts it into validation or test."""
        return tiny.split(question) != "train"

    def valid(self, question: str) -> bool:
        """Whether the oracle can read the question."""
        return tiny.read(question) is not None

    def right(self, question: str, answer: str | None) -> bool | None:
        """The oracle's verdict, or None for an ill-formed question."""
        return tiny.right(question, answer) if self.valid(question) else None

    def level(self, question: str) -> int | None:
        """Level 1 to 3, or None for an ill-formed question."""
        task = tiny.read(question)
        return task.level if task else None
