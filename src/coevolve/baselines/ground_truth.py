"""RL with ground truth, the reference of CoNL's figure 3: N independent solutions, paid by the exact verifier.

The only method of that comparison that is told which answers are right.
"""

from dataclasses import dataclass, field
from random import Random

from coevolve.baselines.srt import Tabled, pay, solutions, tokens_of
from coevolve.parse import answer_line
from coevolve.shares import mean, number
from coevolve.types import Episode, Outcome
from coevolve.worlds import World
from tinyworld.oracle import TinyWorld


@dataclass(kw_only=True)
class GroundTruth(Tabled):
    """Verifiable rewards with CoNL's data and training configuration (section 4.4)."""

    agents: int = 4  # solutions per question, as SRT-S samples them
    estimator: str = "group_mean"  # over the N solutions
    test_time: bool = False  # True: train on the test questions, as the paper does (section 4.1)
    setups: tuple[str, ...] = ("vanilla",)  # inference set-ups of the final scoring
    prompt: str = "compact"
    prompt_folder: str | None = None
    world: World = field(default_factory=TinyWorld, repr=False)

    def episode(self, rng: Random) -> Episode:
        """Answer one question N times; the verifier pays 1 for a right one, 0 for a wrong one, else nothing."""
        question = rng.choice(self.table.questions)
        replies = yield solutions(self.table, question)
        answers = [answer_line(reply.text) for reply in replies]
        rewards = [number(self.world.right(question, answer)) for answer in answers]
        facts = {"question": question, "answers": answers, "right_final": mean(rewards)}
        return Outcome(pay([replies], rewards), facts | tokens_of([replies]))
