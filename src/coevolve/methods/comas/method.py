"""CoMAS: agents discuss a question; solver and evaluator play a zero-sum game that a scorer decides (section 3).

One episode is one question, discussed `reuse` times side by side. Straight-line text code: reads replies, never
tokens; which models the agents are is not its business.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any, ClassVar, Literal

from pydantic import NonNegativeInt, PositiveInt

from coevolve.advantages.estimators import Estimator
from coevolve.methods.base import Method, Setup, paper_table
from coevolve.methods.comas import rewards
from coevolve.methods.facts import mean_known
from coevolve.text import blocks
from coevolve.text.parse import boxed
from coevolve.types import Dialogue, Episode, Outcome, Reply, Role, Turn
from coevolve.worlds import World

BLOCK = re.compile(r"<(/?(?:question|solution|evaluation|score|judgment)>)")  # of these two what MARK's removal makes
Replies = list[list[Reply]]  # to each solution
MARK = re.compile(r"</?(?:score|judgment)>")


@dataclass(frozen=True)
class Round:
    """A solution, its evaluations, and their scorings."""

    solution: Reply
    evaluations: list[Reply]
    scorings: list[Reply]


class Table1(Method):
    """What the trained methods of CoMAS's Table 1 share: questions, configuration, set-ups and how answers are read."""

    paper_name: ClassVar[str] = "comas"
    read_answer = staticmethod(boxed)

    TRAINING: ClassVar[Mapping[str, Any]] = paper_table("comas")

    setups: tuple[Setup, ...] = ("vanilla", "consistency", "autogen", "debate")
    """Inference set-ups of the final evaluation (section 4.1.2)."""

    estimator: Estimator = "reinforce_pp"
    """reinforce_pp: Eq. 10 over an agent's buffer; reinforce_pp_by_role: by interaction type."""

    @cached_property
    def training_questions(self) -> list[tuple[str, str]]:
        """The training questions with their domains."""
        return self.world.training_questions()


class Discussion(Table1):
    """Several agents, each with weights of its own."""

    agents: PositiveInt = 4
    """l, the number of agents (section 4.1.1)."""

    @property
    def policies(self) -> tuple[str, ...]:
        """The agents u_1 to u_l."""
        return tuple(f"agent_{k + 1}" for k in range(self.agents))


class CoMAS(Discussion):
    """Co-evolving multi-agent systems. The defaults are the paper's numbers; each ablation is an argument."""

    PAPER: ClassVar[Mapping[str, Any]] = paper_table("comas", "printed")

    rounds_per_agent: PositiveInt = 2
    """Solution rounds per agent: m = 2 l rounds in all (section 4.1.1)."""

    evaluations: PositiveInt | None = None
    """n, evaluations per solution; None: 1, and 2 without scoring (Appendix J)."""

    horizon: NonNegativeInt = 2
    """kappa, how many earlier rounds are shown."""

    reuse: PositiveInt = 4
    """Discussions per question (prompt reuse in Table 2)."""

    without: Literal["", "evaluation", "scoring"] = ""
    """The ablations of section 4.3.1: evaluation or scoring."""

    unreadable: Literal["masked", "neutral"] = "masked"
    """A score that cannot be read: masked, or neutral, which rewards both sides with 0.5."""

    def define_roles(self) -> None:
        """Count rounds and evaluations, and make the roles of a discussion."""
        fewest = 2 if self.without == "scoring" else 1
        if self.evaluations is not None and self.evaluations < fewest:
            raise ValueError(
                f"evaluations must be at least {fewest} without scoring, got {self.evaluations}"
            )
        self.m = self.rounds_per_agent * self.agents
        self.n = 0 if self.without == "evaluation" else self.evaluations or fewest
        evaluation_prompt = "judgment" if self.without == "scoring" else "evaluation"
        scoring_prompt = "scoring_alone" if self.without == "evaluation" else "scoring"
        self.solver = self.role("solver")
        self.solution = self.role("solution")
        self.evaluation = self.role(evaluation_prompt, "evaluation")
        self.scoring = self.role(scoring_prompt, "scoring")

    def episode(self, rng: Random) -> Episode:
        """Discuss one question `reuse` times, m rounds each, and pay everybody (sections 3.1 and 3.2)."""
        _, q = rng.choice(self.training_questions)
        histories: list[list[Round]] = [[] for _ in range(self.reuse)]  # h_q of each discussion
        rounds: list[Round] = []
        for _ in range(self.m):
            seen = [self.recent(history) for history in histories]
            solutions = yield [self.ask(rng, self.solution, problem=q, discussion=h) for h in seen]  # Eq. 3
            evaluations = yield from self.evaluate(rng, q, seen, solutions)  # Eq. 4
            scorings = yield from self.score(rng, q, solutions, evaluations)  # Eq. 5
            played = [Round(*said) for said in zip(solutions, evaluations, scorings, strict=True)]
            for history, round_ in zip(histories, played, strict=True):
                history.append(round_)
            rounds += played
        earned = [pair for round_ in rounds for pair in self.amounts(round_)]  # Eqs. 7 and 8
        return Outcome([reply.earns(r) for reply, r in earned if r is not None], trace=(q, rounds))

    def recent(self, history: Sequence[Round]) -> str:
        """The last kappa rounds as the next speaker reads them; scorings add nothing to the discussion."""
        last = history[max(0, len(history) - self.horizon) :]
        return blocks.discussion((quoted(one.solution), [quoted(reply) for reply in one.evaluations]) for one in last)

    def ask(self, rng: Random, role: Role, **fields: str) -> Turn:
        """Have any agent play a role: u_k ~ Uniform(U), oneself not excluded."""
        return role(policy=rng.choice(self.policies), **fields)

    def evaluate(self, rng: Random, q: str, seen: list[str], solutions: list[Reply]) -> Dialogue[Replies]:
        """Return n evaluations per solution, written without sight of each other (Eq. 4)."""
        read = [(h, quoted(s)) for h, s in zip(seen, solutions, strict=True) for _ in range(self.n)]
        replies = yield [self.ask(rng, self.evaluation, problem=q, discussion=h, solution=s) for h, s in read]
        return [replies[i * self.n : (i + 1) * self.n] for i in range(len(solutions))]

    def score(self, rng: Random, q: str, solutions: list[Reply], evaluations: Replies) -> Dialogue[Replies]:
        """Return one scoring per evaluation, or per solution without evaluations; none without scoring (Eq. 5)."""
        if self.without == "scoring":
            return [[] for _ in solutions]
        turns: list[list[Turn]] = []
        for s, written in zip(solutions, evaluations, strict=True):
            seen = [{"evaluation": quoted(e)} for e in written] or [{}]
            turns.append([self.ask(rng, self.scoring, problem=q, solution=quoted(s), **more) for more in seen])
        replies = iter((yield [turn for asked in turns for turn in asked]))
        return [[next(replies) for _ in asked] for asked in turns]

    def read_scores(self, round_: Round) -> list[Any]:
        """The scores of a round, or the verdicts of its evaluations without scoring; None where unreadable."""
        if self.without == "scoring":
            return [rewards.extract_verdict(reply.text) for reply in round_.evaluations]
        return [rewards.extract_score(reply.text) for reply in round_.scorings]

    def amounts(self, round_: Round) -> list[tuple[Reply, float | None]]:
        """What every reply of a round earns by Eqs. 7 and 8, or the ablation; None: it is not trained on."""
        scores = self.read_scores(round_)
        if self.without == "scoring":
            agreed = [rewards.agreement(scores, j) for j in range(len(scores))]
            return [(round_.solution, mean_known(scores)), *zip(round_.evaluations, agreed, strict=True)]
        neutral = self.unreadable == "neutral"
        paid = [rewards.evaluation_reward(score, neutral) for score in scores]
        return [
            (round_.solution, rewards.solution_reward(scores, neutral)),
            *zip(round_.evaluations, paid, strict=False),  # without evaluations there is a scoring all the same
            *((reply, rewards.scoring_reward(t)) for reply, t in zip(round_.scorings, scores, strict=True)),
        ]

    def observe(self, outcome: Outcome, world: World) -> dict[str, Any]:
        """The oracle's view of the discussion, every agent's reward, and what it cost."""
        q, rounds = outcome.trace
        solved = [self.amounts(round_)[0][1] for round_ in rounds]
        truths = [world.is_correct(q, boxed(round_.solution.text)) for round_ in rounds]
        paid = [(reply, amount) for round_ in rounds for reply, amount in self.amounts(round_)]
        game = [pair for pair in paid if pair[0].turn.role != "scoring"]  # scorings earn 0 or -1 by Eq. 8
        scores = [score for round_ in rounds for score in self.read_scores(round_)]
        known = [score for score in scores if score is not None]
        marks = {"judged_correct": True} if self.without == "scoring" else {f"score_{mark}": mark for mark in (1, 2, 3)}
        return {
            "question": q,
            "right": mean_known(truths),
            "right_first": mean_known(truths[: self.reuse]),
            "right_last": mean_known(truths[-self.reuse :]),
            "normalised": mean_known([amount for _, amount in game]),
            "unreadable": mean_known([score is None for score in scores]),
            "interactions": len(paid),
            "tokens_in": sum(len(reply.prompt_ids) for reply, _ in paid),
            "tokens_out": sum(len(reply.completion_ids) for reply, _ in paid),
            **rewards.confusion(solved, truths),
            **{f"normalised/{u}": mean_known([x for reply, x in game if reply.turn.policy == u]) for u in self.policies},
            **{name: mean_known([score == mark for score in known]) for name, mark in marks.items()},
        }


def quoted(reply: Reply) -> str:
    """A reply as another agent reads it: it cannot close its own block, and a verdict in it is only words."""
    return BLOCK.sub(r"&lt;\1", MARK.sub("", reply.text))
