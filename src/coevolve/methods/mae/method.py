"""MAE: one model proposes, solves and judges (Algorithm 1 of the paper, one pass of its loop an episode).

Straight-line text code: reads replies, never tokens; which engine answers is not its business.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any, ClassVar, Literal

from pydantic import NonNegativeFloat, PositiveInt

from coevolve.methods.base import Method
from coevolve.methods.facts import agrees, as_float, complement, mean_known, pool_levels
from coevolve.methods.format_reward import format_reward
from coevolve.methods.mae import rewards
from coevolve.rollout.pools import Pool
from coevolve.text.parse import judge_score, tag
from coevolve.types import Dialogue, Episode, Outcome, Reply
from coevolve.worlds import World

Setting = Literal["zero", "no", "half", "with"]
# How often the Proposer sees a reference question (section 5).
SETTINGS: dict[Setting, float] = {"zero": 0.5, "no": 0.0, "half": 0.5, "with": 1.0}
Roles = tuple[Literal["proposer", "solver", "judge"], ...]
Pair = tuple[str, str | None]  # a question and an answer, None where the reply holds none


@dataclass(frozen=True)
class Assessment:
    """What the Judge and the attempts say about a proposed question (lines 10 and 11)."""

    question: str | None = None
    quality: float = 0.0  # the quality reward; nothing for a proposal that does not parse
    difficulty: float = 0.0  # the difficulty reward
    judged: float | None = None  # the Judge's score of the question; None: unreadable
    answers: tuple[str | None, ...] = ()  # of the attempts
    scores: tuple[float | None, ...] = ()  # the Judge's score of each answer; None: unreadable, 0.0: no answer


@dataclass(frozen=True)
class Played:
    """One pass of the loop, for `MAE.observe`."""

    reference: str | None
    assessment: Assessment
    accepted: bool
    solved: list[Pair]
    scores: list[float | None]  # the Judge's score of each solution


class MAE(Method):
    """Multi-Agent Evolve. The defaults are the paper's numbers; each ablation is an argument."""

    paper_name: ClassVar[str] = "mae"
    gates: ClassVar[Mapping[str, str]] = {"quality filter": "kept", "format of proposals": "parsed"}

    setting: Setting = "half"
    """How often the Proposer sees a reference question: zero, no, half or with (section 5)."""

    attempts: PositiveInt = 5
    """N_sample, the attempts that estimate a question's difficulty (Table 3)."""

    solves: PositiveInt = 1
    """How often an episode runs lines 16-22; the paper's batch has one per proposal."""

    threshold: float = 0.7
    """A question below this quality stays out of the pool (section 4.1)."""

    quality_filter: bool = True
    """Whether bad questions stay out of the pool; False: Table 2."""

    format_reward: bool = True
    """Whether the form of a reply is rewarded; False: Table 2."""

    train: Roles = ("proposer", "solver", "judge")
    """The roles that are trained; leave one out: Table 2."""

    variant: Literal["paper", "official"] = "paper"
    """The reward of the Proposer: the paper's or that of the authors' released code (official)."""

    judge_temperature: NonNegativeFloat | None = None
    """Sampling temperature of lines 10-11 and 19; None: the run's (Table 3: 1.0)."""

    judge_model: str = ""
    """A frozen judge: a model or a server's (http://HOST/v1#MODEL); empty: the trained model."""

    def define_roles(self) -> None:
        """Make the Proposer, with and without a reference question, the Solver and the Judge."""
        self.proposer = self.role("proposer")
        self.proposer_reference = self.role("proposer_reference", "proposer")
        self.solver = self.role("solver")
        judge = {"name": "judge", "policy": "judge" if self.judge_model else "shared"}
        self.judge_answer = self.role("judge_answer", **judge)
        self.scorer = self.role("judge_answer", **judge, temperature=self.judge_temperature)
        self.rater = self.role("judge_question", **judge, temperature=self.judge_temperature)

    def episode(self, rng: Random) -> Episode:
        """Play lines 4 to 22 of Algorithm 1 once; D and P are read as they stood when the step began."""
        D, P = self.pools["questions"].view(), self.pools["pairs"].view()
        reference = D.sample(rng) if rng.random() < SETTINGS[self.setting] else None  # 4-5
        proposal = yield self.proposer() if reference is None else self.proposer_reference(reference=reference)  # 6-9
        assessment = yield from self.assess(tag(proposal.text, "question"))  # 10-11
        question = assessment.question
        accepted = question is not None and (assessment.quality >= self.threshold or not self.quality_filter)
        if question is not None and accepted and not self.world.held_out(question):
            D.add(question)  # 12-14
        samples = [proposal.earns(self.proposer_reward(proposal, assessment))]  # 15

        questions = [D.sample(rng) for _ in range(self.solves)]  # 16
        replies = yield [self.solver(question=q) for q in questions]  # 17
        solved = [(q, tag(reply.text, "answer")) for q, reply in zip(questions, replies, strict=True)]
        for q, answer in solved:
            if answer is not None:
                P.add((q, answer))  # 18
        scores = yield from self.score(solved)  # 19
        drawn = [P.sample(rng) for _ in range(self.solves) if len(P)]  # 20
        judgements = yield [self.judge_answer(question=q, answer=a) for q, a in drawn]  # 21

        samples += [reply.earns(self.solver_reward(reply, s)) for reply, s in zip(replies, scores, strict=True)]  # 22
        if self.format_reward and not self.judge_model:  # the Judge is paid for its format alone
            samples += [reply.earns(format_reward(reply.text, "score")) for reply in judgements]
        played = Played(reference, assessment, accepted, solved, scores)
        earned = [sample for sample in samples if sample.role in self.train]
        return Outcome(earned, {"questions": D.added, "pairs": P.added}, played)

    def assess(self, question: str | None) -> Dialogue[Assessment]:
        """Lines 10 and 11: have the question judged, attempt it, and have the attempts judged."""
        if question is None:  # nothing to judge
            return Assessment()
        verdict, *attempts = yield [self.rater(question=question)] + [self.solver(question=question)] * self.attempts
        answers = [tag(attempt.text, "answer") for attempt in attempts]
        scores = yield from self.score([(question, answer) for answer in answers])
        judged = judge_score(verdict.text)
        quality, difficulty = rewards.neutral(judged), rewards.difficulty(scores)
        return Assessment(question, quality, difficulty, judged, tuple(answers), tuple(scores))

    def score(self, pairs: Sequence[Pair]) -> Dialogue[list[float | None]]:
        """Return the Judge's score of each answer: None where it is unreadable, 0.0 where there is no answer."""
        verdicts = iter((yield [self.scorer(question=q, answer=a) for q, a in pairs if a is not None]))
        return [0.0 if a is None else judge_score(next(verdicts).text) for _, a in pairs]

    def proposer_reward(self, proposal: Reply, assessment: Assessment) -> float:
        """Line 15: the reward of section 4.1, or that of the authors' released code."""
        terms = assessment.quality, assessment.difficulty, self._format(proposal, "question")
        if self.variant == "official":
            parsed = assessment.question is not None
            return rewards.official_proposer_reward(*terms, parsed=parsed, threshold=self.threshold)
        return rewards.proposer_reward(*terms)

    def solver_reward(self, reply: Reply, score: float | None) -> float:
        """Line 22: the reward of section 4.2."""
        return rewards.solver_reward(score, self._format(reply, "answer"))

    def _format(self, reply: Reply, name: str) -> float | None:
        return format_reward(reply.text, name) if self.format_reward else None

    @cached_property
    def pools(self) -> dict[str, Pool]:
        """The question dataset D and the pair dataset P."""
        start = self.world.zero_questions() if self.setting == "zero" else self.world.seed_questions()
        return {"questions": Pool(start), "pairs": Pool(distinct=False)}

    @property
    def models(self) -> dict[str, str]:
        """The frozen judge's model."""
        return {"judge": self.judge_model} if self.judge_model else {}

    def measure(self) -> dict[str, float | None]:
        """What the oracle says about the question pool: share ill-formed, share of level 3."""
        return pool_levels(self.world, self.pools["questions"].items)

    def observe(self, outcome: Outcome, world: World) -> dict[str, Any]:
        """How proposing, solving and judging went, by the Judge and by the oracle."""
        played: Played = outcome.trace
        answered = [(q, a, s) for (q, a), s in zip(played.solved, played.scores, strict=True) if a is not None]
        truths = [world.is_correct(q, a) for q, a, _ in answered]
        agreed = [agrees(rewards.neutral(s), truth) for (*_, s), truth in zip(answered, truths, strict=True)]
        return {
            **_observed_proposal(played.assessment, world),
            "accepted": float(played.accepted),
            "kept": float(played.accepted) if self.quality_filter and played.assessment.question is not None else None,
            "proposal": played.assessment.question,
            "reference": played.reference,
            "answered": len(answered) / len(played.solved),
            "judged": mean_known([s for *_, s in answered]),
            "right": mean_known(truths),
            "judge_answer_right": mean_known(agreed),
        }


def _observed_proposal(assessment: Assessment, world: World) -> dict[str, Any]:
    question = assessment.question
    if question is None:
        return {"parsed": 0.0}
    judged = [s for a, s in zip(assessment.answers, assessment.scores, strict=True) if a is not None]
    valid = world.valid(question)
    said = {"parsed": 1.0, "quality": assessment.quality, "difficulty": assessment.difficulty}
    return said | {
        "valid": as_float(valid),
        "level": world.level(question),
        "true_difficulty": complement(mean_known([world.is_correct(question, answer) for answer in assessment.answers])),
        "judge_question_right": agrees(assessment.quality, valid),
        "unreadable": mean_known([score is None for score in (assessment.judged, *judged)]),
    }
