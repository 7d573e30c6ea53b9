"""SAGE: Challenger, Planner, Solver and Critic around a verifier (Algorithm 1 of the paper, one pass an episode).

Straight-line text code: reads replies, never tokens; what decides about answers is the verifier, never the Critic.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from random import Random
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, NonNegativeFloat, PositiveInt

from coevolve.methods.base import Method, paper_table
from coevolve.methods.facts import as_float, mean_known, pool_levels
from coevolve.methods.format_reward import KINDS
from coevolve.methods.sage import rewards, verifier
from coevolve.methods.sage.metrics import facts_of
from coevolve.methods.sage.records import Challenge, Plan, Played, Task
from coevolve.rollout.pools import Pool
from coevolve.text import verify
from coevolve.text.parse import code_block, score_value, tag
from coevolve.types import Dialogue, Episode, Outcome, Reply, Turn
from coevolve.validation import Allowed, Share
from coevolve.worlds import World

Roles = tuple[Literal["challenger", "planner", "solver", "critic"], ...]


def check_sum(weights: tuple[float, ...]) -> tuple[float, ...]:
    """Raise ValueError unless the weights sum to 1."""
    if abs(sum(weights) - 1) > 1e-6:
        raise ValueError("the weights do not sum to 1")
    return weights


WEIGHTS = Allowed("a weight of at least 0 for each term, 1 in total")
PlanWeights = Annotated[tuple[Share, Share], AfterValidator(check_sum), WEIGHTS]
SolverWeights = Annotated[tuple[Share, Share, Share], AfterValidator(check_sum), WEIGHTS]


class SAGE(Method):
    """Self-evolving agents for generalised reasoning. The defaults are the paper's numbers; ablations are arguments."""

    paper_name: ClassVar[str] = "sage"
    gates: ClassVar[Mapping[str, str]] = {
        "quality gate": "kept",
        "verifier check": "checked",
        "plan gate": "plan_used",
    }

    TRAINING: ClassVar[Mapping[str, Any]] = paper_table("sage")

    PAPER: ClassVar[Mapping[str, Any]] = paper_table("sage", "printed")

    attempts: PositiveInt = 5
    """N_s of equation 4, which the paper does not print."""

    solves: PositiveInt = 1
    """How often an episode runs lines 15 to 24; the paper's batch has one per challenge."""

    quality_threshold: Share = 0.7
    """alpha (section 4.2); 0 accepts every question."""

    plan_threshold: Share = 0.3
    """beta (section 4.3); 0 gives every plan to the Solver."""

    verifier_check: bool = True
    """Whether a verifier is tried out (line 9); False: one that merely parses counts as valid."""

    planning: bool = True
    """False: no Planner, and the rewards of the fall-back in section 4.4."""

    train: Roles = ("challenger", "planner", "solver", "critic")
    """The roles that are trained; leave one out: Table 3 (not in the paper: the Planner)."""

    plan_weights: PlanWeights = (0.5, 0.5)
    """lambda_plan and lambda_f of equation 8."""

    solver_weights: SolverWeights = (0.2, 0.6, 0.2)
    """w_p, w_c and w_f of equation 11."""

    literal_norm: bool = False
    """True: equation 2 as printed, which maps the worst grade 1 to 1.0."""

    empty_format: Share = 0.5
    """r_f of an output without text (section 4.1); 0.0 does not reward silence."""

    critic_temperature: NonNegativeFloat | None = 0.1
    """Sampling temperature of the Critic (Table 4); None: the run's."""

    def define_roles(self) -> None:
        """Make the Challenger, the Planner, the Solver with and without a plan, and the Critic."""
        self.challenger = self.role("challenger")
        self.planner = self.role("planner")
        self.solver = self.role("solver_unplanned", "solver")
        self.solver_planned = self.role("solver")
        temperature = self.critic_temperature
        self.critic_question = self.role("critic_question", "critic", temperature=temperature)
        self.critic_plan = self.role("critic_plan", "critic", temperature=temperature)

    def episode(self, rng: Random) -> Episode:
        """Play lines 4 to 26 of Algorithm 1 once; D is read as it stood when the step began."""
        D = self.pools["tasks"].view()
        reference, kind, gold = D.sample(rng)  # 4
        proposal = yield self.challenger(reference=reference, type=kind, verifier=gold)  # 5
        challenge = yield from self.challenge(self.read_task(proposal.text))  # 6-9
        question, _, _ = challenge.task
        if question is not None and challenge.accepted and not self.world.held_out(question):
            D.add(challenge.task)  # 10
        samples = [proposal.earns(self.challenger_reward(proposal, challenge))]  # 10-13

        drawn = [D.sample(rng) for _ in range(self.solves)]  # 15
        plans = yield from self.plan([question for question, *_ in drawn])  # 15-16
        replies = yield [self.solve(task, plan) for task, plan in zip(drawn, plans, strict=True)]  # 17-20
        correct = [self.verify(task, reply) for task, reply in zip(drawn, replies, strict=True)]  # 22
        judged = [*challenge.judged, *(plan.verdict for plan in plans if plan and plan.verdict)]

        samples += [plan.reply.earns(self.planner_reward(plan)) for plan in plans if plan]  # 23
        samples += [
            reply.earns(self.solver_reward(reply, task, plan, s_gt))
            for task, plan, reply, s_gt in zip(drawn, plans, replies, correct, strict=True)
            if s_gt is not None  # what the verifier could not score is not trained on
        ]  # 24
        samples += [reply.earns(self._format(reply, "score")) for reply in judged]  # 25, equation 13
        played = Played(reference, proposal, challenge, drawn, plans, replies, correct, judged)
        earned = [sample for sample in samples if sample.role in self.train]  # 26
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
        valid = kind is not None and gold is not None and self.judges(kind, gold)  # 6
        tries: list[Turn] = [self.solver(question=question)] * self.attempts if valid else []
        verdict, *attempts = yield [self.critic_question(question=question), *tries]
        quality = self._norm(verdict)
        difficulty = rewards.difficulty([self.verify(task, attempt) for attempt in attempts])  # 8
        accepted = valid and quality >= self.quality_threshold  # 9
        return Challenge(task, quality, valid, accepted, (verdict,), tuple(attempts), difficulty)

    def judges(self, kind: str, gold: str) -> bool:
        """Whether a task's verifier can judge anything (line 6)."""
        return not self.verifier_check or verifier.valid(kind, gold, self.world.grading)

    def plan(self, questions: Sequence[str]) -> Dialogue[list[Plan | None]]:
        """Lines 15 and 16: ask for a plan per question and have it judged; one that does not parse scores 0."""
        if not self.planning:
            return [None] * len(questions)
        replies = yield [self.planner(question=question) for question in questions]
        texts = [tag(reply.text, "plan") for reply in replies]
        pairs = zip(questions, texts, strict=True)
        verdicts = iter((yield [self.critic_plan(question=q, plan=text) for q, text in pairs if text is not None]))
        plans: list[Plan | None] = []
        for reply, text in zip(replies, texts, strict=True):
            verdict = None if text is None else next(verdicts)
            score = 0.0 if verdict is None else self._norm(verdict)
            plans.append(Plan(reply, text, verdict, score, text if score >= self.plan_threshold else None))  # 17
        return plans

    def solve(self, task: tuple[str, str, str], plan: Plan | None) -> Turn:
        """Lines 18 and 20: ask for a solution, with a plan or without."""
        if plan is None or plan.used is None:
            return self.solver(question=task[0])
        return self.solver_planned(question=task[0], plan=plan.used)

    def verify(self, task: Task, reply: Reply) -> float | None:
        """V_gt of a reply to a task: right or wrong in mathematics, the share of tests passed for a program.

        None when the verifier could not tell; an answer that does not parse is wrong.
        """
        question, kind, gold = (part or "" for part in task)  # a task that is verified has all three
        answer = self.read_answer(reply.text) if kind == "code" else tag(reply.text, "answer")
        if answer is None:
            return 0.0
        if kind == "code":
            return verifier.tested(self.world.program(question, answer), gold)
        return as_float(verify.verify(self.world.grading, answer, gold).correct)

    def read_answer(self, text: str) -> str | None:
        """What a reply answers: the content of its answer pair, or without one the program in its ```python block."""
        answer = tag(text, "answer")
        return code_block(text) if answer is None else answer

    def challenger_reward(self, proposal: Reply, challenge: Challenge) -> float:
        """Lines 10 to 13, equations 5 and 6."""
        _, kind, _ = challenge.task
        r_f = self._format(proposal, "question", "type", KINDS.get(kind or "", "answer"))
        return rewards.challenger_reward(challenge.quality, challenge.difficulty if challenge.accepted else None, r_f)

    def planner_reward(self, plan: Plan) -> float:
        """Line 23, equation 8."""
        return rewards.planner_reward(plan.score, self._format(plan.reply, "plan"), self.plan_weights)

    def solver_reward(self, reply: Reply, task: Task, plan: Plan | None, s_gt: float) -> float:
        """Line 24, equation 11; a program in its block is well formed without answer tags."""
        in_block = task[1] == "code" and code_block(reply.text) is not None
        r_f = 1.0 if in_block else self._format(reply, "answer")
        gated = None if plan is None else rewards.gated(plan.score, self.plan_threshold)
        return rewards.solver_reward(gated, s_gt, r_f, self.solver_weights)

    def _norm(self, verdict: Reply) -> float:
        return rewards.norm(score_value(verdict.text), self.literal_norm)

    def _format(self, reply: Reply, *tags: str) -> float:
        return rewards.format_reward(reply.text, tags, self.empty_format)

    @cached_property
    def pools(self) -> dict[str, Pool]:
        """The dataset D of (question, kind, verifier)."""
        return {"tasks": Pool(self.world.verifiable_tasks())}

    def measure(self) -> dict[str, float | None]:
        """What the oracle says about D: shares of ill-formed questions, unsound verifiers, and level 3."""
        items = self.pools["tasks"].items
        sound = [self.world.sound(*task) for task in items]
        levels = pool_levels(self.world, [question for question, *_ in items])
        return {**levels, "pool_unsound": mean_known([not s for s in sound if s is not None])}

    def observe(self, outcome: Outcome, world: World) -> dict[str, Any]:
        """How each role did, by the verifier and by the oracle."""
        return facts_of(self, outcome.trace, world)
