"""Plays episodes. The only file that knows both methods and engines; it reads neither text nor tokens."""

import gc
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from coevolve.types import Episode, Outcome, Reply, Turn

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
        """Give memory back while the policies learn; `sync` wakes the engine up."""

    def sync(self) -> None:
        """Speak with the policies' weights as they are now."""

    def close(self) -> None:
        """Free all memory; nothing can be asked afterwards."""

    def costs(self) -> dict[str, float]:
        """Return what was used since the last call (requests, tokens), by name."""
        return {}


class Batched(Engine):
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


class Steps:
    """One episode, one wave at a time, for notebooks: `for replies in Steps(episode, engine)`.

    `asked` holds the turns that come next, `replies` everything said so far, `outcome` the end (None until then).
    """

    def __init__(self, episode: Episode, engine: Engine, key: tuple[int, ...] = (), index: int = 0):
        """Begin the episode. Turn n is keyed (*key, index, n)."""
        self.episode, self.engine, self.key, self.index = episode, engine, key, index
        self.replies: list[Reply] = []
        self.outcome: Outcome | None = None
        self._advance(None)

    def __iter__(self) -> "Steps":
        return self

    def __next__(self) -> list[Reply]:
        """Let the engine answer what is asked and return its replies, in the order of `asked`."""
        if not self.asked:
            raise StopIteration
        return self.answer(self.engine.answer(self.asked))

    def answer(self, replies: Sequence[Reply | str]) -> list[Reply]:
        """Answer the asked turns (a string becomes a Reply) and go on to the next wave."""
        if len(replies) != len(self.asked):
            raise ValueError(f"{len(self.asked)} turns are asked, {len(replies)} replies given")
        said = [Reply(turn, r) if isinstance(r, str) else r for turn, r in zip(self.asked, replies, strict=True)]
        self.replies += said
        self._advance(said if self._many else said[0])
        return said

    def _advance(self, value: Any) -> None:
        """Send `value` in, and key the turns that are asked next; none when the episode is over.

        An empty list is answered at once, by an empty list.
        """
        self.asked: list[Turn] = []
        try:
            while (asked := self.episode.send(value)) == []:  # nobody is asked, so there is nothing to wait for
                value = []
        except StopIteration as stop:
            if not isinstance(stop.value, Outcome):
                raise TypeError(f"episode {self.index} returned {stop.value!r}: return an Outcome") from None
            self.outcome = replace(stop.value, generated=sum(len(reply.ids) for reply in self.replies))
            return
        self._many = isinstance(asked, list)  # a list of turns is answered by a list of replies
        turns = asked if isinstance(asked, list) else [asked]
        if not all(isinstance(turn, Turn) for turn in turns):
            wanted = "a Turn or a list of Turns (an episode inside an episode needs `yield from`)"
            raise TypeError(f"episode {self.index} yielded {asked!r}: yield {wanted}")
        self.asked = [replace(turn, key=(*self.key, self.index, n)) for n, turn in enumerate(turns, len(self.replies))]


def play(
    episodes: Sequence[Episode], engine: Engine, key: tuple[int, ...] = (), numbers: Sequence[int] | None = None
) -> list[Outcome]:
    """Play episodes together and return their outcomes in episode order.

    Each episode goes on as soon as everything it asked for is answered. Turn n of episode i is keyed
    (*key, i, n), which makes its sampling noise independent of the order of completion. `numbers`: global
    episode indices when this call plays one shard. While they are played, Python's garbage collector looks at new
    objects once and at no older ones: with many episodes in flight these would cost more than the episodes.
    """
    usual = gc.get_threshold()
    owner: dict[Ticket, tuple[Steps, dict[int, Reply], int]] = {}

    def submit(player: Steps) -> None:
        answers: dict[int, Reply] = {}
        for slot, turn in enumerate(player.asked):
            owner[engine.submit(turn)] = player, answers, slot

    indices = numbers or range(len(episodes))
    gc.set_threshold(usual[0], 10**9)  # so many collections of new objects come before one of older ones
    try:
        players = [Steps(episode, engine, key, i) for i, episode in zip(indices, episodes, strict=True)]
        for player in players:
            submit(player)
        while owner:
            for ticket, reply in engine.poll():
                if ticket not in owner:  # of a call that was broken off
                    continue
                player, answers, slot = owner.pop(ticket)
                answers[slot] = reply
                if len(answers) == len(player.asked):
                    player.answer([answers[slot] for slot in range(len(answers))])
                    submit(player)
    finally:
        gc.set_threshold(*usual)
    return [player.outcome for player in players if player.outcome is not None]
