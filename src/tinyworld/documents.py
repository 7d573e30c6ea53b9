"""Documents for SPICE, written on demand: worked sums, and articles about the world of facts.

No document states a question of the validation or test split.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from coevolve.validation import check_choice
from tinyworld import tasks
from tinyworld.tasks import Task

FAMILIES = {  # stand-ins for Nemotron-CC-Math and NaturalReasoning (Appendix 8)
    "math": ("add", "sub", "mul", "prec", "eq", "next", "word2", "div", "mod", "code"),
    "general": ("fact", "yn", "cmp", "word", "rate", "unit"),
}
DOCUMENT_FAMILIES = tuple(
    name for name in tasks.FAMILIES if name in FAMILIES["math"] + FAMILIES["general"]
)
STATEMENTS = (4, 5, 6)  # numbers of statements in a document
HALVES = {  # of each kind of corpus
    "math": ("math",),
    "general": ("general",),
    "both": ("math", "general"),
}


@dataclass(frozen=True)
class TinyCorpus:
    """Procedural documents of one half, math or general; none is stored.

    A document depends on nothing but its kind and number.
    """

    kind: str
    size: int

    def __len__(self) -> int:
        return self.size

    def document(self, number: int) -> str:
        """Write document `number`."""
        rng = Random(f"{self.kind} document {number}")
        text, _ = document(rng, families=FAMILIES[self.kind])
        return text

    def sample(self, rng: Random) -> str:
        """Draw one of the `size` documents."""
        return self.document(rng.randrange(self.size))


def corpus(kind: str, size: int) -> list[TinyCorpus]:
    """Return the corpora of a kind, to be drawn from equally often: "both" has two, others one.

    `size` is the number of documents of all corpora together. Raises ValueError for another kind.
    """
    check_choice("corpus", kind, HALVES)
    halves = HALVES[kind]
    size_of_half = max(1, size // len(halves))
    return [TinyCorpus(half, size_of_half) for half in halves]


def document(
    rng: Random, families: Sequence[str] | None = None
) -> tuple[str, list[Task]]:
    """Write a document of four to six train tasks with their answers; return it and the tasks.

    `families` defaults to those of both halves; the levels are mixed.
    """
    count = rng.choice(STATEMENTS)
    stated: list[Task] = []
    while len(stated) < count:
        task = tasks.draw(rng, rng.choice(families or DOCUMENT_FAMILIES))
        if task.split == "train":
            stated.append(task)
    statements = [f"{task.question}: {task.answer}" for task in stated]
    return "; ".join(statements), stated
