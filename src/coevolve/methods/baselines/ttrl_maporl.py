"""RL baselines of CoMAS's Table 1: TTRL's vote and MAPoRL's debate.

Both train on CoMAS's questions with REINFORCE++.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from pydantic import PositiveInt

from coevolve.methods.comas.method import CoMASBenchmark, Discussion, quoted
from coevolve.methods.facts import agrees, as_float, mean_known
from coevolve.rollout.voting import majority
from coevolve.text import blocks
from coevolve.text.parse import boxed
from coevolve.text.verify.exact import spelling
from coevolve.types import Episode, Outcome, Reply, Sample
from coevolve.validation import Share, check_choice
from coevolve.worlds import World

# [t][k]: 1.0 or 0.0; None: no verifier can tell.
VerdictsByRound = Sequence[Sequence[Any]]


@dataclass(frozen=True)
class VoteTrace:
    """What an episode of TTRL leaves behind."""

    question: str
    can_vote: bool
    replies: list[Reply]
    answers: list[str | None]
    label: str | None  # the majority's answer


@dataclass(frozen=True)
class DebateTrace:
    """What an episode of MAPoRL leaves behind."""

    question: str
    rounds: list[list[Reply]]  # by agent within a round
    verdicts: VerdictsByRound


class TTRL(CoMASBenchmark):
    """Test-time reinforcement learning: reward 1 for the majority's answer, without labels.

    Answers that differ in case, articles, fonts or blanks alone are one answer.
    In domains whose answers cannot be voted on, all rewards are a dummy 0.
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
        """Raise ValueError in one line for a domain of `voting` that no training question has."""
        for voting_domain in self.voting:
            domains = {domain for domain, _ in self.training_questions}
            check_choice("voting", voting_domain, sorted(domains))

    def episode(self, rng: Random) -> Episode:
        """Answer one question many times and reward the first `samples` by the vote of all."""
        domain, question = rng.choice(self.training_questions)
        can_vote = domain in self.voting
        count = self.votes if can_vote else self.samples
        replies = yield [self.solver(question=question)] * count
        answers = [boxed(reply.text) for reply in replies]
        votes = [None if answer is None else spelling(answer) for answer in answers]
        label, _ = majority(votes)
        # The dummy rewards of a group are all equal, so they teach nothing.
        group_id = None if can_vote else "dummy"
        voters = list(zip(replies, votes, strict=True))
        samples = []
        for reply, vote in voters[: self.samples]:
            agrees = vote is not None and vote == label
            reward = 1.0 if can_vote and agrees else 0.0
            samples.append(reply.earns(reward, group_id))
        trace = VoteTrace(question, can_vote, replies, answers, label)
        return Outcome(samples, trace=trace)

    def observe(self, outcome: Outcome, world: World) -> dict[str, Any]:
        """Return how correct the answers, their majority and the rewards were, and the cost."""
        trace: VoteTrace = outcome.trace
        verdicts = [world.is_correct(trace.question, one) for one in trace.answers]
        majority_verdict = None
        agreements: list[float | None] = []  # of the rewards of readable answers
        if trace.can_vote:
            majority_verdict = world.is_correct(trace.question, trace.label)
            rewards: list[Any] = [sample.reward for sample in outcome.samples]
            # All answers vote, and the first of them are rewarded.
            for value, answer, verdict in zip(
                rewards, trace.answers, verdicts, strict=False
            ):
                if answer is not None:
                    agreements.append(agrees(value, verdict))
        return {
            "question": trace.question,
            "correct": mean_known(verdicts),
            "voted": float(trace.can_vote),
            "majority_correct": as_float(majority_verdict),
            "reward_correct": mean_known(agreements),
            **cost(trace.replies),
        }


class MAPoRL(Discussion):
    """Multi-agent post-co-training by debate: a verifier's verdicts reward each agent's answers.

    The verifier takes the place of the original's reward model (section 4.1.2 of CoMAS). No other
    RL baseline in this module learns which answers are correct.
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
        """Debate one question: all agents answer, then read all answers and answer again."""
        _, question = rng.choice(self.training_questions)
        rounds: list[list[Reply]] = []
        for _ in range(self.turns):
            turns = []
            for agent, policy in enumerate(self.policies):
                history = shown_to(agent, rounds[-1]) if rounds else ""
                fields = {"problem": question, "discussion": history}
                turns.append(self.solution(policy=policy, **fields))
            replies = yield turns
            rounds.append(replies)
        verdicts = []
        for replies in rounds:
            answers = [boxed(reply.text) for reply in replies]
            correct = [self.world.is_correct(question, answer) for answer in answers]
            verdicts.append([as_float(is_correct) for is_correct in correct])
        samples = self.reward_debate(rounds, verdicts)
        return Outcome(samples, trace=DebateTrace(question, rounds, verdicts))

    def reward_debate(
        self, rounds: Sequence[Sequence[Reply]], verdicts: VerdictsByRound
    ) -> list[Sample]:
        """Reward every answer, or none if a verdict is missing."""
        if any(None in round_verdicts for round_verdicts in verdicts):
            return []
        samples = []
        for t, replies in enumerate(rounds):
            for agent, reply in enumerate(replies):
                value = reward(verdicts, t, agent, self.discount, self.share)
                samples.append(reply.earns(value))
        return samples

    def observe(self, outcome: Outcome, world: World) -> dict[str, Any]:
        """Return how correct the answers were, None where no verifier can tell, and their cost."""
        trace: DebateTrace = outcome.trace
        all_replies: list[Reply] = []
        for replies in trace.rounds:
            all_replies += replies
        all_verdicts: list[float | None] = []
        for round_verdicts in trace.verdicts:
            all_verdicts += round_verdicts
        return {
            "question": trace.question,
            "correct": mean_known(all_verdicts),
            "correct_first": mean_known(trace.verdicts[0]),
            "correct_last": mean_known(trace.verdicts[-1]),
            **cost(all_replies),
        }


def cost(replies: Sequence[Reply]) -> dict[str, int]:
    """Return the number of replies and of their tokens."""
    tokens = sum(len(reply.completion_ids) for reply in replies)
    return {"interactions": len(replies), "tokens_out": tokens}


def shown_to(agent: int, replies: Sequence[Reply]) -> str:
    """Return the answers of a round as an agent reads them: its own, then the others'."""
    others = [*replies[:agent], *replies[agent + 1 :]]
    return blocks.discussion((quoted(reply), ()) for reply in [replies[agent], *others])


def reward(
    verdicts: VerdictsByRound, t: int, agent: int, discount: float, share: bool
) -> float:
    """Return the reward of an agent's answer in round t.

    It is the mean of the answer's own verdict and those of all later rounds, with weights
    discount^0, discount^1 and so on. With `share` a later round counts with the mean over all
    agents, which rewards an answer for its influence on the other agents.
    """
    values = [verdicts[t][agent]]
    for later_verdicts in verdicts[t + 1 :]:
        if share:
            values.append(mean_known(later_verdicts))
        else:
            values.append(later_verdicts[agent])
    weights = [discount**k for k in range(len(values))]
    weighted = [weight * value for weight, value in zip(weights, values, strict=True)]
    return float(sum(weighted) / sum(weights))
