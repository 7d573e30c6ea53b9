"""Nim as self-play: two roles with a baseline each (estimator rae, as in SPIRAL).

Players take 1, 2 or 3 stones in turn; who takes the last one wins. An illegal move loses at once.
`python examples/nim.py nim.jsonl` writes demonstrations for a warm start, see docs/games.md.
"""

import json
import sys
from pathlib import Path
from random import Random
from typing import Any

from coevolve import Method, Outcome, Role
from coevolve.advantages.estimators import Estimator
from coevolve.types import Episode
from coevolve.validation import PathText
from coevolve.worlds import World

PROMPT = "solve<question>{stones} stones</question>"


class Nim(Method):
    """Two players, who alternate; one policy, or a learner against a frozen opponent."""

    estimator: Estimator = "rae"
    """A moving mean of each role's rewards is its baseline: who begins has an advantage."""

    opponent: PathText = ""
    """A frozen model that plays second, such as an earlier run; empty: the trained one."""

    def define_roles(self) -> None:
        second = "opponent" if self.opponent else "shared"
        self.players = [Role("first", PROMPT), Role("second", PROMPT, policy=second)]
        self.solver = Role("solver", "solve<question>{question}</question>")

    @property
    def models(self) -> dict[str, str]:
        return {"opponent": self.opponent} if self.opponent else {}

    def episode(self, rng: Random) -> Episode:
        """Play one game; every move of the winner earns 1, every move of the loser -1."""
        stones = rng.randint(4, 9)
        replies = []
        positions = []
        taken: int | None = 0
        while stones and taken is not None:
            reply = yield self.players[len(replies) % 2](stones=stones)
            taken = self.read_move(reply.text, stones)
            replies.append(reply)
            positions.append((stones, taken))
            stones -= taken or 0
        loser = (len(replies) - (taken is None)) % 2
        samples = []
        for turn, reply in enumerate(replies):
            reward = -1.0 if turn % 2 == loser else 1.0
            if reply.turn.policy not in self.frozen:
                samples.append(reply.earns(reward))
        return Outcome(samples, trace=positions)

    def read_move(self, text: str, stones: int) -> int | None:
        """Return how many stones a reply takes; None for an illegal or unreadable move."""
        answer = self.read_answer(text)
        return int(answer) if answer in ("1", "2", "3")[:stones] else None

    def observe(self, outcome: Outcome, world: World) -> dict[str, Any]:
        """Return whether the game ended illegally, and the share of winning moves."""
        can_win = [position for position in outcome.trace if position[0] % 4]
        winning = [taken == stones % 4 for stones, taken in can_win]
        return {
            "illegal": outcome.trace[-1][1] is None,
            "winning_move": sum(winning) / len(winning) if winning else None,
        }


def demonstrations() -> str:
    """Return legal moves at random, a line each: they show the form, not the strategy."""
    rng = Random(0)
    lines = ""
    for stones in [*range(1, 10)] * 40:
        move = f"<answer>{rng.randint(1, min(3, stones))}</answer>"
        row = {"prompt": PROMPT.format(stones=stones), "completion": move}
        lines += json.dumps(row) + "\n"
    return lines


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/nim.py FILE")
    Path(sys.argv[1]).write_text(demonstrations(), encoding="utf-8")
