"""The interface of engines, which answer turns, and an engine made of one function."""

from collections.abc import Callable, Hashable, Sequence
from itertools import count

from coevolve.types import Reply, Turn

Ticket = Hashable


class Engine:
    """Answers turns in any order: `submit` accepts one, `poll` returns the finished replies.

    A subclass implements these two methods. The defaults of the others suit an engine that holds
    no memory and costs nothing.
    """

    # True: the replies are computed in another process, which works on without being polled.
    remote = False

    def submit(self, turn: Turn) -> Ticket:
        """Accept a turn and return its ticket."""
        raise NotImplementedError

    def poll(self) -> list[tuple[Ticket, Reply]]:
        """Return at least one finished (ticket, reply) while any turn is waiting."""
        raise NotImplementedError

    def answer(self, turns: Sequence[Turn]) -> list[Reply]:
        """Submit turns and wait for all their replies."""
        tickets = [self.submit(turn) for turn in turns]
        reply_by_ticket: dict[Ticket, Reply] = {}
        # Polling may also return replies to turns of an earlier call that was interrupted.
        while not reply_by_ticket.keys() >= set(tickets):
            reply_by_ticket.update(self.poll())
        return [reply_by_ticket[ticket] for ticket in tickets]

    def sleep(self) -> None:
        """Release memory while the policies learn; `load_weights` wakes the engine up."""

    def load_weights(self) -> None:
        """Load the policies' current weights."""

    def close(self) -> None:
        """Free all memory; the engine cannot be used afterwards."""

    def costs(self) -> dict[str, float]:
        """Return the usage since the last call (requests, tokens) by name."""
        return {}


class BatchedEngine(Engine):
    """Wraps a function from turns to replies: each poll answers every waiting turn at once."""

    def __init__(self, generate: Callable[[list[Turn]], list[Reply]]):
        self.generate = generate
        self.tickets = count()
        self.waiting: dict[int, Turn] = {}

    def submit(self, turn: Turn) -> int:
        """Queue the turn for the next wave."""
        ticket = next(self.tickets)
        self.waiting[ticket] = turn
        return ticket

    def poll(self) -> list[tuple[Ticket, Reply]]:
        """Answer the whole queue with one call of `generate`, or return [] for an empty queue.

        Raises ValueError if `generate` returns another number of replies than it got turns.
        """
        wave = self.waiting
        self.waiting = {}
        if not wave:
            return []
        replies = self.generate(list(wave.values()))
        return list(zip(wave, replies, strict=True))
