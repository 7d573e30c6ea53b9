"""A small method of a user, with a field of each kind. Tests load it by the path of this file."""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import Annotated, Literal

from coevolve.methods.base import Method
from coevolve.types import Outcome, Role
from coevolve.validation import Allowed


class Debate(Method):
    """A solver that debates with itself."""

    rounds: int = 2
    """How often the solver speaks."""

    friend_temperature: float | None = None
    friends: tuple[str, ...] = ()
    manner: Literal["polite", "rude"] = "polite"
    tones: tuple[Literal["low", "high"], ...] = ("low",)
    span: Annotated[tuple[int, int], Allowed("[first, last]")] = (0, 1)

    def define_roles(self) -> None:
        self.solver = Role("solver", "solve {question}")

    def episode(self, rng: Random) -> Generator:
        reply = yield self.solver(question="1+1")
        return Outcome([reply.earns(1.0)])


class Stranger:
    """A class that is not a method."""
