"""MAPoRL as CoMAS's Table 1 uses it: agents debate, a verifier pays every answer, and each agent learns from it.

The reward model of the original is replaced by the verifier (section 4.1.2 of CoMAS); REINFORCE++ trains.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from coevolve.checks import at_least
from coevolve.papers.comas.method import Discussion, quoted
from coevolve.parse import boxed
from coevolve.prompts import blocks
from coevolve.shares import mean, number
from coevolve.types import Episode, Outcome, Reply
from coevolve.worlds import World


@dataclass(kw_only=True)
class MAPoRL(Discussion):
    """Multi-agent post-co-training by debate. The only RL baseline here that sees right and wrong."""

    agents: int = 2  # of the authors' configuration
    turns: int = 3  # rounds of the debate, of the authors' configuration
    discount: float = 0.3  # how much later rounds count, of the authors' configuration
    share: bool = True  # later rounds: the mean of all agents ("influence-aware"); False: one's own answers only

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, agents=1, turns=1)
        if not 0 <= self.discount <= 1:
            raise ValueError(f"discount must be between 0 and 1, got {self.discount}")
        self.solver, self.solution = self.role("solver"), self.role("solution")

    def episode(self, rng: Random) -> Episode:
        """Debate one question: everybody answers, then sees all answers (one's own first) and answers again."""
        _, question = rng.choice(self.training)
        said: list[list[Reply]] = []
        for _ in range(self.turns):
            turns = []
            for agent, policy in enumerate(self.policies):
                discussion = seen(said[-1], agent) if said else ""
                turns.append(self.solution(policy=policy, problem=question, discussion=discussion))
            said.append((yield turns))
        values = [[number(self.world.right(question, boxed(reply.text))) for reply in replies] for replies in said]
        samples = []
        if all(None not in verdicts for verdicts in values):  # nobody is paid where there is nothing to verify against
            for turn, replies in enumerate(said):
                for agent, reply in enumerate(replies):
                    samples.append(reply.earns(reward(values, turn, agent, self.discount, self.share)))
        return Outcome(samples, trace=(question, said, values))

    def observe(self, outcome: Outcome, world: World) -> dict[str, Any]:
        """How right the agents were and what it cost; only the question where nobody was paid."""
        question, said, values = outcome.trace
        if not outcome.samples:
            return {"question": question, "right": None}
        return {
            "question": question,
            "right": mean([value for verdicts in values for value in verdicts]),
            "right_first": mean(values[0]),
            "right_last": mean(values[-1]),
            "interactions": len(outcome.samples),
            "tokens_out": sum(len(reply.ids) for replies in said for reply in replies),
        }


def seen(replies: Sequence[Reply], agent: int) -> str:
    """Return the last answers as an agent reads them: first its own, then the others'."""
    others = [reply for other, reply in enumerate(replies) if other != agent]
    return blocks.discussion((quoted(reply), []) for reply in (replies[agent], *others))


def reward(values: Sequence[Sequence[Any]], turn: int, agent: int, discount: float, share: bool) -> float:
    """Return what an answer earns: its own verdict and the discounted ones after it, as a weighted mean.

    `values[t][a]` is the verdict of agent a in round t, 1.0 or 0.0. With `share` a later round counts with the mean
    of all agents, so an answer is also paid for what the others make of it.
    """
    later = [mean(verdicts) if share else verdicts[agent] for verdicts in values[turn + 1 :]]
    weights = [discount**k for k in range(len(later) + 1)]
    total = sum(weight * value for weight, value in zip(weights, [values[turn][agent], *later], strict=True))
    return float(total / sum(weights))
