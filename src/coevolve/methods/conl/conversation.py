"""What a conversation of CoNL leaves behind."""

from dataclasses import dataclass

from coevolve.methods.conl.parsing import Critique, Rankings
from coevolve.types import Reply


@dataclass(frozen=True)
class Conversation:
    """Four rounds as they were said and read; lists have an entry per agent."""

    question: str
    rounds: list[list[Reply]]  # proposals, reviews, revisions and verdicts
    initial: Rankings
    critiques: list[list[Critique]]  # by who wrote them
    final: Rankings
    before: list[float]  # V_init
    after: list[float]  # V_final
    revised: list[str]  # the solutions that the final rankings were about
