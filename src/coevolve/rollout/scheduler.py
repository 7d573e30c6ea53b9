"""Plays many episodes at once. The only file that knows both methods and engines; it reads neither text nor tokens."""

import gc
from collections.abc import Sequence

from coevolve.rollout.engine import Engine, Ticket
from coevolve.rollout.stepper import EpisodeStepper
from coevolve.types import Episode, Outcome, Reply


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
    owner: dict[Ticket, tuple[EpisodeStepper, dict[int, Reply], int]] = {}

    def submit(player: EpisodeStepper) -> None:
        answers: dict[int, Reply] = {}
        for slot, turn in enumerate(player.pending_turns):
            owner[engine.submit(turn)] = player, answers, slot

    indices = numbers or range(len(episodes))
    gc.set_threshold(usual[0], 10**9)  # so many collections of new objects come before one of older ones
    try:
        players = [EpisodeStepper(episode, engine, key, i) for i, episode in zip(indices, episodes, strict=True)]
        for player in players:
            submit(player)
        while owner:
            for ticket, reply in engine.poll():
                if ticket not in owner:  # of a call that was broken off
                    continue
                player, answers, slot = owner.pop(ticket)
                answers[slot] = reply
                if len(answers) == len(player.pending_turns):
                    player.answer([answers[slot] for slot in range(len(answers))])
                    submit(player)
    finally:
        gc.set_threshold(*usual)
    return [player.outcome for player in players if player.outcome is not None]
