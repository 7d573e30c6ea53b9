"""R-Zero as SPICE's Table 1 uses it: questions from nowhere, and the majority of the answers as the label.

No corpus, no gold answers. Two policies from one start: the Challenger looks for questions that divide the Solver,
the Solver learns to agree with its own majority. Both are trained with GRPO in every step.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from random import Random
from typing import Any, ClassVar

from scipy.cluster.hierarchy import fcluster, linkage

from coevolve import setups
from coevolve.checks import among, at_least
from coevolve.method import Method
from coevolve.papers.spice.method import TEMPLATES
from coevolve.papers.spice.reading import ANSWER_TYPES, BOOLEANS, Question, read_free
from coevolve.papers.spice.rewards import uncertainty
from coevolve.parse import boxed
from coevolve.shares import mean
from coevolve.types import Episode, Outcome
from coevolve.verify.plain import normal
from coevolve.worlds import World
from tinyworld.oracle import TinyWorld

TOKEN = re.compile(r"[^\W\d_]+|\d|\S")
ORDERS = 4  # n-grams up to this length


@dataclass(kw_only=True)
class RZero(Method):
    """Self-play without a corpus. Numbers: SPICE's Table 5 and Appendix 8, where those are silent R-Zero's own."""

    PROMPTS: ClassVar[str] = "spice"

    TRAINING: ClassVar[dict[str, Any]] = {  # steps: those of the other rows; R-Zero counts five long iterations
        "steps": 640,
        "batch_size": 128,
        "learning_rate": 1e-6,
        "temperature": 1.0,
        "loss": "ppo",
        "clip": (0.2, 0.2),
        "entropy_coef": 0.0,
    }

    PAPER: ClassVar[dict[str, Any]] = {"steps": "5 long iterations"}  # Table 5

    rollouts: int = 4  # questions to one prompt: a GRPO group (Table 5)
    requests: int = 1  # prompts of an episode; their questions together are what repetition is counted among
    answers: int = 5  # to one question (Appendix 8)
    band: float = 0.25  # the Solver learns from questions with |p - 1/2| at most this (R-Zero's delta)
    similarity: float = 0.5  # questions nearer than this BLEU distance repeat each other (R-Zero's tau)
    repetition: float = 1.0  # weight of the repetition penalty (R-Zero's lambda)
    invalid: float = -1.0  # what an invalid question earns (Table 5)
    accuracy_weight: float = 0.9  # of the Solver's reward; the rest is its format (R-Zero's released code)
    estimator: str = "task_relative"  # within a group that is GRPO: mean and standard deviation
    template: str = "chat"
    prompt: str = "compact"
    prompt_folder: str | None = None
    world: World = field(default_factory=TinyWorld, repr=False)

    policies: ClassVar[tuple[str, ...]] = ("solver", "challenger")
    scored: ClassVar[tuple[str, ...]] = ("solver",)  # who answers the held-out items

    def __post_init__(self) -> None:
        at_least(self, rollouts=1, requests=1, answers=1)
        for name, high in (("band", 0.5), ("similarity", 1), ("accuracy_weight", 1), ("repetition", math.inf)):
            if not 0 <= getattr(self, name) <= high:
                raise ValueError(f"{name} must lie between 0 and {high}, got {getattr(self, name)}")
        among("template", self.template, TEMPLATES)
        self.solver = self._role(TEMPLATES[self.template], "solver", policy="solver")
        self.ask = self._role("challenger_alone", "challenger", policy="challenger")
        self.booleans = ("yes", "no") if self.prompt == "compact" else BOOLEANS

    read = staticmethod(boxed)

    def episode(self, rng: Random) -> Episode:
        """Ask `requests` times `rollouts` questions, answer each, pay the Challenger and teach the Solver."""
        kinds = [rng.choice(ANSWER_TYPES) for _ in range(self.requests)]
        wanted = [kind for kind in kinds for _ in range(self.rollouts)]
        asked = yield [self.ask(answer_type=kind) for kind in wanted]
        tasks = [read_free(reply.text, kind, self.booleans) for reply, kind in zip(asked, wanted, strict=True)]
        valid = [task.text for task in tasks if isinstance(task, Question)]  # the Challenger's own answer is not used
        replies = (yield [self.solver(question=q) for q in valid for _ in range(self.answers)]) if valid else []
        groups = [replies[i : i + self.answers] for i in range(0, len(replies), self.answers)]
        votes = [majority([boxed(reply.text) for reply in group]) for group in groups]
        repeats = iter(shares(valid, self.similarity, len(asked)))
        rates = iter([rate for _, rate in votes])
        own = asked[0].turn.key[:-1]
        samples = []
        for i, (reply, task) in enumerate(zip(asked, tasks, strict=True)):
            paid = self.invalid
            if isinstance(task, Question):
                paid = max(0.0, uncertainty(next(rates)) - self.repetition * next(repeats))
            samples.append(reply.earns(paid, (*own, i // self.rollouts)))
        taught = [i for i, (label, rate) in enumerate(votes) if label and abs(rate - 0.5) <= self.band]
        taught = [i for i in taught if self.world.valid(valid[i]) is False or not self.world.held_out(valid[i])]
        for i in taught:
            for reply in groups[i]:
                answer = boxed(reply.text)
                agrees = answer is not None and normal(answer) == votes[i][0]
                paid = self.accuracy_weight * agrees + (1 - self.accuracy_weight) * (answer is not None)
                samples.append(reply.earns(paid, (*own, i)))
        return Outcome(samples, self._facts(tasks, valid, votes, taught))

    def _facts(
        self,
        tasks: Sequence[Question | str],
        valid: Sequence[str],
        votes: Sequence[tuple[str | None, float]],
        taught: Sequence[int],
    ) -> dict[str, Any]:
        labels = [self.world.right(text, label) for text, (label, _) in zip(valid, votes, strict=True)]
        return {
            "valid": len(valid) / len(tasks),
            "taught": len(taught) / len(tasks),
            "agreement": mean([rate for _, rate in votes]),
            "gold_right": mean(labels),
            "questions": list(valid),
        }


def majority(answers: Sequence[str | None]) -> tuple[str | None, float]:
    """The answer given most often, in `normal` spelling, and its share of all answers; (None, 0.0) without any."""
    label, votes = setups.majority(None if answer is None else normal(answer) for answer in answers)
    return label, votes / max(1, len(answers))


def bleu(text: str, reference: str) -> float:
    """Sentence BLEU of two questions over words and single digits, smoothed with 0.1 for an order without a match.

    The highest order is the length of the shorter text, at most 4, so equal texts give 1.
    """
    a, b = TOKEN.findall(text), TOKEN.findall(reference)
    if not a or not b:
        return float(a == b)
    logs = []
    for n in range(1, min(ORDERS, len(a), len(b)) + 1):
        mine, theirs = (Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1)) for words in (a, b))
        logs.append(math.log(((mine & theirs).total() or 0.1) / mine.total()))
    return math.exp(sum(logs) / len(logs)) * min(1.0, math.exp(1 - len(b) / len(a)))


def shares(questions: Sequence[str], similarity: float, batch: int) -> list[float]:
    """Each question's cluster size over the batch's size: R-Zero's repetition penalty.

    Clusters are agglomerative with average linkage on 1 - BLEU (both ways, averaged), cut at `similarity`.
    """
    if len(questions) < 2:
        return [1 / batch] * len(questions)
    distances = [1 - (bleu(a, b) + bleu(b, a)) / 2 for a, b in combinations(questions, 2)]
    labels = fcluster(linkage(distances, "average"), similarity, "distance").tolist()
    return [labels.count(label) / batch for label in labels]
