"""What answers turns: the interface of an engine, and an engine made of one function."""

from collections.abc import Callable, Hashable, Sequence
from itertools import count

from coevolve.types import Reply, Turn

Ticket = Hashable


class Engine:
    """Answers turns in any order: `submit` hands one in, `poll` returns those that are finished.

    A subclass writes these two; the rest has defaults, for engines without memory or costs of their own.
    """

    remote = False  # True: replies are computed in another process, which works on while others are polled

    def submit(self, turn: Turn) -> Ticket:
        """Accept a turn and return its ticket."""
        raise NotImplementedError

    def poll(self) -> list[tuple[Ticket, Reply]]:
        """Return at least one finished (ticket, reply) while any turn is waiting."""
        raise NotImplementedError

    def answer(self, turns: Sequence[Turn]) -> list[Reply]:
        """Submit turns and wait for all their replies."""
        tickets = [self.submit(turn) for turn in turns]
        done: dict[Ticket, Reply] = {}
        while not done.keys() >= {*tickets}:  # what a call that was broken off had asked may be among the answers
            done.update(self.poll())
        return [done[ticket] for ticket in tickets]

    def sleep(self) -> None:
        """Give memory back while the policies learn; `load_weights` wakes the engine up."""

    def load_weights(self) -> None:
        """Speak with the policies' weights as they are now."""

    def close(self) -> None:
        """Free all memory; nothing can be asked afterwards."""

    def costs(self) -> dict[str, float]:
        """Return what was used since the last call (requests, tokens), by name."""
        return {}


class BatchedEngine(Engine):
    """An engine made of one function from turns to replies: every poll answers all that was submitted."""

    def __init__(self, generate: Callable[[list[Turn]], list[Reply]]):
        self.generate, self.tickets = generate, count()
        self.waiting: dict[int, Turn] = {}

    def submit(self, turn: Turn) -> int:
        """Queue the turn for the next wave."""
        ticket = next(self.tickets)
        self.waiting[ticket] = turn
        return ticket

    def poll(self) -> list[tuple[Ticket, Reply]]:
        """Answer the whole queue in one call of `generate`, which an empty one does not need."""
        wave, self.waiting = self.waiting, {}
        return list(zip(wave, self.generate([*wave.values()]), strict=True)) if wave else []
