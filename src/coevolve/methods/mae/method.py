"""MAE: one model proposes, solves and judges; an episode is one pass of Algorithm 1's loop.

The code reads replies, never tokens, and does not depend on the engine that answers.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from random import Random
from typing import Any, ClassVar, Literal

from pydantic import NonNegativeFloat, PositiveInt

from coevolve.methods.base import Method
from coevolve.methods.facts import pool_levels
from coevolve.methods.mae import rewards
from coevolve.methods.mae.metrics import episode_metrics
from coevolve.methods.mae.reading import READINGS
from coevolve.methods.mae.records import Assessment, EpisodeTrace, JudgedAnswer, Pair
from coevolve.rollout.pools import Pool
from coevolve.types import Dialogue, Episode, Outcome, Reply, Turn
from coevolve.validation import PathText
from coevolve.worlds import World

Setting = Literal["zero", "no", "half", "with"]
# The probability that the Proposer sees a reference question (section 5). "zero" and "half" differ
# in the questions that the pool starts with: the world's few hand-written ones, or its seed set.
REFERENCE_PROBABILITY: dict[Setting, float] = {
    "zero": 0.5,
    "no": 0.0,
    "half": 0.5,
    "with": 1.0,
}
Roles = tuple[Literal["proposer", "solver", "judge"], ...]


class MAE(Method):
    """Multi-Agent Evolve. The defaults are the paper's numbers; each ablation is an argument."""

    paper_name: ClassVar[str] = "mae"
    # Each filter of proposals, and the metric that says how many it lets through.
    filters: ClassVar[Mapping[str, str]] = {
        "quality filter": "kept",
        "format of proposals": "parsed",
    }

    setting: Setting = "half"
    """How often the Proposer sees a reference question: zero, no, half or with (section 5)."""

    attempts: PositiveInt = 5
    """N_sample, the attempts that estimate a question's difficulty (Table 3)."""

    solves: PositiveInt = 1
    """How often an episode runs lines 16-22; the paper's batch has one per proposal."""

    threshold: float = rewards.QUALITY_THRESHOLD
    """A question below this quality stays out of the pool (section 4.1)."""

    quality_filter: bool = True
    """Whether bad questions stay out of the pool; False: Table 2."""

    format_reward: bool = True
    """Whether the form of a reply is rewarded; False: Table 2."""

    train: Roles = ("proposer", "solver", "judge")
    """The roles that are trained; leave one out: Table 2."""

    variant: Literal["paper", "official"] = "paper"
    """How proposals are rewarded, and questions, scores and formats read: as in the paper, or as in
    the authors' released code (official). Answers are read from their tags in both."""

    judge_temperature: NonNegativeFloat | None = None
    """Sampling temperature of lines 10-11 and 19; None: the run's (Table 3: 1.0)."""

    judge_model: PathText = ""
    """A frozen judge: a model or a server's (http://HOST/v1#MODEL); empty: the trained model."""

    def define_roles(self) -> None:
        """Make the Proposer, with and without a reference question, the Solver and the Judge."""
        self.reading = READINGS[self.variant]
        self.proposer = self.role("proposer")
        self.proposer_reference = self.role("proposer_reference", "proposer")
        self.solver = self.role("solver")
        policy = "judge" if self.judge_model else "shared"
        judge_role = partial(self.role, name="judge", policy=policy)
        # Only the judgements of line 21 are trained on. The answer scorer asks with the same prompt
        # (lines 11 and 19), the question rater with its own (line 10): theirs are never samples.
        self.judge_answer = judge_role("judge_answer")
        self.answer_scorer = judge_role(
            "judge_answer", temperature=self.judge_temperature
        )
        self.question_rater = judge_role(
            "judge_question", temperature=self.judge_temperature
        )

    # Algorithm 1.

    def episode(self, rng: Random) -> Episode:
        """Play lines 4 to 22 of Algorithm 1 once.

        D and P are this episode's own views of the two pools: they hold what the pools held when
        the step began, and what this episode adds. The numbers are lines of Algorithm 1.
        """
        D = self.pools["questions"].view()
        P = self.pools["pairs"].view()
        shows_reference = rng.random() < REFERENCE_PROBABILITY[self.setting]
        reference = D.sample(rng) if shows_reference else None  # 4-5
        proposal = yield self.propose(reference)  # 6-9
        proposed = self.reading.question(proposal.text)
        assessment = yield from self.assess(proposed)  # 10-11
        if self.may_enter_pool(assessment):
            D.add(assessment.question)  # 12-14
        samples = [proposal.earns(self.proposer_reward(proposal, assessment))]  # 15

        # D is never empty: it starts with the world's questions.
        questions = [D.sample(rng) for _ in range(self.solves)]  # 16
        replies = yield [self.solver(question=q) for q in questions]  # 17
        pairs = self.read_pairs(questions, replies)
        for pair in pairs:
            if pair.answer is not None:
                P.add(pair)  # 18
        judged_answers = yield from self.judge_pairs(pairs)  # 19
        drawn_pairs = (
            [P.sample(rng) for _ in range(self.solves)] if len(P) else []
        )  # 20
        turns = [self.judge_answer(question=q, answer=a) for q, a in drawn_pairs]
        judgements = yield turns  # 21

        for reply, judged in zip(replies, judged_answers, strict=True):
            samples.append(reply.earns(self.solver_reward(reply, judged.score)))  # 22
        # The Judge's only reward is for format (section 4.3): where that is ablated, or the Judge
        # is frozen, its judgements are not samples.
        if self.format_reward and not self.judge_model:
            for judgement in judgements:
                samples.append(
                    judgement.earns(self.reading.format(judgement.text, "score"))
                )
        return Outcome(
            samples=[sample for sample in samples if sample.role in self.train],
            adds={"questions": D.added, "pairs": P.added},
            trace=EpisodeTrace(reference, assessment, judged_answers),
        )

    def propose(self, reference: str | None) -> Turn:
        """Ask for a question, like the reference if there is one (lines 6 to 9)."""
        if reference is None:
            return self.proposer()
        return self.proposer_reference(reference=reference)

    def assess(self, question: str | None) -> Dialogue[Assessment]:
        """Have a question judged, attempt it, and have the attempts judged (lines 10 and 11)."""
        if question is None:
            return Assessment()
        attempt_turn = self.solver(question=question)
        judgement, *replies = yield [
            self.question_rater(question=question),
            *[attempt_turn] * self.attempts,
        ]
        attempts = yield from self.judge_pairs(
            self.read_pairs([question] * len(replies), replies)
        )
        score = self.reading.score(judgement.text)
        quality = rewards.score_or_neutral(score)
        return Assessment(
            question=question,
            quality=quality,
            difficulty=rewards.difficulty([attempt.score for attempt in attempts]),
            accepted=quality >= self.threshold or not self.quality_filter,
            score=score,
            attempts=tuple(attempts),
        )

    def may_enter_pool(self, assessment: Assessment) -> bool:
        """Whether a proposed question is accepted and not held out (lines 12 to 14)."""
        question = assessment.question
        if question is None or not assessment.accepted:
            return False
        return not self.world.held_out(question)

    def judge_pairs(self, pairs: Sequence[Pair]) -> Dialogue[list[JudgedAnswer]]:
        """Return the pairs with the Judge's scores.

        A score is None if the judgement is unreadable. A pair without an answer scores 0.0, and the
        Judge is not asked.
        """
        turns = []
        for question, answer in pairs:
            if answer is not None:
                turns.append(self.answer_scorer(question=question, answer=answer))
        judgements = iter((yield turns))
        judged = []
        for question, answer in pairs:
            score: float | None = 0.0
            if answer is not None:
                score = self.reading.score(next(judgements).text)
            judged.append(JudgedAnswer(question, answer, score))
        return judged

    # Rewards.

    def proposer_reward(self, proposal: Reply, assessment: Assessment) -> float:
        """Return the reward of line 15: section 4.1's, or that of the authors' released code."""
        quality = assessment.quality
        difficulty = assessment.difficulty
        format_term = self.format_term(proposal, "question")
        if self.variant == "paper":
            return rewards.proposer_reward(quality, difficulty, format_term)
        return rewards.official_proposer_reward(
            quality,
            difficulty,
            format_term,
            parsed=assessment.question is not None,
            threshold=self.threshold,
        )

    def solver_reward(self, reply: Reply, score: float | None) -> float:
        """Return the reward of line 22 (section 4.2)."""
        return rewards.solver_reward(score, self.format_term(reply, "answer"))

    def format_term(self, reply: Reply, tag_name: str) -> float | None:
        """Return R_format of a reply; None where it is ablated."""
        return self.reading.format(reply.text, tag_name) if self.format_reward else None

    # What grows, and what is recorded.

    def read_pairs(
        self, questions: Sequence[str], replies: Sequence[Reply]
    ) -> list[Pair]:
        """Return each question with the answer in the reply to it."""
        pairs = []
        for question, reply in zip(questions, replies, strict=True):
            pairs.append(Pair(question, self.read_answer(reply.text)))
        return pairs

    @cached_property
    def pools(self) -> dict[str, Pool]:
        """The question dataset D and the pair dataset P."""
        if self.setting == "zero":
            questions = self.world.zero_questions()
        else:
            questions = self.world.seed_questions()
        return {"questions": Pool(questions), "pairs": Pool(distinct=False)}

    @property
    def models(self) -> dict[str, str]:
        """The frozen judge's model."""
        return {"judge": self.judge_model} if self.judge_model else {}

    def measure(self) -> dict[str, float | None]:
        """Return the oracle's fractions of the question pool: ill-formed, and hardest (level 3)."""
        return pool_levels(self.world, self.pools["questions"].items)

    def observe(self, outcome: Outcome, world: World) -> dict[str, Any]:
        """Return this episode's metrics: what the Judge said, and whether the oracle agrees."""
        return episode_metrics(outcome.trace, world, self.quality_filter)
