"""Documents for SPICE, written when they are asked for: worked sums, and articles about the fact world.

No document states a question of the validation or test split.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from coevolve.validation import check_choice
from tinyworld import tasks
from tinyworld.tasks import Task

FAMILIES = {  # the stand-ins of Appendix 8's two halves: Nemotron-CC-Math and NaturalReasoning
    "math": ("add", "sub", "mul", "prec", "eq", "next", "word2", "div", "mod", "code"),
    "general": ("fact", "yn", "cmp", "word", "rate", "unit"),
}
FACTS = (4, 5, 6)  # how many a document states
HALVES = {"math": ("math",), "general": ("general",), "both": ("math", "general")}  # of each kind of corpus


@dataclass(frozen=True)
class TinyCorpus:
    """Procedural documents of one half, math or general; none is stored.

    Document i depends on nothing but kind and i.
    """

    kind: str
    size: int

    def __len__(self) -> int:
        return self.size

    def document(self, number: int) -> str:
        """Write document `number`."""
        return document(Random(f"{self.kind} document {number}"), families=FAMILIES[self.kind])[0]

    def sample(self, rng: Random) -> str:
        """Draw one of the `size` documents."""
        return self.document(rng.randrange(self.size))


def corpus(kind: str, size: int) -> list[TinyCorpus]:
    """The corpora of a kind, to be drawn from in equal parts: one for math or general, two for "both".

    `size` is how many documents they have together. Raises ValueError for another kind.
    """
    check_choice("corpus", kind, HALVES)
    return [TinyCorpus(half, max(1, size // len(HALVES[kind]))) for half in HALVES[kind]]


def document(rng: Random, families: Sequence[str] | None = None) -> tuple[str, list[Task]]:
    """Write a document of four to six sums and facts of mixed levels, and say which tasks it answers.

    All are train questions.
    """
    names = families or [name for name in tasks.FAMILIES if any(name in half for half in FAMILIES.values())]
    stated: list[Task] = []
    count = rng.choice(FACTS)
    while len(stated) < count:
        task = tasks.draw(rng, rng.choice(names))
        if task.split == "train":
            stated.append(task)
    return "; ".join(f"{task.question}: {task.answer}" for task in stated), stated
