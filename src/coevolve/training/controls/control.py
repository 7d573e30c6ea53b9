"""A run's control arm: the field `control` of a run, put into effect around its episodes.

Random, shuffled and format rewards change only what a policy is paid for. An oracle also speaks in
the episodes: what enters a pool may differ, and the judge writes no tokens. What a method gains
over its control is what its own rewards, or its own judge, are worth.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from coevolve.methods.base import Method
from coevolve.rollout.engine import Engine
from coevolve.training.controls import rewards
from coevolve.training.controls.dial import Dial
from coevolve.training.controls.oracle_judge import OracleJudge, has_judge
from coevolve.types import Outcome

ControlName = Literal["", "random", "shuffled", "format", "oracle"]


@dataclass(frozen=True)
class Control:
    """What takes the place of a method's rewards, or of its judge."""

    name: ControlName
    method: Method
    dial: Dial
    seed: int

    @property
    def replaces_judge(self) -> bool:
        """Whether an oracle speaks for the method's judges."""
        sources = [role.source for role in self.method.roles.values()]
        return self.name == "oracle" and has_judge(sources)

    def engine(self, engine: Engine) -> Engine:
        """Return the engine that plays the episodes of training."""
        return OracleJudge(engine, self.dial) if self.replaces_judge else engine

    def pay(self, step: int, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """Return a step's outcomes with the rewards to learn from."""
        rng = Random(f"{self.name} {self.seed} {step}")
        match self.name:
            case "shuffled":
                return rewards.shuffled(outcomes, rng)
            case "random":
                return rewards.random(outcomes, rng)
            case "format":
                return rewards.by_form(outcomes, self.method)
            case "oracle" if not self.replaces_judge:
                return rewards.by_oracle(outcomes, self.dial, self.method)
        return list(outcomes)


def check(name: ControlName, method: Method, method_name: str) -> None:
    """Raise ValueError in one line unless a method can have this control."""
    if name == "":
        return
    has_own_trainer = type(method).fit is not Method.fit
    trains_nothing = method.PAPER_RUN_VALUES.get("steps") == 0
    if has_own_trainer or trains_nothing:
        raise ValueError(
            f"control must be empty for {method_name}, which learns from no rewards, got {name!r}"
        )
    if name == "oracle":
        _check_oracle(method, method_name)


def _check_oracle(method: Method, method_name: str) -> None:
    if method.world.valid("") is None:
        raise ValueError(
            f"control 'oracle' needs a world with an oracle, such as tiny, got {method.world.name}"
        )
    for role in method.roles.values():
        sources = [one.source for one in method.roles.values() if one.name == role.name]
        if has_judge(sources) and not has_judge([role.source]):
            raise ValueError(
                f"control 'oracle' cannot speak for {role.name!r} of {method_name}: "
                "it knows the shipped prompts of judges, and not this one's own"
            )
