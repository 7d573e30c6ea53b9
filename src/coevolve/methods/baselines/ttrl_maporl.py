"""RL baselines of CoMAS's Table 1, on CoMAS's questions with REINFORCE++: TTRL's vote and MAPoRL's debate."""

from collections.abc import Sequence
from random import Random
from typing import Any

from pydantic import PositiveInt

from coevolve.methods.comas.method import Discussion, Table1, quoted
from coevolve.methods.facts import as_float, mean_known
from coevolve.rollout.voting import majority
from coevolve.text import blocks
from coevolve.text.parse import boxed
from coevolve.types import Episode, Outcome, Reply
from coevolve.validation import Share, check_choice
from coevolve.worlds import World


class TTRL(Table1):
    """Test-time reinforcement learning: reward 1 for the majority's answer, a dummy where answers cannot be voted on.

    No labels are read.
    """

    votes: PositiveInt = 64
    """Answers that vote (TTRL's setting)."""

    samples: PositiveInt = 32
    """How many of them are trained on (TTRL's setting)."""

    voting: tuple[str, ...] = ("MATH",)
    """Domains whose answers can be voted on; code and science cannot (section 4.1.2)."""

    def define_roles(self) -> None:
        """Make the solver."""
        self.solver = self.role("solver")

    def before_run(self) -> None:
        """Raise ValueError in one line for a domain to vote in that no training question has."""
        for domain in self.voting:
            domains = {domain for domain, _ in self.training_questions}
            check_choice("voting", domain, sorted(domains))

    def episode(self, rng: Random) -> Episode:
        """Ask one question many times, and pay the first `samples` answers by the vote of all."""
        domain, question = rng.choice(self.training_questions)
        votes = domain in self.voting
        replies = yield [self.solver(question=question)] * (self.votes if votes else self.samples)
        answers = [boxed(reply.text) for reply in replies]
        label, _ = majority(answers)
        wins = [votes and answer is not None and answer == label for answer in answers[: self.samples]]
        group = None if votes else "dummy"  # everybody's reward is the same within it, so it teaches nothing
        samples = [reply.earns(float(won), group) for reply, won in zip(replies, wins, strict=False)]
        return Outcome(samples, trace=(domain, question, replies, answers))

    def observe(self, outcome: Outcome, world: World) -> dict[str, Any]:
        """How right the answers and their majority were, and what they cost."""
        domain, question, replies, answers = outcome.trace
        voted, (label, _) = domain in self.voting, majority(answers)
        right = mean_known([world.is_correct(question, answer) for answer in answers])
        known = as_float(world.is_correct(question, label)) if voted else None
        return {"question": question, "right": right, "voted": float(voted), "majority_right": known, **cost(replies)}


class MAPoRL(Discussion):
    """Multi-agent post-co-training by debate: a verifier pays every answer, and each agent learns from it.

    The verifier stands for the reward model of the original (section 4.1.2 of CoMAS). The only RL baseline here that
    sees right and wrong.
    """

    agents: PositiveInt = 2
    """The number of agents (the authors' configuration)."""

    turns: PositiveInt = 3
    """Rounds of the debate (the authors' configuration)."""

    discount: Share = 0.3
    """How much later rounds count (the authors' configuration)."""

    share: bool = True
    """Whether later rounds count with all agents' mean ("influence-aware") or one's own answers."""

    def define_roles(self) -> None:
        """Make the role of the debate, and the solver that answers held-out questions."""
        self.solver = self.role("solver")
        self.solution = self.role("solution")

    def episode(self, rng: Random) -> Episode:
        """Debate one question: everybody answers, then sees all answers (one's own first) and answers again."""
        _, question = rng.choice(self.training_questions)
        said: list[list[Reply]] = []
        for _ in range(self.turns):
            heard = [seen(said[-1], agent) if said else "" for agent in range(self.agents)]
            speakers = zip(self.policies, heard, strict=True)
            said.append((yield [self.solution(policy=u, problem=question, discussion=h) for u, h in speakers]))
        values = [[as_float(self.world.is_correct(question, boxed(reply.text))) for reply in replies] for replies in said]
        verified = all(None not in verdicts for verdicts in values)  # nobody is paid where there is nothing to verify
        spoken = [(t, k, reply) for t, replies in enumerate(said) for k, reply in enumerate(replies) if verified]
        samples = [reply.earns(reward(values, t, k, self.discount, self.share)) for t, k, reply in spoken]
        return Outcome(samples, trace=(question, said, values))

    def observe(self, outcome: Outcome, world: World) -> dict[str, Any]:
        """How right the agents were, None where nothing could be verified, and what it cost."""
        question, said, values = outcome.trace
        right = mean_known([value for verdicts in values for value in verdicts])
        first, last = mean_known(values[0]), mean_known(values[-1])
        replies = [reply for replies in said for reply in replies]
        return {"question": question, "right": right, "right_first": first, "right_last": last, **cost(replies)}


def cost(replies: Sequence[Reply]) -> dict[str, int]:
    """Return how many replies there were, and how many tokens."""
    return {"interactions": len(replies), "tokens_out": sum(len(reply.completion_ids) for reply in replies)}


def seen(replies: Sequence[Reply], agent: int) -> str:
    """Return the last answers as an agent reads them: first its own, then the others'."""
    return blocks.discussion((quoted(reply), ()) for reply in (replies[agent], *replies[:agent], *replies[agent + 1 :]))


def reward(values: Sequence[Sequence[Any]], turn: int, agent: int, discount: float, share: bool) -> float:
    """Return what an answer earns: its own verdict and the discounted ones after it, as a weighted mean.

    `values[t][a]` is the verdict of agent a in round t, 1.0 or 0.0. With `share` a later round counts with the mean
    of all agents, so an answer is also paid for what the others make of it.
    """
    later = [mean_known(verdicts) if share else verdicts[agent] for verdicts in values[turn + 1 :]]
    weights = [discount**k for k in range(len(later) + 1)]
    total = sum(weight * value for weight, value in zip(weights, [values[turn][agent], *later], strict=True))
    return float(total / sum(weights))
