"""Plays many episodes at once, each at its own pace.

It knows episodes and engines, but reads neither text nor tokens.
"""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from coevolve.rollout.engine import Engine, Ticket
from coevolve.rollout.stepper import EpisodeStepper
from coevolve.types import Episode, Outcome, Reply

# A threshold of the garbage collector: so many young collections pass before an older one.
NEVER = 10**9


@dataclass(slots=True)
class _Wave:
    """An episode's pending turns, in its stepper, and the replies so far by the turn's position."""

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
    indices: Sequence[int] | None = None,
) -> list[Outcome]:
    """Play episodes together and return their outcomes in episode order.

    Each episode advances as soon as all its pending turns are answered. Turn n of episode i,
    counted over all its waves, is keyed (*key, i, n), so its sampling noise does not depend on the
    order of completion. `indices` are the i of the episodes if this call plays one process's share
    of a batch; by default they count from 0.
    """
    slots: dict[Ticket, _Slot] = {}

    def submit_wave(stepper: EpisodeStepper) -> None:
        wave = _Wave(stepper)
        for position, turn in enumerate(stepper.pending_turns):
            ticket = engine.submit(turn)
            slots[ticket] = _Slot(wave, position)

    if indices is None:
        indices = range(len(episodes))
    with _collecting_young_objects_only():
        steppers = [
            EpisodeStepper(episode, engine, key, i)
            for i, episode in zip(indices, episodes, strict=True)
        ]
        for stepper in steppers:
            submit_wave(stepper)
        while slots:
            for ticket, reply in engine.poll():  # waits for at least one reply
                # A call that was interrupted may have left turns in the engine.
                if ticket not in slots:
                    continue
                slot = slots.pop(ticket)
                wave = slot.wave
                wave.replies[slot.position] = reply
                if wave.is_complete():
                    wave.stepper.answer(wave.in_order())
                    # An episode that has ended has no pending turns: nothing more is submitted.
                    submit_wave(wave.stepper)
    # All have ended by now; the condition tells the type checker so.
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
