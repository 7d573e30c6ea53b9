"""SAGE: Challenger, Planner, Solver and Critic around a verifier (Algorithm 1 of the paper, one pass an episode).

Straight-line text code: reads replies, never tokens; what decides about answers is the verifier, never the Critic.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from random import Random
from typing import Any, ClassVar

from codesandbox.code import run_tests
from coevolve import verify
from coevolve.checks import among, at_least
from coevolve.method import Method
from coevolve.papers.sage import rewards as rewards
from coevolve.papers.sage.rewards import KINDS
from coevolve.parse import code_block, score_value, tag
from coevolve.pools import Pool
from coevolve.shares import agrees, mean, number
from coevolve.types import Episode, Outcome, Reply
from coevolve.worlds import World
from tinyworld.oracle import TinyWorld

ROLES = ("challenger", "planner", "solver", "critic")
Task = tuple[str | None, str | None, str | None]  # question, kind, verifier: a gold answer or tests


@dataclass(kw_only=True)
class SAGE(Method):
    """Self-evolving agents for generalised reasoning. The defaults are the paper's numbers; ablations are arguments."""

    PROMPTS: ClassVar[str] = "sage"

    TRAINING: ClassVar[dict[str, Any]] = {  # Table 4; loss and clip as verl has them, which the paper builds on
        "steps": 200,
        "batch_size": 128,
        "learning_rate": 3e-6,
        "temperature": 0.6,
        "max_tokens": 8192,
        "lora": (128, 256, 0.05),  # the table prints a dropout of 0.95, which leaves one number in twenty: read as 0.05
        "loss": "ppo",
        "clip": (0.2, 0.2),
        "entropy_coef": 0.0,
        "length_norm": "token_mean",
    }

    PAPER: ClassVar[dict[str, Any]] = {  # what is printed where our default is another
        "lora": (128, 256, 0.95),
        "literal_norm": True,
    }

    attempts: int = 5  # N_s of equation 4, not printed in the paper
    solves: int = 1  # how often an episode runs lines 15 to 24; the paper's batch has one per challenge
    quality_threshold: float = 0.7  # alpha (section 4.2); 0 lets every question in
    plan_threshold: float = 0.3  # beta (section 4.3); 0 hands every plan to the Solver
    verifier_check: bool = True  # False: a verifier that merely parses counts as valid (line 9)
    planning: bool = True  # False: no Planner at all, and the rewards of section 4.4's fall-back
    train: tuple[str, ...] = ROLES  # leave one out: Table 3, and the Planner's row that it lacks
    plan_weights: tuple[float, ...] = (0.5, 0.5)  # lambda_plan, lambda_f of equation 8
    solver_weights: tuple[float, ...] = (0.2, 0.6, 0.2)  # w_p, w_c, w_f of equation 11
    literal_norm: bool = False  # True: equation 2 as printed, which maps the worst grade 1 to 1.0
    empty_format: float = 0.5  # r_f of an output without text (section 4.1); 0.0 does not pay silence
    critic_temperature: float | None = 0.1  # Table 4; None: as everybody else
    estimator: str = "task_relative"  # equation 1: Task-Relative REINFORCE++; or token_whiten
    prompt: str = "compact"  # full for real models
    prompt_folder: str | None = None  # a folder with your own prompts of the same names
    world: World = field(default_factory=TinyWorld, repr=False)

    def __post_init__(self) -> None:
        self._check()
        self.challenger = self._role("challenger")
        self.planner = self._role("planner")
        self.solver = self._role("solver_unplanned", "solver")
        self.solver_planned = self._role("solver")
        self.critic_question = self._role("critic_question", "critic", temperature=self.critic_temperature)
        self.critic_plan = self._role("critic_plan", "critic", temperature=self.critic_temperature)

    @cached_property
    def tasks(self) -> Pool:
        """The dataset D."""
        return Pool(self.world.tasks())

    def _check(self) -> None:
        for role in self.train:
            among("train", role, ROLES)
        at_least(self, attempts=1, solves=1, critic_temperature=0)
        for name in ("quality_threshold", "plan_threshold", "empty_format"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie in [0, 1], got {getattr(self, name)}")
        for name, count in (("plan_weights", 2), ("solver_weights", 3)):
            weights = getattr(self, name)
            if len(weights) != count or min(weights) < 0 or abs(sum(weights) - 1) > 1e-6:
                raise ValueError(f"{name} must be {count} numbers from 0 that add up to 1, got {list(weights)}")

    @property
    def pools(self) -> dict[str, Pool]:
        """The dataset D of (question, kind, verifier), by the name that outcomes add under."""
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

    def episode(self, rng: Random) -> Episode:
        """Play lines 4 to 26 of Algorithm 1 once; D is read as it stood when the step began."""
        D = self.tasks.view()
        reference = D.sample(rng)  # 4
        proposal = yield self.challenger(**dict(zip(("reference", "type", "verifier"), reference, strict=True)))  # 5
        task = question, kind, verifier = self._read(proposal.text)
        s_q, valid, judged, attempts = yield from self._assess(task)  # 6-7
        successes = [self._verify(task, attempt) for attempt in attempts]
        r_d = rewards.difficulty(successes)  # 8
        accepted = valid and s_q >= self.quality_threshold  # 9
        if accepted and not self.world.held_out(question):
            D.add(task)  # 10
        r_f = self._format(proposal, "question", "type", KINDS.get(kind, "answer"))
        r_c = rewards.challenger_reward(s_q, r_d if accepted else None, r_f)  # 10-13

        drawn = [D.sample(rng) for _ in range(self.solves)]  # 15
        plans, scores = yield from self._plan([q for q, *_ in drawn], judged)  # 15-16
        texts = [
            tag(plan.text, "plan") if s_p is not None and s_p >= self.plan_threshold else None
            for plan, s_p in zip(plans, scores, strict=True)
        ]  # 17
        replies = yield [
            self.solver(question=q) if p is None else self.solver_planned(question=q, plan=p)
            for (q, *_), p in zip(drawn, texts, strict=True)
        ]  # 18, 20
        correct = [self._verify(t, reply) for t, reply in zip(drawn, replies, strict=True)]  # 22
        samples = [("challenger", proposal, r_c)]  # 26: what each role earned
        samples += [
            ("planner", plan, self._planner_reward(plan, s_p))
            for plan, s_p in zip(plans, scores, strict=True)
            if plan is not None
        ]  # 23
        samples += [
            ("solver", reply, self._solver_reward(reply, t[1], s_p, s_gt))
            for t, reply, s_p, s_gt in zip(drawn, replies, scores, correct, strict=True)
            if s_gt is not None
        ]  # 24; what the verifier could not score is not trained on
        samples += [("critic", reply, rewards.critic_reward(self._format(reply, "score"))) for reply in judged]  # 25
        facts = {"accepted": float(accepted), "reward_challenger": r_c, "proposal": question, "reference": reference[0]}
        facts |= self._challenge_facts(task, s_q, valid, judged, attempts, r_d)
        facts |= self._solve_facts(drawn, plans, scores, texts, replies, correct)
        facts |= self._speech_facts([proposal, *judged, *attempts, *filter(None, plans), *replies], judged)
        earned = [reply.earns(reward) for role, reply, reward in samples if role in self.train]
        return Outcome(earned, facts, {"tasks": D.added})

    def _read(self, text: str) -> Task:
        """What a proposal holds: question, kind and verifier, each None where it does not parse."""
        kind = tag(text, "type")
        kind = kind if kind in KINDS else None
        return tag(text, "question"), kind, tag(text, KINDS[kind]) if kind else None

    def _assess(self, task: Task) -> Episode:
        """Lines 6-7: return quality, whether the verifier is valid, what the Critic said, and the attempts."""
        question, kind, verifier = task
        if question is None:  # nothing to judge: no quality, no attempts
            return 0.0, False, [], []
        valid = verifier is not None and (not self.verifier_check or _valid(kind, verifier, self.world.grading))
        tries = [self.solver(question=question)] * self.attempts if valid else []
        verdict, *attempts = yield [self.critic_question(question=question), *tries]
        return self._norm(verdict), valid, [verdict], attempts

    def _plan(self, questions: Sequence[str], judged: list[Reply]) -> Episode:
        """Lines 15-16: return a plan and its score per question; what the Critic says is put into `judged`.

        A plan that does not parse is not judged and scores 0. Without planning there is neither plan nor score.
        """
        if not self.planning:
            return [None] * len(questions), [None] * len(questions)
        plans = yield [self.planner(question=q) for q in questions]
        texts = [tag(plan.text, "plan") for plan in plans]
        asked = [self.critic_plan(question=q, plan=p) for q, p in zip(questions, texts, strict=True) if p is not None]
        verdicts = (yield asked) if asked else []  # an episode may not yield an empty list
        judged += verdicts
        left = iter(verdicts)
        return plans, [0.0 if p is None else self._norm(next(left)) for p in texts]

    def _norm(self, verdict: Reply) -> float:
        return rewards.norm(score_value(verdict.text), self.literal_norm)

    def _verify(self, task: Task, reply: Reply) -> float | None:
        """V_gt of a reply to a task: right or wrong in mathematics, the share of tests passed for a program.

        None when the verifier could not tell; an answer that does not parse is wrong.
        """
        question, kind, verifier = task
        answer = self.read(reply.text) if kind == "code" else tag(reply.text, "answer")
        if answer is None:
            return 0.0
        if kind == "code":
            return _tested(self.world.program(question, answer), verifier)
        return number(verify.verify(self.world.grading, answer, verifier).correct)

    @staticmethod
    def read(text: str) -> str | None:
        """What a reply answers: the content of its answer pair, or without one the program in its ```python block."""
        answer = tag(text, "answer")
        return code_block(text) if answer is None else answer

    def _format(self, reply: Reply, *tags: str) -> float:
        return rewards.format_reward(reply.text, tags, self.empty_format)

    def _planner_reward(self, plan: Reply, s_p: float) -> float:
        return rewards.planner_reward(s_p, self._format(plan, "plan"), self.plan_weights)

    def _solver_reward(self, reply: Reply, kind: str, s_p: float | None, s_gt: float) -> float:
        in_block = kind == "code" and code_block(reply.text) is not None
        r_f = 1.0 if in_block else self._format(reply, "answer")
        gated = None if s_p is None else rewards.gated(s_p, self.plan_threshold)
        return rewards.solver_reward(gated, s_gt, r_f, self.solver_weights)

    def _challenge_facts(
        self, task: Task, s_q: float, valid: bool, judged: list[Reply], attempts: list[Reply], r_d: float | None
    ) -> dict[str, Any]:
        """What a challenge is worth, and what the oracle says about it."""
        question, kind, verifier = task
        if question is None:
            return {"parsed": 0.0, "verifier_valid": 0.0}
        well_formed = self.world.valid(question)
        solved = mean([self.world.right(question, self.read(attempt.text)) for attempt in attempts])
        return {
            "parsed": 1.0,
            "verifier_valid": float(valid),
            "quality": s_q,
            "difficulty": r_d,
            "kind": kind,
            "true_difficulty": None if solved is None else 1 - solved,
            "valid": number(well_formed),
            "level": self.world.level(question),
            "critic_question_right": agrees(s_q, well_formed),
            "gold_right": None if verifier is None else number(self.world.sound(question, kind, verifier)),
        }

    def _solve_facts(
        self, drawn: list[Task], plans: list, scores: list, texts: list, replies: list[Reply], correct: list
    ) -> dict[str, Any]:
        """How planning and solving went, by the verifier and by the oracle."""
        answers = [self.read(reply.text) for reply in replies]
        truths = [self.world.right(q, answer) for (q, *_), answer in zip(drawn, answers, strict=True)]
        proposed = [
            (q, tag(plan.text, "plan"), s_p)
            for (q, *_), plan, s_p in zip(drawn, plans, scores, strict=True)
            if plan is not None
        ]
        fits = [(None if p is None else self.world.fits(q, p), s_p) for q, p, s_p in proposed]
        return {
            "plan_quality": mean(scores),
            "plan_right": mean([fit for fit, _ in fits]),
            "plan_used": mean([text is not None for text in texts]) if plans[0] else None,
            "critic_plan_right": mean([agrees(s_p, fit) for fit, s_p in fits]),
            "answered": mean([answer is not None for answer in answers]),
            "verified": mean(correct),
            "right": mean(truths),
            "unscored": mean([value is None for value in correct]),
            "verifier_right": mean(
                [agrees(value, truth) for value, truth in zip(correct, truths, strict=True) if value is not None]
            ),
        }

    def _speech_facts(self, said: list[Reply], judged: list[Reply]) -> dict[str, float | None]:
        """Shares of everything said that holds no text, and of the Critic's judgements that hold no score."""
        return {
            "empty": mean([not reply.text.strip() for reply in said]),
            "unreadable": mean([score_value(reply.text) is None for reply in judged]),
        }


def _valid(kind: str, verifier: str, grading: str) -> bool:
    """Line 6: whether a gold answer can be graded at all, and whether tests run and fail for an empty solution."""
    try:
        return _surely_valid(grading if kind == "math" else kind, verifier)
    except _Unsure:
        return False


def _tested(program: str, tests: str) -> float | None:
    """Share of the tests that a program passes in the sandbox; None when that could not be told."""
    try:
        return _share_passed(program, tests)
    except _Unsure:
        return None


class _Unsure(Exception):
    """Raised so that an outcome which may have been the machine's fault is not remembered."""


@lru_cache(maxsize=100_000)  # the same few programs and tests come again and again, and each run takes milliseconds
def _share_passed(program: str, tests: str) -> float:
    result = run_tests(program, tests)
    if result.correct is None:
        raise _Unsure
    return result.passed / result.total


@lru_cache(maxsize=100_000)
def _surely_valid(kind: str, verifier: str) -> bool:
    if not verify.valid(kind, verifier):
        raise _Unsure
    return True
