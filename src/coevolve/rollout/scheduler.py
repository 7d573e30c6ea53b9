"""Plays many episodes at once, each at its own pace.

Knows methods' episodes and engines, but reads neither text nor tokens.
"""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from coevolve.rollout.engine import Engine, Ticket
from coevolve.rollout.stepper import EpisodeStepper
from coevolve.types import Episode, Outcome, Reply

NEVER = 10**9  # collections of the young generation before one of the older objects


@dataclass(slots=True)
class _Wave:
    """The turns that an episode waits for, and the replies that have arrived, by position."""

    stepper: EpisodeStepper
    replies: dict[int, Reply] = field(default_factory=dict)

    def is_complete(self) -> bool:
        return len(self.replies) == len(self.stepper.pending_turns)

    def in_order(self) -> list[Reply]:
        return [self.replies[position] for position in range(len(self.replies))]


@dataclass(frozen=True, slots=True)
class _Slot:
    """The place in a wave that the reply to one ticket fills."""

    wave: _Wave
    position: int


def play(
    episodes: Sequence[Episode],
    engine: Engine,
    key: tuple[int, ...] = (),
    numbers: Sequence[int] | None = None,
) -> list[Outcome]:
    """Play episodes together and return their outcomes in episode order.

    Each episode advances as soon as all its pending turns are answered. Turn n of episode i is
    keyed (*key, i, n), so its sampling noise does not depend on the order of completion. `numbers`
    are the global indices of the episodes when this call plays one shard of them.
    """
    slots: dict[Ticket, _Slot] = {}

    def submit(stepper: EpisodeStepper) -> None:
        wave = _Wave(stepper)
        for position, turn in enumerate(stepper.pending_turns):
            ticket = engine.submit(turn)
            slots[ticket] = _Slot(wave, position)

    indices = numbers or range(len(episodes))
    with _collecting_young_objects_only():
        steppers = [
            EpisodeStepper(episode, engine, key, i)
            for i, episode in zip(indices, episodes, strict=True)
        ]
        for stepper in steppers:
            submit(stepper)
        while slots:
            for ticket, reply in engine.poll():
                # An interrupted call may have left turns of its own in the engine.
                if ticket not in slots:
                    continue
                slot = slots.pop(ticket)
                wave = slot.wave
                wave.replies[slot.position] = reply
                if wave.is_complete():
                    wave.stepper.answer(wave.in_order())
                    submit(wave.stepper)
    return [stepper.outcome for stepper in steppers if stepper.outcome is not None]


@contextmanager
def _collecting_young_objects_only() -> Iterator[None]:
    """Restrict Python's garbage collector to its youngest generation.

    With many episodes in flight, full collections would cost more than the episodes themselves.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(thresholds[0], NEVER)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
