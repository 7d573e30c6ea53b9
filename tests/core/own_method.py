"""A method of a user's own, as small as one can be: the tests load it by the path of this file."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from random import Random
from typing import Annotated, Literal

from coevolve.methods.base import Method
from coevolve.types import Outcome, Role


@dataclass(kw_only=True)
class Debate(Method):
    """A solver that debates with itself."""

    rounds: int = 2
    heat: float | None = None
    friends: tuple[str, ...] = ()
    manner: Annotated[str, ("polite", "rude")] = "polite"
    tone: Literal["low", "high"] = "low"
    span: Annotated[tuple[int, int], "[first, last]"] = (0, 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.solver = Role("solver", "solve {question}")

    def episode(self, rng: Random) -> Generator:
        reply = yield self.solver(question="1+1")
        return Outcome([reply.earns(1.0)])


class Stranger:
    """A class that is no method."""
