"""SAGE: Challenger, Planner, Solver and Critic around a verifier (Algorithm 1 of the paper, one pass an episode).

Straight-line text code: reads replies, never tokens; what decides about answers is the verifier, never the Critic.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt

from coevolve import verify
from coevolve.method import Method, training
from coevolve.papers.sage import rewards, verifier
from coevolve.papers.sage.observed import facts_of
from coevolve.papers.sage.rewards import KINDS
from coevolve.parse import code_block, score_value, tag
from coevolve.pools import Pool
from coevolve.shares import mean, number
from coevolve.types import Dialogue, Episode, Outcome, Reply, Turn
from coevolve.worlds import World

Roles = tuple[Literal["challenger", "planner", "solver", "critic"], ...]
Share = Annotated[float, Field(ge=0, le=1)]
Task = tuple[str | None, str | None, str | None]  # question, kind, verifier: a gold answer or tests


@dataclass(frozen=True)
class Challenge:
    """A proposed task and what the Critic, the verifier and the Solver's attempts say about it (lines 5 to 9)."""

    task: Task
    quality: float = 0.0  # s_q
    valid: bool = False  # whether the verifier can judge anything
    accepted: bool = False
    judged: tuple[Reply, ...] = ()  # what the Critic said
    attempts: tuple[Reply, ...] = ()
    difficulty: float | None = None  # r_d; None: no attempt could be scored

    @property
    def question(self) -> str | None:
        """The question; None where the proposal does not parse."""
        return self.task[0]


@dataclass(frozen=True)
class Plan:
    """What the Planner said about a question; nothing at all in a run without planning."""

    reply: Reply | None = None
    text: str | None = None  # None: it does not parse
    score: float | None = None  # s_p; 0.0 where it does not parse, None without planning
    verdict: Reply | None = None  # what the Critic said


@dataclass(frozen=True)
class Played:
    """One pass of the loop, for `SAGE.observe`."""

    reference: str
    proposal: Reply
    challenge: Challenge
    r_challenger: float
    drawn: list[tuple[str, str, str]]
    plans: list[Plan]
    replies: list[Reply]
    correct: list[float | None]
    judged: list[Reply]


@dataclass(kw_only=True)
class SAGE(Method):
    """Self-evolving agents for generalised reasoning. The defaults are the paper's numbers; ablations are arguments."""

    paper: ClassVar[str] = "sage"

    TRAINING: ClassVar[Mapping[str, Any]] = training("sage")

    PAPER: ClassVar[dict[str, Any]] = {"lora": (128, 256, 0.95), "literal_norm": True}  # printed; ours is another

    attempts: PositiveInt = 5  # N_s of equation 4, not printed in the paper
    solves: PositiveInt = 1  # how often an episode runs lines 15 to 24; the paper's batch has one per challenge
    quality_threshold: Share = 0.7  # alpha (section 4.2); 0 lets every question in
    plan_threshold: Share = 0.3  # beta (section 4.3); 0 hands every plan to the Solver
    verifier_check: bool = True  # False: a verifier that merely parses counts as valid (line 9)
    planning: bool = True  # False: no Planner at all, and the rewards of section 4.4's fall-back
    train: Roles = (
        "challenger",
        "planner",
        "solver",
        "critic",
    )  # leave one out: Table 3, and the Planner's row that it lacks
    plan_weights: tuple[float, ...] = (0.5, 0.5)  # lambda_plan, lambda_f of equation 8
    solver_weights: tuple[float, ...] = (0.2, 0.6, 0.2)  # w_p, w_c, w_f of equation 11
    literal_norm: bool = False  # True: equation 2 as printed, which maps the worst grade 1 to 1.0
    empty_format: Share = 0.5  # r_f of an output without text (section 4.1); 0.0 does not pay silence
    critic_temperature: NonNegativeFloat | None = 0.1  # Table 4; None: as everybody else

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, weights, count in (
            ("plan_weights", self.plan_weights, 2),
            ("solver_weights", self.solver_weights, 3),
        ):
            if len(weights) != count or min(weights) < 0 or abs(sum(weights) - 1) > 1e-6:
                raise ValueError(f"{name} must be {count} numbers from 0 that add up to 1, got {list(weights)}")
        self.challenger = self.role("challenger")
        self.planner = self.role("planner")
        self.solver = self.role("solver_unplanned", "solver")
        self.solver_planned = self.role("solver")
        self.critic_question = self.role("critic_question", "critic", temperature=self.critic_temperature)
        self.critic_plan = self.role("critic_plan", "critic", temperature=self.critic_temperature)

    def episode(self, rng: Random) -> Episode:
        """Play lines 4 to 26 of Algorithm 1 once; D is read as it stood when the step began."""
        D = self.tasks.view()
        reference, kind, gold = D.sample(rng)  # 4
        proposal = yield self.challenger(reference=reference, type=kind, verifier=gold)  # 5
        challenge = yield from self.challenge(self.read_task(proposal.text))  # 6-9
        question = challenge.question
        if question is not None and challenge.accepted and not self.world.held_out(question):
            D.add(challenge.task)  # 10
        r_challenger = self.challenger_reward(proposal, challenge)  # 10-13

        drawn = [D.sample(rng) for _ in range(self.solves)]  # 15
        plans = yield from self.plan([question for question, *_ in drawn])  # 15-16
        replies = yield [self.solve(task, plan) for task, plan in zip(drawn, plans, strict=True)]  # 17-20
        correct = [self.verify(task, reply) for task, reply in zip(drawn, replies, strict=True)]  # 22
        judged = [*challenge.judged, *(plan.verdict for plan in plans if plan.verdict is not None)]

        samples = [proposal.earns(r_challenger)]  # 26: what each role earned
        samples += [
            plan.reply.earns(self.planner_reward(plan.reply, plan.score))
            for plan in plans
            if plan.reply is not None and plan.score is not None
        ]  # 23
        samples += [
            reply.earns(self.solver_reward(reply, task, plan, s_gt))
            for task, plan, reply, s_gt in zip(drawn, plans, replies, correct, strict=True)
            if s_gt is not None  # what the verifier could not score is not trained on
        ]  # 24
        samples += [reply.earns(rewards.critic_reward(self._format(reply, "score"))) for reply in judged]  # 25
        played = Played(reference, proposal, challenge, r_challenger, drawn, plans, replies, correct, judged)
        earned = [sample for sample in samples if sample.role in self.train]
        return Outcome(earned, {"tasks": D.added}, played)

    def read_task(self, text: str) -> Task:
        """What a proposal holds: question, kind and verifier, each None where it does not parse."""
        kind = tag(text, "type")
        kind = kind if kind in KINDS else None
        return tag(text, "question"), kind, tag(text, KINDS[kind]) if kind else None

    def challenge(self, task: Task) -> Dialogue[Challenge]:
        """Lines 6 to 9: have a task judged and attempted, and decide whether it enters the dataset."""
        question, kind, gold = task
        if question is None:  # nothing to judge: no quality, no attempts
            return Challenge(task)
        valid = self.judges(kind, gold)
        tries: list[Turn] = [self.solver(question=question)] * self.attempts if valid else []
        verdict, *attempts = yield [self.critic_question(question=question), *tries]
        quality = self._norm(verdict)
        difficulty = rewards.difficulty([self.verify(task, attempt) for attempt in attempts])  # 8
        accepted = valid and quality >= self.quality_threshold  # 9
        return Challenge(task, quality, valid, accepted, (verdict,), tuple(attempts), difficulty)

    def judges(self, kind: str | None, gold: str | None) -> bool:
        """Whether a task's verifier can judge anything (line 6)."""
        if kind is None or gold is None:
            return False
        return not self.verifier_check or verifier.valid(kind, gold, self.world.grading)

    def plan(self, questions: Sequence[str]) -> Dialogue[list[Plan]]:
        """Lines 15 and 16: ask for a plan per question and have it judged; one that does not parse scores 0."""
        if not self.planning:
            return [Plan()] * len(questions)
        replies = yield [self.planner(question=question) for question in questions]
        texts = [tag(reply.text, "plan") for reply in replies]
        pairs = zip(questions, texts, strict=True)
        asked: list[Turn] = [self.critic_plan(question=q, plan=text) for q, text in pairs if text is not None]
        verdicts = iter((yield asked) if asked else [])  # an episode may not yield an empty list
        plans = []
        for reply, text in zip(replies, texts, strict=True):
            verdict = None if text is None else next(verdicts)
            plans.append(Plan(reply, text, 0.0 if verdict is None else self._norm(verdict), verdict))
        return plans

    def used(self, plan: Plan) -> str | None:
        """The plan that the Solver reads; None for one below the threshold (line 17)."""
        return plan.text if plan.score is not None and plan.score >= self.plan_threshold else None

    def solve(self, task: tuple[str, str, str], plan: Plan) -> Turn:
        """Lines 18 and 20: ask for a solution, with a plan or without."""
        text = self.used(plan)
        return self.solver(question=task[0]) if text is None else self.solver_planned(question=task[0], plan=text)

    def verify(self, task: Task, reply: Reply) -> float | None:
        """V_gt of a reply to a task: right or wrong in mathematics, the share of tests passed for a program.

        None when the verifier could not tell; an answer that does not parse is wrong.
        """
        question, kind, gold = task
        answer = self.read_answer(reply.text) if kind == "code" else tag(reply.text, "answer")
        if answer is None:
            return 0.0
        if kind == "code" and question is not None and gold is not None:
            return verifier.tested(self.world.program(question, answer), gold)
        return number(verify.verify(self.world.grading, answer, gold).correct)

    def read_answer(self, text: str) -> str | None:
        """What a reply answers: the content of its answer pair, or without one the program in its ```python block."""
        answer = tag(text, "answer")
        return code_block(text) if answer is None else answer

    def challenger_reward(self, proposal: Reply, challenge: Challenge) -> float:
        """Lines 10 to 13, equations 5 and 6."""
        _, kind, _ = challenge.task
        r_f = self._format(proposal, "question", "type", KINDS.get(kind or "", "answer"))
        return rewards.challenger_reward(challenge.quality, challenge.difficulty if challenge.accepted else None, r_f)

    def planner_reward(self, reply: Reply, score: float) -> float:
        """Line 23, equation 8."""
        return rewards.planner_reward(score, self._format(reply, "plan"), self.plan_weights)

    def solver_reward(self, reply: Reply, task: Task, plan: Plan, s_gt: float) -> float:
        """Line 24, equation 11; a program in its block is well formed without answer tags."""
        in_block = task[1] == "code" and code_block(reply.text) is not None
        r_f = 1.0 if in_block else self._format(reply, "answer")
        gated = None if plan.score is None else rewards.gated(plan.score, self.plan_threshold)
        return rewards.solver_reward(gated, s_gt, r_f, self.solver_weights)

    def _norm(self, verdict: Reply) -> float:
        return rewards.norm(score_value(verdict.text), self.literal_norm)

    def _format(self, reply: Reply, *tags: str) -> float:
        return rewards.format_reward(reply.text, tags, self.empty_format)

    @cached_property
    def tasks(self) -> Pool:
        """The dataset D."""
        return Pool(self.world.tasks())

    @property
    def pools(self) -> dict[str, Pool]:
        """The dataset D of (question, kind, verifier)."""
        return {"tasks": self.tasks}

    def measure(self) -> dict[str, float | None]:
        """What the oracle says about D: shares of ill-formed questions, unsound verifiers, code, and level 3."""
        items = self.tasks.items
        levels = [self.world.level(question) for question, *_ in items]
        known = [level for level in levels if level is not None]
        sound = [self.world.sound(*task) for task in items]
        return {
            "pool_ill_formed": 1 - len(known) / len(items),
            "pool_level_3": mean([n == 3 for n in known]),
            "pool_unsound": mean([not s for s in sound if s is not None]),
            "pool_code": mean([kind == "code" for _, kind, _ in items]),
        }

    def observe(self, outcome: Outcome, world: World) -> dict[str, Any]:
        """How each role did, by the verifier and by the oracle."""
        return facts_of(self, outcome.trace, world)
