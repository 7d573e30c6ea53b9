"""What a method remembers outside its pools is told, and nothing else is."""

from collections.abc import Callable
from functools import cached_property
from random import Random

import numpy as np
import pytest

from coevolve.methods.base import Method
from coevolve.methods.registry import METHODS, get_method
from coevolve.rollout.pools import Pool
from coevolve.rollout.stepper import EpisodeStepper
from coevolve.training.lost_state import AttributeWatch
from coevolve.types import Role


class Keeper(Method):
    """A method with every kind of attribute."""

    limit: float = 0.5
    """A field."""

    shared: list[int] = []  # noqa: RUF012
    """A field, too."""

    everyones = []  # noqa: RUF012
    _private: list[int] = []  # noqa: RUF012

    def define_roles(self) -> None:
        self.solver = Role("solver", "{question}")
        self.last = None
        self.not_a_number = float("nan")
        self.seen = {"sets": {1}, "lists": [1, [2]]}
        self.counts = np.zeros(3)
        self.random = Random(0)
        self.itself: list = []
        self.itself.append(self.itself)

    @cached_property
    def pools(self) -> dict[str, Pool]:
        """One pool."""
        return {"items": Pool()}

    @cached_property
    def table(self) -> dict[str, int]:
        """Something that is computed once."""
        return {}


def count(method: Keeper) -> None:
    method.counts[1] += 1


CHANGES = {
    "last": lambda method: setattr(method, "last", "x"),
    "fresh": lambda method: setattr(method, "fresh", 0),
    "seen": lambda method: method.seen["lists"][1].append(3),
    "counts": count,
    "random": lambda method: method.random.random(),
    "solver": lambda method: setattr(method, "solver", Role("solver", "{question}!")),
    "everyones": lambda method: method.everyones.append(1),
    "_private": lambda method: method._private.append(1),
}


@pytest.fixture
def keeper() -> Keeper:
    yield Keeper()
    Keeper.everyones.clear()


@pytest.mark.parametrize("name", CHANGES)
def test_an_attribute_that_changes_is_told_once(
    name: str, keeper: Keeper, capsys: pytest.CaptureFixture
) -> None:
    change: Callable[[Keeper], object] = CHANGES[name]
    watch = AttributeWatch(keeper)
    change(keeper)
    watch.warn(1)
    (line,) = capsys.readouterr().out.splitlines()
    start = f"warning: the attribute {name!r} of Keeper has changed by step 1, and a resumed run"
    assert line.startswith(start)
    assert "keep it in a pool (docs/your-own-method.md" in line
    change(keeper)
    watch.warn(2)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["limit", "shared"])
def test_a_field_that_changes_is_told_to_prevent_resuming(
    name: str, keeper: Keeper, capsys: pytest.CaptureFixture
) -> None:
    watch = AttributeWatch(keeper)
    keeper.limit += name == "limit"
    keeper.shared.extend([1] * (name == "shared"))
    watch.warn(1)
    (line,) = capsys.readouterr().out.splitlines()
    start = f"warning: the field {name!r} of Keeper has changed by step 1, and a run does not"
    assert line.startswith(start)


def test_pools_and_cached_properties_may_change(
    keeper: Keeper, capsys: pytest.CaptureFixture
) -> None:
    watch = AttributeWatch(keeper)
    keeper.pools["items"].extend([1])
    keeper.table["a"] = 1
    watch.warn(1)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", METHODS)
def test_no_shipped_method_is_warned_of(
    name: str, capsys: pytest.CaptureFixture
) -> None:
    method = get_method(name)()
    watch = AttributeWatch(method)
    if get_method(name).episode is not Method.episode:
        stepper = EpisodeStepper(method.observed(Random(0)), engine=None)
        while stepper.pending_turns:
            stepper.answer(["<answer>1</answer>"] * len(stepper.pending_turns))
        assert stepper.outcome is not None
    method.measure()
    watch.warn(1)
    assert capsys.readouterr().out == ""
