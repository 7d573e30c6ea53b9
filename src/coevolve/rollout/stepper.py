"""One episode, advanced wave by wave, for the scheduler and for stepping through by hand."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from coevolve.rollout.engine import Engine
from coevolve.rollout.errors import (
    MethodError,
    explanation,
    passed_through_user_code,
    reply_lines,
)
from coevolve.types import Episode, Outcome, Reply, Sample, Turn


class EpisodeStepper:
    """Advances one episode by a wave of turns at a time.

    In a notebook: `for replies in EpisodeStepper(episode, engine): ...`. `pending_turns` are the
    turns of the next wave, `replies` all replies so far. `outcome` is None until the episode ends.
    """

    def __init__(
        self,
        episode: Episode,
        engine: Engine,
        key: tuple[int, ...] = (),
        index: int = 0,
    ):
        """Start the episode. Turn n is keyed (*key, index, n)."""
        self.episode = episode
        self.engine = engine
        self.key = key
        self.index = index
        self.pending_turns: list[Turn] = []
        self.replies: list[Reply] = []
        self.outcome: Outcome | None = None
        self._yielded_a_list = False  # a list of turns is answered by a list of replies
        self._advance(None)

    def __iter__(self) -> "EpisodeStepper":
        return self

    def __next__(self) -> list[Reply]:
        """Let the engine answer the pending turns and return its replies, in their order."""
        if not self.pending_turns:
            raise StopIteration
        return self.answer(self.engine.answer(self.pending_turns))

    def answer(self, replies: Sequence[Reply | str]) -> list[Reply]:
        """Answer the pending turns, advance to the next wave and return the replies.

        A string becomes a Reply. Raises ValueError for another number of replies than of turns.
        """
        turns = self.pending_turns
        if len(replies) != len(turns):
            raise ValueError(
                f"{len(turns)} turns are asked, {len(replies)} replies given"
            )
        wave = [
            Reply(turn, reply) if isinstance(reply, str) else reply
            for turn, reply in zip(turns, replies, strict=True)
        ]
        self.replies += wave
        self._advance(wave if self._yielded_a_list else wave[0])
        return wave

    def _advance(self, value: Any) -> None:
        """Send `value` into the episode; set the next wave, or the outcome at its end."""
        self.pending_turns = []
        try:
            request = self.episode.send(value)
            while request == []:  # an empty list of turns is answered at once
                request = self.episode.send([])
        except StopIteration as stop:
            self._finish(stop.value)
            return
        except Exception as error:
            if not passed_through_user_code(error):
                raise
            place = f"episode {self.index}"
            raise explanation(error, place, self.replies) from error
        self._yielded_a_list = isinstance(request, list)
        turns = request if isinstance(request, list) else [request]
        if not all(isinstance(turn, Turn) for turn in turns):
            raise self._mistake(
                f"yielded {request!r}: yield a Turn or a list of Turns "
                "(an episode inside an episode needs `yield from`)"
            )
        for n, turn in enumerate(turns, start=len(self.replies)):
            turn_key = (*self.key, self.index, n)
            self.pending_turns.append(replace(turn, key=turn_key))

    def _finish(self, outcome: object) -> None:
        if not isinstance(outcome, Outcome):
            raise self._mistake(f"returned {outcome!r}: return an Outcome") from None
        rewarded = set()
        for sample in outcome.samples:
            if not isinstance(sample, Sample):
                raise self._mistake(
                    f"has the sample {sample!r}: make samples by reply.earns(reward)"
                ) from None
            if id(sample.reply) in rewarded:
                raise self._mistake(
                    f"rewards a reply of role {sample.role!r} twice, so it would be trained on "
                    "twice: add the rewards, or give its segments a reward each"
                ) from None
            rewarded.add(id(sample.reply))
        generated = sum(len(reply.completion_ids) for reply in self.replies)
        self.outcome = replace(
            outcome, generated=generated, replies=tuple(self.replies)
        )

    def _mistake(self, what: str) -> MethodError:
        """Return the error of an episode that breaks its contract, with what was said so far."""
        lines = [f"episode {self.index} {what}", *reply_lines(self.replies)]
        return MethodError("\n".join(lines))
