"""MAE: one model proposes, solves and judges (Algorithm 1 of the paper, one pass of its loop an episode).

Straight-line text code: reads replies, never tokens; which engine answers is not its business.
"""

from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import ClassVar

from coevolve.checks import among, at_least
from coevolve.method import Method
from coevolve.papers.format import format_reward
from coevolve.papers.mae import rewards as rewards
from coevolve.parse import judge_score, tag
from coevolve.pools import Pool
from coevolve.shares import agrees, mean, number
from coevolve.types import Episode, Outcome, Reply, Role
from coevolve.worlds import World
from tinyworld.oracle import TinyWorld

SETTINGS = {"zero": 0.5, "no": 0.0, "half": 0.5, "with": 1.0}  # section 5: how often the Proposer sees a reference
ROLES = ("proposer", "solver", "judge")


@dataclass(kw_only=True)
class MAE(Method):
    """Multi-Agent Evolve. The defaults are the paper's numbers; each ablation is an argument."""

    PROMPTS: ClassVar[str] = "mae"

    setting: str = "half"  # zero, no, half or with reference (section 5)
    attempts: int = 5  # N_sample of the difficulty reward (Table 3)
    solves: int = 1  # how often an episode runs lines 16-22; the paper's batch has one per proposal
    threshold: float = 0.7  # a question below this quality stays out of the pool (section 4.1)
    quality_filter: bool = True  # False: Table 2, no question quality filtering
    format_reward: bool = True  # False: Table 2, no format reward
    train: tuple[str, ...] = ROLES  # leave one out: Table 2, no training of that role
    variant: str = "paper"  # official: the Proposer's reward as in the authors' released code
    estimator: str = "task_relative"  # section 3: Task-Relative REINFORCE++; or token_whiten
    judge_temperature: float | None = None  # of lines 10-11 and 19; None: as everything else (Table 3: 1.0)
    judge_model: str = ""  # a frozen judge: a model, or a server's (http://HOST/v1#MODEL); empty: the one that learns
    prompt: str = "compact"  # full for real models
    prompt_folder: str | None = None  # a folder with your own prompts of the same names
    world: World = field(default_factory=TinyWorld, repr=False)

    def __post_init__(self) -> None:
        among("setting", self.setting, SETTINGS)
        among("variant", self.variant, ("paper", "official"))
        for role in self.train:
            among("train", role, ROLES)
        at_least(self, attempts=1, solves=1, judge_temperature=0)
        self.pairs = Pool(distinct=False)  # P
        self.solver = self._role("solver")
        judge = {"name": "judge", "policy": "judge" if self.judge_model else "shared"}
        self.judge_answer = self._role("judge_answer", **judge)
        self.scorer = self._role("judge_answer", **judge, temperature=self.judge_temperature)
        self.rater = self._role("judge_question", **judge, temperature=self.judge_temperature)
        self.proposer = self._role("proposer")
        self.proposer_reference = self._role("proposer_reference", "proposer")

    @cached_property
    def questions(self) -> Pool:
        """The question dataset D."""
        return Pool(self.world.zero() if self.setting == "zero" else self.world.seeds())

    @property
    def policies(self) -> tuple[str, ...]:
        """One policy plays every role, unless a frozen one judges."""
        return ("shared", "judge") if self.judge_model else ("shared",)

    @property
    def frozen(self) -> tuple[str, ...]:
        """The judge of a run with a `judge_model`."""
        return self.policies[1:]

    @property
    def models(self) -> dict[str, str]:
        """The frozen judge's model."""
        return {"judge": self.judge_model} if self.judge_model else {}

    @property
    def pools(self) -> dict[str, Pool]:
        """The question dataset D and the pair dataset P, by the names that outcomes add under."""
        return {"questions": self.questions, "pairs": self.pairs}

    def measure(self) -> dict[str, float | None]:
        """What the oracle says about the question pool: share ill-formed, share of level 3."""
        levels = [self.world.level(question) for question in self.questions.items]
        known = [level for level in levels if level is not None]
        if not known:
            return {"pool_ill_formed": None, "pool_level_3": None}
        return {"pool_ill_formed": 1 - len(known) / len(levels), "pool_level_3": known.count(3) / len(known)}

    def episode(self, rng: Random) -> Episode:
        """Play lines 4 to 22 of Algorithm 1 once; D and P are read as they stood when the step began."""
        D, P = self.questions.view(), self.pairs.view()
        reference = D.sample(rng) if rng.random() < SETTINGS[self.setting] else None  # 4-5
        proposal = yield self.proposer() if reference is None else self.proposer_reference(reference=reference)  # 6-9
        question = tag(proposal.text, "question")
        quality, difficulty, facts = yield from self._assess(question)  # 10-11
        accepted = question is not None and (quality >= self.threshold or not self.quality_filter)
        if accepted and not self.world.held_out(question):
            D.add(question)  # 12-14
        r_proposer = self._proposer_reward(proposal, question, quality, difficulty)  # 15

        asked = [D.sample(rng) for _ in range(self.solves)]  # 16
        replies = yield [self.solver(question=q) for q in asked]  # 17
        answers = [tag(reply.text, "answer") for reply in replies]
        solved = [(q, a, reply) for q, a, reply in zip(asked, answers, replies, strict=True) if a is not None]
        for q, a, _ in solved:
            P.add((q, a))  # 18
        verdicts = yield from self._judge_all([(q, a) for q, a, _ in solved], self.scorer)
        judged = [judge_score(verdict.text) for verdict in verdicts]  # 19
        scores = dict(zip((id(reply) for *_, reply in solved), judged, strict=True))

        drawn = [P.sample(rng) for _ in range(self.solves) if len(P)]  # 20
        judgements = yield from self._judge_all(drawn, self.judge_answer)  # 21
        samples = [("proposer", proposal, r_proposer)]  # 22: what each role earned
        samples += [("solver", reply, self._solver_reward(reply, scores.get(id(reply), 0.0))) for reply in replies]
        if self.format_reward and not self.judge_model:  # the Judge is paid for its format alone
            samples += [("judge", j, rewards.judge_reward(format_reward(j.text, "score"))) for j in judgements]
        facts |= {"accepted": float(accepted), "reward_proposer": r_proposer}
        facts |= {"proposal": question, "reference": reference}
        facts |= self._solver_facts(solved, judged, len(replies))
        earned = [reply.earns(reward) for role, reply, reward in samples if role in self.train]
        return Outcome(earned, facts, {"questions": D.added, "pairs": P.added})

    def _assess(self, question: str | None) -> Episode:
        """Lines 10-11: return the question's quality and difficulty, and what the oracle says about both."""
        if question is None:  # nothing to judge: no quality, no difficulty
            return 0.0, 0.0, {"parsed": 0.0}
        verdict, *attempts = yield [self.rater(question=question)] + [self.solver(question=question)] * self.attempts
        answers = [tag(attempt.text, "answer") for attempt in attempts]
        read = [a for a in answers if a is not None]
        scored = yield from self._judge_all([(question, a) for a in read], self.scorer)
        scores = [judge_score(reply.text) for reply in scored] + [0.0] * (len(answers) - len(read))
        quality = rewards.neutral(judge_score(verdict.text))
        difficulty = rewards.difficulty(scores)
        rate = mean([self.world.right(question, a) for a in answers])
        facts = {
            "parsed": 1.0,
            "quality": quality,
            "difficulty": difficulty,
            "valid": number(self.world.valid(question)),
            "level": self.world.level(question),
            "true_difficulty": None if rate is None else 1 - rate,
            "judge_question_right": agrees(quality, self.world.valid(question)),
            "unreadable": mean([judge_score(reply.text) is None for reply in [verdict, *scored]]),
        }
        return quality, difficulty, facts

    def _judge_all(self, pairs: list[tuple[str, str]], role: Role) -> Episode:
        if not pairs:  # an episode may not yield an empty list
            return []
        return (yield [role(question=q, answer=a) for q, a in pairs])

    def _proposer_reward(self, proposal: Reply, question: str | None, quality: float, difficulty: float) -> float:
        format = format_reward(proposal.text, "question") if self.format_reward else None
        if self.variant == "official":
            parsed = question is not None
            return rewards.official_proposer_reward(
                quality, difficulty, format, parsed=parsed, threshold=self.threshold
            )
        return rewards.proposer_reward(quality, difficulty, format)

    def _solver_reward(self, reply: Reply, judged: float | None) -> float:
        return rewards.solver_reward(judged, format_reward(reply.text, "answer") if self.format_reward else None)

    def _solver_facts(self, solved: list[tuple[str, str, Reply]], judged: list[float | None], asked: int) -> dict:
        truths = [self.world.right(q, a) for q, a, _ in solved]
        hits = [agrees(rewards.neutral(s), t) for s, t in zip(judged, truths, strict=True)]
        return {
            "answered": len(solved) / asked,
            "judged": mean(judged),
            "right": mean(truths),
            "judge_answer_right": mean(hits),
        }
