"""MAPoRL as CoMAS's Table 1 uses it: agents debate, a verifier pays every answer, and each agent learns from it.

The reward model of the original is replaced by the verifier (section 4.1.2 of CoMAS); REINFORCE++ trains.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar

from coevolve.checks import at_least
from coevolve.papers.comas.method import CoMAS, Discussion, quoted
from coevolve.parse import boxed
from coevolve.prompts import blocks
from coevolve.shares import mean
from coevolve.types import Episode, Outcome, Reply
from coevolve.worlds import World
from tinyworld.oracle import TinyWorld


@dataclass(kw_only=True)
class MAPoRL(Discussion):
    """Multi-agent post-co-training by debate. The only RL baseline here that sees right and wrong."""

    TRAINING: ClassVar[dict[str, Any]] = CoMAS.TRAINING

    estimator: str = "reinforce_pp"
    agents: int = 2  # of the authors' configuration
    turns: int = 3  # rounds of the debate, of the authors' configuration
    discount: float = 0.3  # how much later rounds count, of the authors' configuration
    share: bool = True  # later rounds: the mean of all agents ("influence-aware"); False: one's own answers only
    setups: tuple[str, ...] = ("vanilla", "consistency", "autogen", "debate")
    prompt: str = "compact"
    prompt_folder: str | None = None
    world: World = field(default_factory=TinyWorld, repr=False)

    def __post_init__(self) -> None:
        at_least(self, agents=1, turns=1)
        if not 0 <= self.discount <= 1:
            raise ValueError(f"discount must be between 0 and 1, got {self.discount}")
        self.solver, self.solution = self._role("solver"), self._role("solution")

    def episode(self, rng: Random) -> Episode:
        """Debate one question: everybody answers, then sees all answers (one's own first) and answers again."""
        question = rng.choice(self.questions)
        said: list[list[Reply]] = []
        for _ in range(self.turns):
            shown = [self._seen(said[-1], agent) if said else "" for agent in range(self.agents)]
            turns = [
                self.solution(policy=name, problem=question, discussion=text)
                for name, text in zip(self.policies, shown, strict=True)
            ]
            said.append((yield turns))
        truths = [[self.world.right(question, boxed(reply.text)) for reply in replies] for replies in said]
        if any(truth is None for row in truths for truth in row):  # nothing to verify against: nobody is paid
            return Outcome([], {"question": question, "right": None})
        values = [[float(truth) for truth in row] for row in truths]
        samples = [
            reply.earns(reward(values, turn, agent, self.discount, self.share))
            for turn, replies in enumerate(said)
            for agent, reply in enumerate(replies)
        ]
        facts = {
            "question": question,
            "right": mean([v for row in values for v in row]),
            "right_first": mean(values[0]),
            "right_last": mean(values[-1]),
            "interactions": self.agents * self.turns,
            "tokens_out": sum(len(reply.ids) for replies in said for reply in replies),
        }
        return Outcome(samples, facts)

    @staticmethod
    def _seen(replies: Sequence[Reply], agent: int) -> str:
        order = [agent, *(i for i in range(len(replies)) if i != agent)]
        return blocks.discussion((quoted(replies[i]), []) for i in order)


def reward(values: Sequence[Sequence[float]], turn: int, agent: int, discount: float, share: bool) -> float:
    """What an answer earns: its own verdict and the discounted ones after it, as a weighted mean.

    `values[t][a]` is the verdict of agent a in round t. With `share` a later round counts with the mean of all
    agents, so an answer is also paid for what the others make of it.
    """
    later = [mean(row) if share else row[agent] for row in values[turn + 1 :]]
    weights = [discount**k for k in range(len(later) + 1)]
    return sum(w * v for w, v in zip(weights, [values[turn][agent], *later], strict=True)) / sum(weights)
