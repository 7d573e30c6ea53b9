"""CoMAS: agents discuss a question; solver and evaluator play a zero-sum game that a scorer decides (section 3).

One episode is one question, discussed `reuse` times side by side. Straight-line text code: reads replies, never
tokens; which models the agents are is not its business.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Any, ClassVar

from coevolve.checks import among, at_least
from coevolve.method import Method
from coevolve.papers.comas import rewards as rewards
from coevolve.parse import boxed
from coevolve.prompts import blocks
from coevolve.shares import mean
from coevolve.types import Episode, Outcome, Reply, Role, Sample, Turn
from coevolve.worlds import World
from tinyworld.oracle import TinyWorld

ABLATIONS = ("", "evaluation", "scoring")
UNREADABLE = ("masked", "neutral")
BLOCK = re.compile(r"<(/?(?:question|solution|evaluation)>)")
MARK = re.compile(r"</?(?:score|judgment)>")
Round = tuple[Reply, list[Reply], list[Reply]]  # a solution, its evaluations, their scorings


class Discussion(Method):
    """CoMAS's questions and agents, for whoever has the fields `world` and `agents`."""

    PROMPTS: ClassVar[str] = "comas"

    read = staticmethod(boxed)

    @cached_property
    def questions(self) -> list[str]:
        """The training questions."""
        return [question for _, question in self.world.training()]

    @property
    def policies(self) -> tuple[str, ...]:
        """The agents u_1 to u_l, each with weights of its own."""
        return tuple(f"agent_{k + 1}" for k in range(self.agents))


@dataclass(kw_only=True)
class CoMAS(Discussion):
    """Co-evolving multi-agent systems. The defaults are the paper's numbers; each ablation is an argument."""

    TRAINING: ClassVar[dict[str, Any]] = {  # Table 2; 2,000 questions in batches of 64 are 31 steps (Table 6)
        "steps": 31,
        "batch_size": 64,
        "learning_rate": 1e-6,
        "weight_decay": 0.0,
        "grad_clip": 1.0,
        "loss": "ppo",
        "clip": (0.2, 0.2),
        "entropy_coef": 0.0,
        "length_norm": "token_mean",
        "temperature": 1.0,
        "max_tokens": 4096,
    }

    estimator: str = "reinforce_pp"  # Eq. 10 over an agent's whole buffer; reinforce_pp_by_role: per interaction type
    kl_coef: float = 0.0  # beta of Eq. 9 (Table 2)
    agents: int = 4  # l (section 4.1.1)
    rounds_per_agent: int = 2  # m = 2 l solution rounds (section 4.1.1)
    evaluations: int | None = None  # n per solution; None: 1, and 2 without scoring (Appendix J)
    horizon: int = 2  # kappa, how many earlier rounds are shown
    reuse: int = 4  # discussions per question (Table 2, prompt reuse)
    without: str = ""  # evaluation or scoring: the ablations of section 4.3.1
    unreadable: str = "masked"  # neutral: an unreadable score pays solution and evaluation 0.5 each
    setups: tuple[str, ...] = ("vanilla", "consistency", "autogen", "debate")  # of the final scoring (section 4.1.2)
    prompt: str = "compact"  # full for real models
    prompt_folder: str | None = None  # a folder with your own prompts of the same names
    world: World = field(default_factory=TinyWorld, repr=False)

    def __post_init__(self) -> None:
        among("without", self.without, ABLATIONS)
        among("unreadable", self.unreadable, UNREADABLE)
        least = 2 if self.without == "scoring" else 1
        at_least(self, agents=1, rounds_per_agent=1, horizon=0, reuse=1, evaluations=least, kl_coef=0)
        self.m, self.n = self.rounds_per_agent * self.agents, self._evaluations()
        self.solver = self._role("solver")
        self.solution = self._role("solution")
        self.evaluation = self._role("judgment" if self.without == "scoring" else "evaluation", "evaluation")
        self.scoring = self._role("scoring_alone" if self.without == "evaluation" else "scoring", "scoring")

    def _evaluations(self) -> int:
        if self.without == "evaluation":
            return 0
        return self.evaluations or (2 if self.without == "scoring" else 1)

    def episode(self, rng: Random) -> Episode:
        """Discuss one question `reuse` times, m rounds each, and pay everybody (sections 3.1 and 3.2)."""
        q = rng.choice(self.questions)
        histories: list[list] = [[] for _ in range(self.reuse)]  # h_q of each discussion
        played: list[Round] = []
        for _ in range(self.m):
            seen = [blocks.discussion(h[max(0, len(h) - self.horizon) :]) for h in histories]
            solutions = yield [self._ask(rng, self.solution, problem=q, discussion=h) for h in seen]  # Eq. 3
            evaluations = yield from self._evaluate(rng, q, seen, solutions)  # Eq. 4
            scorings = yield from self._score(rng, q, solutions, evaluations)  # Eq. 5
            done = list(zip(solutions, evaluations, scorings, strict=True))
            for history, (s, its, _) in zip(histories, done, strict=True):
                history.append((quoted(s), [quoted(e) for e in its]))  # scorings add nothing to the discussion
            played += done
        paid = [self._paid(round_) for round_ in played]
        return Outcome([sample for samples in paid for sample in samples], self._facts(q, played, paid))

    def _ask(self, rng: Random, role: Role, **fields: str) -> Turn:
        return role(policy=rng.choice(self.policies), **fields)  # u_k ~ Uniform(U), oneself not excluded

    def _evaluate(self, rng: Random, q: str, seen: Sequence[str], solutions: Sequence[Reply]) -> Episode:
        """Return n evaluations per solution, written without sight of each other."""
        if not self.n:
            return [[] for _ in solutions]
        asked = [
            self._ask(rng, self.evaluation, problem=q, discussion=h, solution=quoted(s))
            for h, s in zip(seen, solutions, strict=True)
            for _ in range(self.n)
        ]
        replies = yield asked
        return [replies[i : i + self.n] for i in range(0, len(replies), self.n)]

    def _score(self, rng: Random, q: str, solutions: Sequence[Reply], evaluations: Sequence[list]) -> Episode:
        """Return one scoring per evaluation, or per solution without evaluations; none in the other ablation."""
        if self.without == "scoring":
            return [[] for _ in solutions]
        asked = []
        for s, its in zip(solutions, evaluations, strict=True):
            fields = {"problem": q, "solution": quoted(s)}
            asked.append(
                [self._ask(rng, self.scoring, **fields, evaluation=quoted(e)) for e in its]
                or [self._ask(rng, self.scoring, **fields)]
            )
        replies = iter((yield [turn for turns in asked for turn in turns]))
        return [[next(replies) for _ in turns] for turns in asked]

    def _paid(self, round_: Round) -> list[Sample]:
        """Eqs. 7 and 8, or the ablation's rewards; a reward of None leaves the reply out."""
        solution, evaluations, scorings = round_
        if self.without == "scoring":
            verdicts = [rewards.extract_verdict(e.text) for e in evaluations]
            amounts = [(solution, rewards.support(verdicts))]
            amounts += [(e, rewards.agreement(verdicts, j)) for j, e in enumerate(evaluations)]
        else:
            scores = [rewards.extract_score(s.text) for s in scorings]
            neutral = self.unreadable == "neutral"
            amounts = [(solution, rewards.solution_reward(scores, neutral))]
            amounts += [(e, rewards.evaluation_reward(t, neutral)) for e, t in zip(evaluations, scores, strict=False)]
            amounts += [(s, rewards.scoring_reward(t)) for s, t in zip(scorings, scores, strict=True)]
        return [reply.earns(amount) for reply, amount in amounts if amount is not None]

    def _facts(self, q: str, played: list[Round], paid: list[list[Sample]]) -> dict[str, Any]:
        """What the learner does not see: the oracle's view, every agent's reward, what it cost."""
        replies = [reply for s, its, scored in played for reply in (s, *its, *scored)]
        solved = [
            next((p.reward for p in samples if p.reply is r[0]), None) for r, samples in zip(played, paid, strict=True)
        ]
        truths = [self.world.right(q, boxed(s.text)) for s, _, _ in played]
        discussed = [p for samples in paid for p in samples if p.role != "scoring"]  # scorings earn 0 or -1 by Eq. 8
        scores = [rewards.extract_score(s.text) for *_, scored in played for s in scored]
        if self.without == "scoring":
            scores = [rewards.extract_verdict(e.text) for _, its, _ in played for e in its]
        facts = {
            "question": q,
            "right": mean(truths),
            "right_first": mean(truths[: self.reuse]),
            "right_last": mean(truths[-self.reuse :]),
            "normalised": mean([p.reward for p in discussed]),
            "unreadable": mean([score is None for score in scores]),
            "interactions": len(replies),
            "tokens_in": sum(len(r.prompt_ids) for r in replies),
            "tokens_out": sum(len(r.ids) for r in replies),
            **rewards.confusion(solved, truths),
        }
        facts |= {f"normalised/{u}": mean([p.reward for p in discussed if p.policy == u]) for u in self.policies}
        known = [score for score in scores if score is not None]
        marks = {"judged_correct": True} if self.without == "scoring" else {f"score_{mark}": mark for mark in (1, 2, 3)}
        return facts | {name: mean([score == mark for score in known]) for name, mark in marks.items()}


def quoted(reply: Reply) -> str:
    """A reply as another agent reads it: it cannot close its own block, and a verdict in it is only words."""
    return BLOCK.sub(r"&lt;\1", MARK.sub("", reply.text))
