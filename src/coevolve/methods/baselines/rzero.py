"""Baselines of SPICE's Table 1: a strong frozen Challenger, and R-Zero.

R-Zero has no corpus and no gold answers. Two policies from one start: the Challenger looks for questions that divide
the Solver, the Solver learns to agree with its own majority. Both are trained with GRPO in every step.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from random import Random
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt
from scipy.cluster.hierarchy import fcluster, linkage

from coevolve.advantages.estimators import Estimator
from coevolve.methods.base import Method
from coevolve.methods.facts import mean_known
from coevolve.methods.spice.method import SPICE, TEMPLATES, Template
from coevolve.methods.spice.parsing import ANSWER_TYPES, BOOLEANS, Question, read_free
from coevolve.methods.spice.rewards import uncertainty
from coevolve.rollout import voting
from coevolve.text.parse import boxed
from coevolve.text.verify.exact import normal
from coevolve.types import Episode, Outcome, Reply
from coevolve.validation import Share
from coevolve.worlds import World

TOKEN = re.compile(r"[^\W\d_]+|\d|\S")


class StrongChallenger(SPICE):
    """SPICE in which a stronger model is the Challenger and only the Reasoner is trained (section 3.1)."""

    challenger: Literal["fixed"] = "fixed"
    """The strong model is not trained."""

    strong: str = "Qwen/Qwen3-32B"
    """The Challenger's model: backbone, model folder or hub id (paper: Qwen3-32B-Instruct)."""

    @property
    def models(self) -> dict[str, str]:
        """The policy that is not the run's own model."""
        return {"challenger": self.strong}


class RZero(Method):
    """Self-play without a corpus. Numbers: SPICE's Table 5 and Appendix 8, where those are silent R-Zero's own."""

    paper_name: ClassVar[str] = "spice"
    read_answer = staticmethod(boxed)
    seeded: ClassVar[bool] = False
    TRAINING: ClassVar[Mapping[str, Any]] = {k: v for k, v in SPICE.TRAINING.items() if k != "length_norm"}
    PAPER: ClassVar[Mapping[str, Any]] = {"steps": "5 long iterations"}  # Table 5; ours are those of the other rows

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
        """Ask `requests` times `rollouts` questions, answer each, pay the Challenger and teach the Solver."""
        kinds = [rng.choice(ANSWER_TYPES) for _ in range(self.requests)]
        wanted = [kind for kind in kinds for _ in range(self.rollouts)]
        asked = yield [self.ask(answer_type=kind) for kind in wanted]
        tasks = [read_free(reply.text, kind, self.booleans) for reply, kind in zip(asked, wanted, strict=True)]
        valid = {i: task.text for i, task in enumerate(tasks) if isinstance(task, Question)}  # not the task's answer
        questions = list(valid.values())
        replies = yield [self.solver(question=q) for q in questions for _ in range(self.answers)]
        groups = [replies[i : i + self.answers] for i in range(0, len(replies), self.answers)]
        votes = [majority([boxed(reply.text) for reply in group]) for group in groups]
        rewards = dict.fromkeys(range(len(asked)), self.invalid)
        repeats = shares(questions, self.similarity, len(asked))
        for i, (_, rate), repeated in zip(valid, votes, repeats, strict=True):
            rewards[i] = max(0.0, uncertainty(rate) - self.repetition * repeated)
        samples = [reply.earns(rewards[i], (reply.group_id, i // self.rollouts)) for i, reply in enumerate(asked)]
        taught = [i for i, question in enumerate(questions) if self.teaches(question, *votes[i])]
        for i in taught:
            samples += [reply.earns(self.solver_reward(reply, votes[i][0]), (reply.group_id, i)) for reply in groups[i]]
        return Outcome(samples, trace=(len(asked), questions, votes, taught))

    def teaches(self, question: str, label: str | None, rate: float) -> bool:
        """Whether the Solver learns from a question: one that divides it, and is not held out."""
        allowed = self.world.valid(question) is False or not self.world.held_out(question)
        return bool(label) and abs(rate - 0.5) <= self.band and allowed

    def solver_reward(self, reply: Reply, label: str | None) -> float:
        """Return what an answer earns: for agreeing with the majority, and for its form."""
        answer = boxed(reply.text)
        agrees = answer is not None and normal(answer) == label
        return self.accuracy_weight * agrees + (1 - self.accuracy_weight) * (answer is not None)

    @property
    def scored(self) -> tuple[str, ...]:
        """The Solver answers the held-out questions."""
        return ("solver",)

    def observe(self, outcome: Outcome, world: World) -> dict[str, Any]:
        """How many questions were valid and taught, and whether the majorities were right."""
        asked, questions, votes, taught = outcome.trace
        agreement = mean_known([rate for _, rate in votes])
        right = mean_known([world.is_correct(q, label) for q, (label, _) in zip(questions, votes, strict=True)])
        parts = {"valid": len(questions) / asked, "taught": len(taught) / asked}
        return {**parts, "agreement": agreement, "gold_right": right, "questions": questions}


def majority(answers: Sequence[str | None]) -> tuple[str | None, float]:
    """Return the answer given most often, in `normal` spelling, and its share of all; (None, 0.0) without any."""
    label, votes = voting.majority(None if answer is None else normal(answer) for answer in answers)
    return label, votes / max(1, len(answers))


def bleu(text: str, reference: str) -> float:
    """Return the sentence BLEU of two questions over words and single digits, smoothed with 0.1.

    The highest order is the length of the shorter text, at most 4, so equal texts give 1.
    """
    a, b = TOKEN.findall(text), TOKEN.findall(reference)
    if not a or not b:
        return float(a == b)
    logs = []
    for n in range(1, min(4, len(a), len(b)) + 1):
        mine, theirs = (Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1)) for words in (a, b))
        logs.append(math.log(((mine & theirs).total() or 0.1) / mine.total()))
    return math.exp(sum(logs) / len(logs)) * min(1.0, math.exp(1 - len(b) / len(a)))


def shares(questions: Sequence[str], similarity: float, batch: int) -> list[float]:
    """Return each question's cluster size over the batch's size: R-Zero's repetition penalty.

    Clusters are agglomerative with average linkage on 1 - BLEU (both ways, averaged), cut at `similarity`.
    """
    if len(questions) < 2:
        return [1 / batch] * len(questions)
    distances = [1 - (bleu(a, b) + bleu(b, a)) / 2 for a, b in combinations(questions, 2)]
    labels = fcluster(linkage(distances, "average"), similarity, "distance").tolist()
    return [labels.count(label) / batch for label in labels]
