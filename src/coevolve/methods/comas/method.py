"""CoMAS: agents discuss a question, and a scorer decides a zero-sum game between them (section 3).

One episode is one question, discussed `reuse` times side by side. The code reads replies, never
tokens, and does not depend on the models behind the agents.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from random import Random
from typing import Any, ClassVar, Literal

from pydantic import NonNegativeInt, PositiveInt

from coevolve.advantages.estimators import Estimator
from coevolve.methods.base import Method, Strategy, paper_table
from coevolve.methods.comas import rewards
from coevolve.methods.comas.metrics import (
    SCORE_METRICS,
    VERDICT_METRICS,
    episode_metrics,
)
from coevolve.methods.comas.records import EpisodeTrace, RewardedReply, Round
from coevolve.methods.facts import mean_known
from coevolve.text import blocks
from coevolve.text.parse import boxed
from coevolve.types import Dialogue, Episode, Outcome, Reply, Role, Sample, Turn
from coevolve.worlds import World

VERDICT_TAG = re.compile(r"</?(?:score|judgment)>")
# Removing verdict tags can join pieces into new ones, so these are escaped, too.
BLOCK_TAG = re.compile(r"<(/?(?:question|solution|evaluation|score|judgment)>)")
RepliesBySolution = list[list[Reply]]


class CoMASBenchmark(Method):
    """The fields, questions and answer format of the trained methods in CoMAS's Table 1."""

    paper_name: ClassVar[str] = "comas"
    read_answer = staticmethod(boxed)

    PAPER_RUN_VALUES: ClassVar[Mapping[str, Any]] = paper_table("comas")

    PAPER_METHOD_VALUES: ClassVar[Mapping[str, Any]] = paper_table("comas", "benchmark")

    strategies: tuple[Strategy, ...] = ("vanilla", "consistency", "autogen", "debate")
    """Inference strategies of the final evaluation (section 4.1.2)."""

    estimator: Estimator = "reinforce_pp"
    """reinforce_pp: Eq. 10 over an agent's buffer; reinforce_pp_by_role: by interaction type."""

    @cached_property
    def training_questions(self) -> list[tuple[str, str]]:
        """The training questions as (domain, question) pairs."""
        return self.world.training_questions()


class Discussion(CoMASBenchmark):
    """Several agents, each with its own weights."""

    agents: PositiveInt = 4
    """l, the number of agents (section 4.1.1)."""

    @property
    def policies(self) -> tuple[str, ...]:
        """The agents u_1 to u_l."""
        return tuple(f"agent_{k + 1}" for k in range(self.agents))


class CoMAS(Discussion):
    """Co-evolving multi-agent systems.

    The defaults are the paper's numbers, and each ablation is an argument.
    """

    PAPER_METHOD_VALUES: ClassVar[Mapping[str, Any]] = {
        **CoMASBenchmark.PAPER_METHOD_VALUES,
        **paper_table("comas", "printed"),
    }

    rounds_per_agent: PositiveInt = 2
    """Solution rounds per agent: m = 2 l rounds in all (section 4.1.1)."""

    evaluations: PositiveInt | None = None
    """n, evaluations per solution; None: 1, and 2 without scoring (Appendix J)."""

    horizon: NonNegativeInt = 2
    """kappa, the number of earlier rounds that are shown."""

    reuse: PositiveInt = 4
    """Discussions per question (prompt reuse in Table 2)."""

    without: Literal["", "evaluation", "scoring"] = ""
    """The ablations of section 4.3.1: evaluation or scoring."""

    unreadable: Literal["masked", "neutral"] = "masked"
    """A score that cannot be read: masked, or neutral, which rewards both sides with 0.5."""

    def define_roles(self) -> None:
        """Count rounds and evaluations, and make the roles of a discussion."""
        if self.without == "evaluation" and self.evaluations is not None:
            raise ValueError(
                "without='evaluation' has no evaluations: leave the field out"
            )
        if self.without == "scoring" and self.unreadable == "neutral":
            raise ValueError(
                "without='scoring' reads no scores: unreadable must be 'masked'"
            )
        min_evaluations = 2 if self.without == "scoring" else 1
        if self.evaluations is not None and self.evaluations < min_evaluations:
            raise ValueError(
                f"evaluations must be at least {min_evaluations} without scoring, "
                f"got {self.evaluations}"
            )
        self.m = self.rounds_per_agent * self.agents
        self.n = self.evaluations or min_evaluations
        if self.without == "evaluation":
            self.n = 0
        evaluation_prompt = "judgment" if self.without == "scoring" else "evaluation"
        scoring_prompt = "scoring_alone" if self.without == "evaluation" else "scoring"
        self.solver = self.role("solver")
        self.solution = self.role("solution")
        self.evaluation = self.role(evaluation_prompt, "evaluation")
        self.scoring = self.role(scoring_prompt, "scoring")

    # The discussion (section 3.1).

    def episode(self, rng: Random) -> Episode:
        """Discuss a question `reuse` times, m rounds each, and reward every reply (section 3)."""
        _, q = rng.choice(self.training_questions)
        discussions: list[list[Round]] = [[] for _ in range(self.reuse)]
        rounds: list[Round] = []
        for _ in range(self.m):
            histories = [self.recent(discussion) for discussion in discussions]  # h_q
            solutions = yield from self.solve(rng, q, histories)  # Eq. 3
            # Eqs. 4 and 5
            evaluations = yield from self.evaluate(rng, q, histories, solutions)
            scorings = yield from self.score(rng, q, solutions, evaluations)
            for i, discussion in enumerate(discussions):
                # Eqs. 6 to 8
                round_ = self.reward_round(solutions[i], evaluations[i], scorings[i])
                discussion.append(round_)
                rounds.append(round_)
        samples: list[Sample] = []
        for round_ in rounds:
            samples += samples_of(round_)
        return Outcome(samples, trace=EpisodeTrace(q, rounds, self.reuse))

    def recent(self, discussion: Sequence[Round]) -> str:
        """Return the last kappa rounds as the next speaker reads them, without scorings."""
        first = max(0, len(discussion) - self.horizon)
        shown = []
        for round_ in discussion[first:]:
            evaluations = [quoted(one.reply) for one in round_.evaluations]
            shown.append((quoted(round_.solution.reply), evaluations))
        return blocks.discussion(shown)

    def ask(self, rng: Random, role: Role, **fields: str) -> Turn:
        """Let any agent play a role: u_k ~ Uniform(U), the author of the solution included."""
        return role(policy=rng.choice(self.policies), **fields)

    def solve(
        self, rng: Random, q: str, histories: Sequence[str]
    ) -> Dialogue[list[Reply]]:
        """Return a solution per discussion (Eq. 3)."""
        turns = []
        for history in histories:
            turn = self.ask(rng, self.solution, problem=q, discussion=history)
            turns.append(turn)
        solutions: list[Reply] = yield turns
        return solutions

    def evaluate(
        self,
        rng: Random,
        q: str,
        histories: Sequence[str],
        solutions: Sequence[Reply],
    ) -> Dialogue[RepliesBySolution]:
        """Return n evaluations per solution, none of which sees another (Eq. 4)."""
        turns = []
        for history, solution in zip(histories, solutions, strict=True):
            fields = {
                "problem": q,
                "discussion": history,
                "solution": quoted(solution),
            }
            turns += [self.ask(rng, self.evaluation, **fields) for _ in range(self.n)]
        evaluations = yield turns
        return split_evenly(evaluations, len(solutions))

    def score(
        self,
        rng: Random,
        q: str,
        solutions: Sequence[Reply],
        evaluations: RepliesBySolution,
    ) -> Dialogue[RepliesBySolution]:
        """Return a scoring per evaluation, or per solution without evaluations (Eq. 5).

        Empty lists without scoring.
        """
        if self.without == "scoring":
            return [[] for _ in solutions]
        turns = []
        for solution, evaluations_of_it in zip(solutions, evaluations, strict=True):
            fields = {"problem": q, "solution": quoted(solution)}
            if self.without == "evaluation":
                turns.append(self.ask(rng, self.scoring, **fields))
            for evaluation in evaluations_of_it:
                text = quoted(evaluation)
                turns.append(self.ask(rng, self.scoring, evaluation=text, **fields))
        scorings = yield turns
        return split_evenly(scorings, len(solutions))

    # Rewards (section 3.2) and the ablations (section 4.3.1).

    def reward_round(
        self,
        solution: Reply,
        evaluations: Sequence[Reply],
        scorings: Sequence[Reply],
    ) -> Round:
        """Read the scores of a round (Eq. 6) and reward its replies (Eqs. 7 and 8)."""
        if self.without == "scoring":
            return reward_agreement(solution, evaluations)
        scores = [rewards.extract_score(reply.text) for reply in scorings]
        neutral = self.unreadable == "neutral"
        evaluation_rewards = [rewards.evaluation_reward(t, neutral) for t in scores]
        scoring_rewards = [rewards.scoring_reward(t) for t in scores]
        if self.without == "evaluation":  # the score is of the solution alone
            evaluation_rewards = []
        return Round(
            solution=RewardedReply(solution, rewards.solution_reward(scores, neutral)),
            evaluations=rewarded(evaluations, evaluation_rewards),
            scorings=rewarded(scorings, scoring_rewards),
            scores=scores,
        )

    def observe(self, outcome: Outcome, world: World) -> dict[str, Any]:
        """Return the oracle's view of the discussion, every agent's reward, and costs."""
        without_scoring = self.without == "scoring"
        score_metrics = VERDICT_METRICS if without_scoring else SCORE_METRICS
        return episode_metrics(
            outcome.trace, world, self.read_answer, self.policies, score_metrics
        )


def reward_agreement(solution: Reply, evaluations: Sequence[Reply]) -> Round:
    """Reward a round without scoring: each evaluation for its agreement with the others.

    The solution's reward is the fraction of the verdicts that call it correct.
    """
    verdicts = [rewards.extract_verdict(reply.text) for reply in evaluations]
    agreements = [rewards.agreement(verdicts, j) for j in range(len(verdicts))]
    return Round(
        solution=RewardedReply(solution, mean_known(verdicts)),
        evaluations=rewarded(evaluations, agreements),
        scorings=[],
        scores=verdicts,
    )


def rewarded(
    replies: Sequence[Reply], reply_rewards: Sequence[float | None]
) -> list[RewardedReply]:
    """Return the replies with their rewards."""
    pairs = zip(replies, reply_rewards, strict=True)
    return [RewardedReply(reply, reward) for reply, reward in pairs]


def samples_of(round_: Round) -> list[Sample]:
    """Return the replies of a round that are trained on."""
    samples = []
    for one in round_.replies:
        if one.reward is not None:
            samples.append(one.reply.earns(one.reward))
    return samples


def split_evenly(replies: Sequence[Reply], groups: int) -> RepliesBySolution:
    """Split replies into groups of equal size, in their order."""
    size = len(replies) // groups
    return [list(replies[i * size : (i + 1) * size]) for i in range(groups)]


def quoted(reply: Reply) -> str:
    """Return a reply as other agents read it.

    It cannot close the block that it stands in, and verdict tags in it are removed.
    """
    text = VERDICT_TAG.sub("", reply.text)
    return BLOCK_TAG.sub(r"&lt;\1", text)
