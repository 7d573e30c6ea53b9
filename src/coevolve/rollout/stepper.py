"""One episode, advanced wave by wave: what the scheduler runs many of, and what a notebook steps through."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from coevolve.rollout.engine import Engine
from coevolve.types import Episode, Outcome, Reply, Turn


class EpisodeStepper:
    """One episode, one wave at a time, for notebooks: `for replies in EpisodeStepper(episode, engine)`.

    `asked` holds the turns that come next, `replies` everything said so far, `outcome` the end (None until then).
    """

    def __init__(self, episode: Episode, engine: Engine, key: tuple[int, ...] = (), index: int = 0):
        """Begin the episode. Turn n is keyed (*key, index, n)."""
        self.episode, self.engine, self.key, self.index = episode, engine, key, index
        self.replies: list[Reply] = []
        self.outcome: Outcome | None = None
        self._advance(None)

    def __iter__(self) -> "EpisodeStepper":
        return self

    def __next__(self) -> list[Reply]:
        """Let the engine answer what is asked and return its replies, in the order of `asked`."""
        if not self.pending_turns:
            raise StopIteration
        return self.answer(self.engine.answer(self.pending_turns))

    def answer(self, replies: Sequence[Reply | str]) -> list[Reply]:
        """Answer the asked turns (a string becomes a Reply) and go on to the next wave."""
        if len(replies) != len(self.pending_turns):
            raise ValueError(f"{len(self.pending_turns)} turns are asked, {len(replies)} replies given")
        said = [Reply(turn, r) if isinstance(r, str) else r for turn, r in zip(self.pending_turns, replies, strict=True)]
        self.replies += said
        self._advance(said if self._many else said[0])
        return said

    def _advance(self, value: Any) -> None:
        """Send `value` in, and key the turns that are asked next; none when the episode is over.

        An empty list is answered at once, by an empty list.
        """
        self.pending_turns: list[Turn] = []
        try:
            while (asked := self.episode.send(value)) == []:  # nobody is asked, so there is nothing to wait for
                value = []
        except StopIteration as stop:
            if not isinstance(stop.value, Outcome):
                raise TypeError(f"episode {self.index} returned {stop.value!r}: return an Outcome") from None
            self.outcome = replace(stop.value, generated=sum(len(reply.completion_ids) for reply in self.replies))
            return
        self._many = isinstance(asked, list)  # a list of turns is answered by a list of replies
        turns = asked if isinstance(asked, list) else [asked]
        if not all(isinstance(turn, Turn) for turn in turns):
            wanted = "a Turn or a list of Turns (an episode inside an episode needs `yield from`)"
            raise TypeError(f"episode {self.index} yielded {asked!r}: yield {wanted}")
        self.pending_turns = [replace(turn, key=(*self.key, self.index, n)) for n, turn in enumerate(turns, len(self.replies))]
