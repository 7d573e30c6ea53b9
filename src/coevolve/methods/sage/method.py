"""SAGE: Challenger, Planner, Solver and Critic around a verifier (Algorithm 1).

An episode is one pass of the algorithm's loop. The code reads replies, never tokens. The verifier
decides about answers, never the Critic.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from random import Random
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, NonNegativeFloat, PositiveInt

from coevolve.methods.base import Method, paper_table
from coevolve.methods.facts import as_float, mean_known, pool_levels
from coevolve.methods.format_reward import VERIFIER_TAGS
from coevolve.methods.sage import rewards, verifier
from coevolve.methods.sage.metrics import episode_metrics
from coevolve.methods.sage.records import (
    Challenge,
    EpisodeTrace,
    Plan,
    ProposedTask,
    Solution,
    Task,
)
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
SolverWeights = Annotated[
    tuple[Share, Share, Share], AfterValidator(check_sum), WEIGHTS
]


class SAGE(Method):
    """Self-evolving agents for generalised reasoning.

    The defaults are the paper's numbers, and each ablation is an argument.
    """

    paper_name: ClassVar[str] = "sage"
    filters: ClassVar[Mapping[str, str]] = {
        "quality gate": "kept",
        "verifier check": "checked",
        "plan gate": "plan_used",
    }

    PAPER_RUN_VALUES: ClassVar[Mapping[str, Any]] = paper_table("sage")

    PAPER_METHOD_VALUES: ClassVar[Mapping[str, Any]] = paper_table("sage", "printed")

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
        critic = partial(self.role, name="critic", temperature=self.critic_temperature)
        self.critic_question = critic("critic_question")
        self.critic_plan = critic("critic_plan")

    # Algorithm 1.

    def episode(self, rng: Random) -> Episode:
        """Play lines 4 to 26 of Algorithm 1 once.

        D holds what it held when the step began, and the task that this episode adds.
        """
        D = self.pools["tasks"].view()
        reference = Task(*D.sample(rng))  # 4
        proposal = yield self.propose(reference)  # 5
        challenge = yield from self.challenge(self.read_task(proposal.text))  # 6-9
        if self.may_enter_dataset(challenge):
            D.add(challenge.task)  # 10
        samples = [proposal.earns(self.challenger_reward(proposal, challenge))]  # 10-13

        tasks = [Task(*D.sample(rng)) for _ in range(self.solves)]  # 15
        plans = yield from self.plan([task.question for task in tasks])  # 15-17
        replies = yield list(map(self.solve, tasks, plans))  # 18-20
        solutions = []
        for task, plan, reply in zip(tasks, plans, replies, strict=True):
            correct = self.verify(task, reply)  # 22
            solutions.append(Solution(task, plan, reply, correct))

        trace = EpisodeTrace(reference, proposal, challenge, solutions)
        for plan in trace.plans:
            samples.append(plan.reply.earns(self.planner_reward(plan)))  # 23
        for solution in solutions:
            if solution.correct is not None:  # else the verifier could not score it
                reward = self.solver_reward(solution, solution.correct)
                samples.append(solution.reply.earns(reward))  # 24
        for judgement in trace.judgements:
            samples.append(judgement.earns(self.critic_reward(judgement)))  # 25
        trained = [sample for sample in samples if sample.role in self.train]  # 26
        return Outcome(trained, {"tasks": D.added}, trace)

    def propose(self, reference: Task) -> Turn:
        """Ask for a task like the reference (line 5, equation 3)."""
        return self.challenger(
            reference=reference.question,
            type=reference.kind,
            verifier=reference.verifier,
        )

    def read_task(self, text: str) -> ProposedTask:
        """Return the task in a proposal."""
        kind = tag(text, "type")
        verifier_tag = VERIFIER_TAGS.get(kind or "")
        return ProposedTask(
            question=tag(text, "question"),
            kind=kind if verifier_tag else None,
            verifier=tag(text, verifier_tag) if verifier_tag else None,
        )

    def challenge(self, task: ProposedTask) -> Dialogue[Challenge]:
        """Have a task judged and attempted, and decide whether to accept it (lines 6 to 9).

        A task without a question is not judged, and one without a valid verifier not attempted.
        """
        if task.question is None:
            return Challenge(task)
        complete_task = task.complete
        valid = complete_task is not None and self.can_judge(complete_task)  # 6
        attempt_turn = self.solver(question=task.question)
        judgement, *attempts = yield [
            self.critic_question(question=task.question),
            *[attempt_turn] * (self.attempts if valid else 0),
        ]
        quality = self.normalized_score(judgement)
        verified: list[float | None] = []
        if complete_task is not None:
            verified += [self.verify(complete_task, attempt) for attempt in attempts]
        return Challenge(
            task=task,
            quality=quality,
            valid=valid,
            accepted=valid and quality >= self.quality_threshold,  # 9
            judgement=judgement,
            attempts=tuple(attempts),
            difficulty=rewards.difficulty(verified),  # 8
        )

    def can_judge(self, task: Task) -> bool:
        """Whether a task's verifier can judge anything (line 6)."""
        if not self.verifier_check:
            return True
        return verifier.can_judge(self.world, task.kind, task.verifier)

    def may_enter_dataset(self, challenge: Challenge) -> bool:
        """Whether a task is accepted and its question not held out (line 10)."""
        question = challenge.task.question
        if question is None or not challenge.accepted:
            return False
        return not self.world.held_out(question)

    def plan(self, questions: Sequence[str]) -> Dialogue[list[Plan | None]]:
        """Ask for a plan per question and have those that parse judged (lines 15 to 17).

        A plan that does not parse scores 0. Without planning every plan is None.
        """
        if not self.planning:
            return [None] * len(questions)
        replies = yield [self.planner(question=question) for question in questions]
        texts = [tag(reply.text, "plan") for reply in replies]
        turns = []
        for question, text in zip(questions, texts, strict=True):
            if text is not None:
                turns.append(self.critic_plan(question=question, plan=text))
        judgements = iter((yield turns))  # 16
        plans: list[Plan | None] = []
        for reply, text in zip(replies, texts, strict=True):
            judgement = None if text is None else next(judgements)
            plans.append(self.gate_plan(reply, text, judgement))
        return plans

    def gate_plan(
        self, reply: Reply, text: str | None, judgement: Reply | None
    ) -> Plan:
        """Return a plan with its score, for the Solver to use from beta up (line 17)."""
        score = 0.0 if judgement is None else self.normalized_score(judgement)
        used = text if score >= self.plan_threshold else None
        return Plan(reply, text, judgement, score, used)

    def solve(self, task: Task, plan: Plan | None) -> Turn:
        """Ask for a solution, with a plan or without (lines 18 and 20)."""
        if plan is None or plan.used is None:
            return self.solver(question=task.question)
        return self.solver_planned(question=task.question, plan=plan.used)

    # The verifier.

    def verify(self, task: Task, reply: Reply) -> float | None:
        """Return V_gt of a reply: 1.0 or 0.0 in mathematics, the pass rate of a program's tests.

        0.0 for an answer that does not parse; None if the verifier could not tell.
        """
        question, kind, gold = task
        text = reply.text
        is_code = kind == "code"
        answer = self.read_answer(text) if is_code else tag(text, "answer")
        if answer is None:
            return 0.0
        if is_code:
            return verifier.pass_rate(self.world, question, answer, gold)
        return as_float(verify.verify(self.world.grading, answer, gold).correct)

    def read_answer(self, text: str) -> str | None:
        """Return the content of a reply's answer pair, or else of its ```python block."""
        answer = tag(text, "answer")
        return code_block(text) if answer is None else answer

    # Rewards.

    def challenger_reward(self, proposal: Reply, challenge: Challenge) -> float:
        """Return the reward of lines 10 to 13 (equations 5 and 6)."""
        verifier_tag = VERIFIER_TAGS.get(challenge.task.kind or "", "answer")
        return rewards.challenger_reward(
            challenge.quality,
            challenge.difficulty if challenge.accepted else None,
            self.format_term(proposal, "question", "type", verifier_tag),
        )

    def planner_reward(self, plan: Plan) -> float:
        """Return the reward of line 23 (equation 8)."""
        r_f = self.format_term(plan.reply, "plan")
        return rewards.planner_reward(plan.score, r_f, self.plan_weights)

    def solver_reward(self, solution: Solution, s_gt: float) -> float:
        """Return the reward of line 24 (equation 11) for the verified correctness s_gt.

        A program in its block is well formed without answer tags.
        """
        text = solution.reply.text
        plan = solution.plan
        if solution.task.kind == "code" and code_block(text) is not None:
            r_f = 1.0
        else:
            r_f = self.format_term(solution.reply, "answer")
        s_p = None if plan is None else rewards.gated(plan.score, self.plan_threshold)
        return rewards.solver_reward(s_p, s_gt, r_f, self.solver_weights)

    def critic_reward(self, judgement: Reply) -> float:
        """Return the reward of line 25 (equation 13)."""
        return self.format_term(judgement, "score")

    def normalized_score(self, judgement: Reply) -> float:
        """Return the Critic's score of a judgement in [0, 1] (equation 2)."""
        return rewards.norm(score_value(judgement.text), self.literal_norm)

    def format_term(self, reply: Reply, *tags: str) -> float:
        """Return r_f of a reply that requires these tags (section 4.1)."""
        return rewards.format_reward(reply.text, tags, self.empty_format)

    # What grows, and what is recorded.

    @cached_property
    def pools(self) -> dict[str, Pool]:
        """The dataset D of (question, kind, verifier)."""
        return {"tasks": Pool(self.world.verifiable_tasks())}

    def measure(self) -> dict[str, float | None]:
        """Return the oracle's fractions of D: ill-formed, of level 3, and of unsound verifiers."""
        tasks = [Task(*item) for item in self.pools["tasks"].items]
        metrics = pool_levels(self.world, [task.question for task in tasks])
        verdicts = [self.world.sound(*task) for task in tasks]
        unsound = [not sound for sound in verdicts if sound is not None]
        metrics["pool_unsound"] = mean_known(unsound)
        return metrics

    def observe(self, outcome: Outcome, world: World) -> dict[str, Any]:
        """Return how each role did, by the verifier and by the oracle."""
        return episode_metrics(
            outcome.trace, world, self.read_answer, self.verifier_check
        )
