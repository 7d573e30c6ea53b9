"""Plays episodes. The only file that knows both methods and engines; it reads neither text nor tokens."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from coevolve.types import Episode, Outcome, Reply, Turn


class Engine(Protocol):
    """Answers turns in any order: `submit` hands one in, `poll` returns those that are finished."""

    def submit(self, turn: Turn) -> int:
        """Accept a turn and return its ticket."""

    def poll(self) -> list[tuple[int, Reply]]:
        """Return at least one finished (ticket, reply) while any turn is waiting."""


class Batched:
    """An engine made of one function from turns to replies: every poll answers all that was submitted."""

    def __init__(self, generate: Callable[[list[Turn]], list[Reply]]):
        self.generate, self.count = generate, 0
        self.waiting: list[tuple[int, Turn]] = []

    def submit(self, turn: Turn) -> int:
        """Queue the turn for the next wave."""
        self.count += 1
        self.waiting.append((self.count, turn))
        return self.count

    def poll(self) -> list[tuple[int, Reply]]:
        """Answer the whole queue in one call of `generate`."""
        wave, self.waiting = self.waiting, []
        replies = self.generate([turn for _, turn in wave])
        return [(ticket, reply) for (ticket, _), reply in zip(wave, replies, strict=True)]


def turns_of(asked: object, name: str) -> list[Turn]:
    """Return what an episode yielded as a list of turns, or raise TypeError naming the episode."""
    given = asked if isinstance(asked, list) else [asked]
    turns = [turn for turn in given if isinstance(turn, Turn)]
    if not turns or len(turns) < len(given):
        raise TypeError(
            f"{name} yielded {asked!r}: yield a Turn or a non-empty list of Turns "
            "(an episode inside an episode needs `yield from`)"
        )
    return turns


class _Player:
    """One episode in flight: what it asked last and how much of that is answered."""

    def __init__(self, episode: Episode, index: int, key: tuple[int, ...]):
        self.episode, self.index, self.key = episode, index, key
        self.count, self.many = 0, False
        self.outcome: Outcome | None = None
        self.answers: list[Reply | None] = []

    def advance(self, value: Any = None) -> list[Turn]:
        """Send `value` in and return the next turns, keyed; an empty list means the episode is over."""
        try:
            asked = self.episode.send(value)
        except StopIteration as stop:
            if not isinstance(stop.value, Outcome):
                raise TypeError(f"episode {self.index} returned {stop.value!r}: return an Outcome") from None
            self.outcome = stop.value
            return []
        turns = turns_of(asked, f"episode {self.index}")
        self.many = isinstance(asked, list)
        siblings = (*self.key, self.index)
        keyed = [replace(turn, key=(*siblings, self.count + i), siblings=siblings) for i, turn in enumerate(turns)]
        self.count += len(turns)
        self.answers = [None] * len(turns)
        return keyed

    def answered(self) -> Any:
        """What to send back in: a list if the episode yielded a list, else the single reply."""
        return self.answers if self.many else self.answers[0]


def play(
    episodes: Sequence[Episode],
    engine: Engine,
    key: tuple[int, ...] = (),
    watch: Callable[[int, Reply], None] | None = None,
    numbers: Sequence[int] | None = None,
) -> list[Outcome]:
    """Play episodes together and return their outcomes in episode order.

    Each episode goes on as soon as everything it asked for is answered. Turn n of episode i is keyed
    (*key, i, n), which makes its sampling noise independent of the order of completion; all turns of an
    episode get one value of `siblings`. `numbers`: global episode indices when this call plays one shard.
    `watch` sees every (episode index, reply) as it arrives.
    """
    numbers = range(len(episodes)) if numbers is None else numbers
    players = [_Player(episode, i, key) for i, episode in zip(numbers, episodes, strict=True)]
    owner: dict[int, tuple[_Player, int]] = {}

    def submit(player: _Player, turns: list[Turn]) -> None:
        for slot, turn in enumerate(turns):
            owner[engine.submit(turn)] = player, slot

    for player in players:
        submit(player, player.advance())
    while owner:
        for ticket, reply in engine.poll():
            player, slot = owner.pop(ticket)
            player.answers[slot] = reply
            if watch:
                watch(player.index, reply)
            if None not in player.answers:
                submit(player, player.advance(player.answered()))
    return [player.outcome for player in players if player.outcome is not None]


class Steps:
    """One episode, one wave at a time, for notebooks: `for replies in Steps(episode, engine)`.

    `asked` holds the turns that come next, `replies` everything said so far, `outcome` the end.
    """

    def __init__(self, episode: Episode, engine: Engine, key: tuple[int, ...] = ()):
        self.engine, self._player = engine, _Player(episode, 0, key)
        self.replies: list[Reply] = []
        self.asked = self._player.advance()

    @property
    def outcome(self) -> Outcome | None:
        """The episode's outcome, or None while it is still running."""
        return self._player.outcome

    def __iter__(self) -> "Steps":
        return self

    def __next__(self) -> list[Reply]:
        """Let the engine answer what is asked and return its replies, in the order of `asked`."""
        if not self.asked:
            raise StopIteration
        tickets = [self.engine.submit(turn) for turn in self.asked]
        got: dict[int, Reply] = {}
        while len(got) < len(tickets):
            got.update(self.engine.poll())
        return self.answer([got[ticket] for ticket in tickets])

    def answer(self, replies: Sequence[Reply | str]) -> list[Reply]:
        """Answer the asked turns by hand (a string becomes a Reply) and go on to the next wave."""
        if len(replies) != len(self.asked):
            raise ValueError(f"{len(self.asked)} turns are asked, {len(replies)} replies given")
        said = [Reply(turn, r) if isinstance(r, str) else r for turn, r in zip(self.asked, replies, strict=True)]
        self.replies += said
        self._player.answers = [*said]
        self.asked = self._player.advance(self._player.answered())
        return said
