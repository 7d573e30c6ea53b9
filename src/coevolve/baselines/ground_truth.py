"""RL with ground truth, the reference of CoNL's figure 3: N independent solutions, paid by the exact verifier.

The only method of that comparison that is told which answers are right.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from coevolve.baselines.srt import AnswerRewards
from coevolve.shares import number


@dataclass(kw_only=True)
class GroundTruth(AnswerRewards):
    """Verifiable rewards with CoNL's data and training configuration (section 4.4)."""

    def rewards(self, question: str, answers: Sequence[str | None]) -> list[float | None]:
        """Pay 1 for a right answer, 0 for a wrong one, nothing where no verifier can tell."""
        return [number(self.world.right(question, answer)) for answer in answers]
