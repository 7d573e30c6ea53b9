"""Procedural documents for SPICE."""

from dataclasses import dataclass
from random import Random

from tinyworld import tasks as tiny

FAMILIES = {  # the tiny stand-ins of Appendix 8's two halves: Nemotron-CC-Math and NaturalReasoning
    "math": ("add", "sub", "mul", "prec", "eq", "next", "word2", "div", "mod", "code"),
    "general": ("fact", "yn", "cmp", "word", "rate", "unit"),
}


@dataclass(frozen=True)
class TinyCorpus:
    """Procedural documents: worked sums (math) or articles about the fact world (general); none is stored.

    Document i depends on nothing but kind and i, and states no validation or test question.
    """

    kind: str
    size: int
    unreadable: int = 0

    def __len__(self) -> int:
        return self.size

    def document(self, number: int) -> str:
        """Write document `number`."""
        return tiny.document(Random(f"{self.kind} document {number}"), families=FAMILIES[self.kind])[0]

    def sample(self, rng: Random) -> str:
        """Draw one of the `size` documents."""
        return self.document(rng.randrange(self.size))
