"""An oracle with a dial: its verdicts are right with a chosen probability.

The same judgement of the same run always gets the same verdict, so runs repeat exactly.
"""

from dataclasses import dataclass
from random import Random
from typing import Literal

from coevolve.worlds import World

Errors = Literal["random", "question", "level"]
# How far accuracy falls from one level to the next, as a share of what is possible: at 0.75 it is
# 0.95, 0.75 and 0.55 on levels 1, 2 and 3.
LEVEL_SPREAD = 0.8
LOWEST_ACCURACY = 0.5  # a coin's


@dataclass(frozen=True)
class Dial:
    """An oracle whose verdicts are right with probability `accuracy`.

    `errors` says which are wrong: any, independently of each other (random); all about some
    questions and none about the others (question); more on higher levels (level).
    """

    world: World
    accuracy: float = 1.0
    errors: Errors = "random"
    seed: int = 0

    def answer_is_correct(
        self, question: str, answer: str | None, key: tuple[int, ...]
    ) -> bool:
        """Say whether an answer is correct; `key` identifies the judgement.

        An ill-formed question has no right answer: a coin decides.
        """
        return self._verdict(self.world.is_correct(question, answer), question, key)

    def question_is_well_formed(self, question: str, key: tuple[int, ...]) -> bool:
        """Say whether a question is well formed."""
        return self._verdict(self.world.valid(question), question, key)

    def plan_fits(self, question: str, plan: str, key: tuple[int, ...]) -> bool:
        """Say whether a plan suits a question; for an ill-formed question a coin decides."""
        return self._verdict(self.world.fits(question, plan), question, key)

    def _verdict(self, truth: bool | None, question: str, key: tuple[int, ...]) -> bool:
        if truth is None:
            return self._uniform("coin", key) < 0.5
        subject = question if self.errors == "question" else key
        accuracy = self._accuracy_on(question)
        is_right = self._uniform("error", subject) < accuracy
        return truth if is_right else not truth

    def _accuracy_on(self, question: str) -> float:
        if self.errors != "level":
            return self.accuracy
        level = self.world.level(question)
        if level is None:
            return self.accuracy
        room_above = 1 - self.accuracy
        room_below = self.accuracy - LOWEST_ACCURACY
        step = LEVEL_SPREAD * min(room_above, room_below)
        return self.accuracy + step * (2 - level)

    def _uniform(self, purpose: str, subject: object) -> float:
        """Return a number from 0 to 1 that depends on nothing but the seed and the subject."""
        return Random(f"{self.seed} {purpose} {subject}").random()
