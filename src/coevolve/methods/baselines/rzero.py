"""Baselines of SPICE's Table 1: a strong frozen Challenger, and R-Zero.

R-Zero has no corpus and no gold answers. Two policies start from one model: the Challenger seeks
questions that divide the Solver, and the Solver learns to agree with its own majority. Both are
trained with GRPO in every step.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt
from scipy.cluster.hierarchy import fcluster, linkage

from coevolve.advantages.estimators import Estimator
from coevolve.methods.base import Method
from coevolve.methods.facts import mean_known
from coevolve.methods.spice.method import SPICE, TEMPLATES, Template
from coevolve.methods.spice.parsing import (
    ANSWER_TYPES,
    BOOLEANS,
    Question,
    read_free,
)
from coevolve.methods.spice.rewards import uncertainty
from coevolve.rollout import voting
from coevolve.text.parse import boxed
from coevolve.text.verify.exact import spelling
from coevolve.types import Dialogue, Episode, Outcome, Reply, Sample
from coevolve.validation import Share
from coevolve.worlds import World

TOKEN = re.compile(r"[^\W\d_]+|\d|\S")
MAX_NGRAM = 4
NO_MATCH = 0.1  # counts in place of zero matching n-grams


@dataclass(frozen=True)
class Vote:
    """The majority of the answers to one question, which stands for its gold answer."""

    label: str | None  # None: no answer could be read
    agreement: float  # the fraction of all answers that equal the label


@dataclass(frozen=True)
class Proposal:
    """A reply of the Challenger."""

    reply: Reply
    request: int  # number of its prompt in the episode
    question: str | None  # None: invalid


@dataclass(frozen=True)
class AnsweredQuestion:
    """A valid question, the Solver's answers and their vote."""

    question: str
    answers: list[Reply]
    vote: Vote


@dataclass(frozen=True)
class EpisodeTrace:
    """What an episode leaves behind, for `RZero.observe`."""

    proposals: int  # how many, the invalid ones included
    answered: list[AnsweredQuestion]
    taught: int  # how many questions the Solver learns from


class StrongChallenger(SPICE):
    """SPICE with a stronger model as the Challenger; only the Reasoner is trained (section 3.1)."""

    challenger: Literal["fixed"] = "fixed"
    """The strong model is not trained."""

    strong: str = "Qwen/Qwen3-32B"
    """The Challenger's model: backbone, model folder or hub id (paper: Qwen3-32B-Instruct)."""

    @property
    def models(self) -> dict[str, str]:
        """The model of the Challenger's policy; the other policies start from the run's model."""
        return {"challenger": self.strong}


def _values_of_spice() -> dict[str, Any]:
    values = dict(SPICE.PAPER_RUN_VALUES)
    values.pop("loss_aggregation", None)
    return values


class RZero(Method):
    """Self-play without a corpus.

    Numbers are from SPICE's Table 5 and Appendix 8, and where those are silent from R-Zero itself.
    """

    paper_name: ClassVar[str] = "spice"
    read_answer = staticmethod(boxed)
    needs_seed_questions: ClassVar[bool] = False
    PAPER_RUN_VALUES: ClassVar[Mapping[str, Any]] = _values_of_spice()
    # Table 5; this run has as many steps as the other rows.
    PAPER_METHOD_VALUES: ClassVar[Mapping[str, Any]] = {"steps": "5 long iterations"}

    rollouts: PositiveInt = 4
    """Questions sampled from one prompt: a GRPO group (Table 5)."""

    requests: PositiveInt = 1
    """Prompts per episode; repetition is counted among all questions of an episode."""

    answers: PositiveInt = 5
    """Answers to one question (Appendix 8)."""

    band: Annotated[float, Field(ge=0, le=0.5)] = 0.25
    """delta: the Solver learns from questions with |p - 1/2| of at most this."""

    similarity: Share = 0.5
    """Questions closer than this BLEU distance repeat each other (R-Zero's tau)."""

    repetition: NonNegativeFloat = 1.0
    """Weight of the repetition penalty (R-Zero's lambda)."""

    invalid: float = -1.0
    """Reward of an invalid question (Table 5)."""

    accuracy_weight: Share = 0.9
    """Weight of accuracy in the Solver's reward; the rest is format (R-Zero's released code)."""

    estimator: Estimator = "task_relative"
    """Mean and standard deviation within a group, as in GRPO."""

    template: Template = "chat"
    """The Solver's prompt, as in SPICE."""

    def define_roles(self) -> None:
        """Make the Solver and the Challenger, each with a policy of its own."""
        self.solver = self.role(TEMPLATES[self.template], "solver", policy="solver")
        self.ask = self.role("challenger_alone", "challenger", policy="challenger")
        self.booleans = BOOLEANS if self.prompt == "full" else ("yes", "no")

    def episode(self, rng: Random) -> Episode:
        """Ask `requests` times `rollouts` questions, answer each, and reward both policies."""
        proposals = yield from self.propose(rng)
        questions = [p.question for p in proposals if p.question is not None]
        answered = yield from self.answer(questions)
        samples = self.challenger_samples(proposals, answered)
        taught = 0
        for i, question in enumerate(answered):
            if self.teaches(question):
                samples += self.solver_samples(question, i)
                taught += 1
        return Outcome(samples, trace=EpisodeTrace(len(proposals), answered, taught))

    def propose(self, rng: Random) -> Dialogue[list[Proposal]]:
        """Return the Challenger's replies, `rollouts` to each prompt; only questions are read."""
        kinds = [rng.choice(ANSWER_TYPES) for _ in range(self.requests)]
        turns = []
        for kind in kinds:
            turns += [self.ask(answer_type=kind)] * self.rollouts
        replies = yield turns
        proposals = []
        for i, reply in enumerate(replies):
            request = i // self.rollouts
            task = read_free(reply.text, kinds[request], self.booleans)
            # The task's own answer is not used.
            question = task.text if isinstance(task, Question) else None
            proposals.append(Proposal(reply, request, question))
        return proposals

    def answer(self, questions: Sequence[str]) -> Dialogue[list[AnsweredQuestion]]:
        """Let the Solver answer each question `answers` times, and vote."""
        turns = []
        for question in questions:
            turns += [self.solver(question=question)] * self.answers
        replies = yield turns
        answered = []
        for i, question in enumerate(questions):
            group = replies[i * self.answers : (i + 1) * self.answers]
            vote = majority([boxed(reply.text) for reply in group])
            answered.append(AnsweredQuestion(question, group, vote))
        return answered

    def challenger_samples(
        self, proposals: Sequence[Proposal], answered: Sequence[AnsweredQuestion]
    ) -> list[Sample]:
        """Reward every proposal; `answered` are the valid ones, in the same order."""
        questions = [one.question for one in answered]
        penalties = repetition_penalties(questions, self.similarity, len(proposals))
        results = zip(answered, penalties, strict=True)
        samples = []
        for proposal in proposals:
            reward = self.invalid
            if proposal.question is not None:
                question, penalty = next(results)
                reward = self.challenger_reward(question.vote.agreement, penalty)
            group_id = (proposal.reply.group_id, proposal.request)
            samples.append(proposal.reply.earns(reward, group_id))
        return samples

    def solver_samples(self, question: AnsweredQuestion, i: int) -> list[Sample]:
        """Reward the answers to the i-th valid question, which are a GRPO group."""
        samples = []
        for reply in question.answers:
            reward = self.solver_reward(reply, question.vote.label)
            samples.append(reply.earns(reward, (reply.group_id, i)))
        return samples

    def challenger_reward(self, agreement: float, penalty: float) -> float:
        """Return the reward of a valid question: the Solver's uncertainty less repetition."""
        return max(0.0, uncertainty(agreement) - self.repetition * penalty)

    def solver_reward(self, reply: Reply, label: str | None) -> float:
        """Return the reward of an answer: for agreeing with the majority, and for its form."""
        answer = boxed(reply.text)
        accuracy = float(answer is not None and spelling(answer) == label)
        is_readable = float(answer is not None)
        weight = self.accuracy_weight
        return weight * accuracy + (1 - weight) * is_readable

    def teaches(self, question: AnsweredQuestion) -> bool:
        """Whether the Solver learns from a question: it divides the Solver and is not held out."""
        vote = question.vote
        if not vote.label or abs(vote.agreement - 0.5) > self.band:
            return False
        is_ill_formed = self.world.valid(question.question) is False
        return is_ill_formed or not self.world.held_out(question.question)

    @property
    def scored(self) -> tuple[str, ...]:
        """The Solver answers the held-out questions."""
        return ("solver",)

    def observe(self, outcome: Outcome, world: World) -> dict[str, Any]:
        """Return which questions were valid and taught, and whether majorities were correct."""
        trace: EpisodeTrace = outcome.trace
        verdicts = []
        for one in trace.answered:
            verdicts.append(world.is_correct(one.question, one.vote.label))
        return {
            "valid": len(trace.answered) / trace.proposals,
            "taught": trace.taught / trace.proposals,
            "agreement": mean_known(one.vote.agreement for one in trace.answered),
            "gold_correct": mean_known(verdicts),
            "questions": [one.question for one in trace.answered],
        }


def majority(answers: Sequence[str | None]) -> Vote:
    """Return the vote over the answers in `spelling`; None does not vote."""
    spellings = [None if answer is None else spelling(answer) for answer in answers]
    label, votes = voting.majority(spellings)
    return Vote(label, votes / max(1, len(answers)))


def bleu(candidate: str, reference: str) -> float:
    """Return the sentence BLEU of two questions over words and single digits, smoothed with 0.1.

    The highest order is the length of the shorter text, at most 4, so equal texts give 1.
    """
    candidate_tokens = TOKEN.findall(candidate)
    reference_tokens = TOKEN.findall(reference)
    if not candidate_tokens or not reference_tokens:
        return float(candidate_tokens == reference_tokens)
    max_order = min(MAX_NGRAM, len(candidate_tokens), len(reference_tokens))
    log_precisions = []
    for order in range(1, max_order + 1):
        candidate_ngrams = count_ngrams(candidate_tokens, order)
        reference_ngrams = count_ngrams(reference_tokens, order)
        matches = (candidate_ngrams & reference_ngrams).total() or NO_MATCH
        log_precisions.append(math.log(matches / candidate_ngrams.total()))
    precision = math.exp(sum(log_precisions) / len(log_precisions))
    length_ratio = len(reference_tokens) / len(candidate_tokens)
    brevity_penalty = min(1.0, math.exp(1 - length_ratio))
    return precision * brevity_penalty


def count_ngrams(tokens: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    """Count the sequences of `order` tokens."""
    starts = range(len(tokens) - order + 1)
    return Counter(tuple(tokens[i : i + order]) for i in starts)


def repetition_penalties(
    questions: Sequence[str], similarity: float, batch: int
) -> list[float]:
    """Return each question's cluster size divided by the size of the batch (R-Zero).

    Clusters are agglomerative with average linkage on 1 - BLEU, averaged over both directions, and
    cut at the distance `similarity`.
    """
    if len(questions) < 2:
        return [1 / batch] * len(questions)
    distances = []
    for a, b in combinations(questions, 2):
        distances.append(1 - (bleu(a, b) + bleu(b, a)) / 2)
    clusters = linkage(distances, "average")
    labels = fcluster(clusters, similarity, "distance").tolist()
    return [labels.count(label) / batch for label in labels]
