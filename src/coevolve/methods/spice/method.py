"""SPICE: a Challenger asks about a document, a Reasoner answers without it (Algorithm 1).

One episode is one document: lines 5 to 20. The code reads replies, never tokens. Gold answers go to
the verifier only.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from coevolve import plugins
from coevolve.advantages.estimators import Estimator
from coevolve.methods.base import Method, paper_table
from coevolve.methods.spice import parsing, rewards
from coevolve.methods.spice.metrics import episode_metrics
from coevolve.methods.spice.parsing import ANSWER_TYPES, BOOLEANS, MCQ, Question, stem
from coevolve.methods.spice.records import (
    Answer,
    AnsweredTask,
    Attempt,
    Challenge,
    EpisodeTrace,
)
from coevolve.text import verify
from coevolve.text.parse import boxed
from coevolve.types import Dialogue, Episode, Outcome, Reply, Sample, Turn
from coevolve.validation import Allowed, Operational, PathText
from coevolve.worlds import World

Verifier = Literal["math", "exact"]
# Answer type: kind of verifier; answers of the other types are compared as text (section 2.5).
VERIFIERS: dict[Verifier, dict[str, str]] = {
    "math": dict.fromkeys(("Integer", "Float", "Expression"), "math"),
    # For worlds in which every answer has only one spelling.
    "exact": dict.fromkeys(("Integer", "Float"), "float"),
}
Template = Literal["chat", "conversation"]
# The Reasoner's prompt files (Figure 8).
TEMPLATES: dict[Template, str] = {
    "chat": "reasoner",
    "conversation": "reasoner_conversation",
}


class SPICE(Method):
    """Self-play in corpus environments.

    The defaults are the paper's numbers, and each ablation is an argument.
    """

    paper_name: ClassVar[str] = "spice"
    read_answer = staticmethod(boxed)
    filters: ClassVar[Mapping[str, str]] = {
        "multiple choice": "mcq",
        "rules of validity": "valid",
    }
    needs_seed_questions: ClassVar[bool] = False

    PAPER_RUN_VALUES: ClassVar[Mapping[str, Any]] = paper_table("spice")

    PAPER_METHOD_VALUES: ClassVar[Mapping[str, Any]] = paper_table("spice", "printed")

    corpus: PathText | tuple[PathText, ...] | Path = "both"
    """math, general, both or none; a folder or file; owner/name of the hub."""

    documents: PositiveInt = 20_000
    """|D| for the tiny world and data sets (section 3.1); a folder gives all its documents."""

    document_tokens: PositiveInt = 5992
    """Longest segment of a document (section 3.1)."""

    bytes_per_token: PositiveFloat = 3.0
    """Converts that limit to bytes: English has about 4 per token, LaTeX and code about 3."""

    task_types: Annotated[
        tuple[Literal["mcq", "free"], ...],
        Field(min_length=1),
        Allowed('["mcq"], ["free"] or ["mcq", "free"]'),
    ] = ("mcq", "free")
    """Kinds of task: mcq and free, or one of them (Table 3)."""

    reward: rewards.ChallengerReward = "variance"
    """The Challenger's reward: variance, or another row of Table 4."""

    penalty: float = rewards.PENALTY
    """rho (section 3.1)."""

    challenger: Literal["trained", "untrained", "fixed"] = "trained"
    """untrained: not rewarded; fixed: a frozen copy of the starting model (Figure 4a)."""

    group: PositiveInt = 8
    """G: attempts kept per document, and answers per task (section 3.1)."""

    attempts: PositiveInt = 1024
    """N: most attempts per document, drawn G at a time until one is valid (section 3.1)."""

    reuse: bool = False
    """Whether equal tasks of a document share their G answers."""

    verifier: Verifier = "math"
    """math: Math-Verify for numbers and expressions (section 2.5); exact: equal numbers only."""

    template: Template = "chat"
    """conversation: the prompt of Figure 8, for models that continue texts."""

    snapshots: Annotated[tuple[PositiveInt, ...], Operational()] = ()
    """Steps after which the policies are saved (Figures 3, 5 and 6)."""

    estimator: Estimator = "group_mean"
    """Equations 3 and 4: DrGRPO."""

    def define_roles(self) -> None:
        """Find the corpus, and make the Reasoner and the Challenger's prompts."""
        if isinstance(self.corpus, Path):
            self.corpus = str(self.corpus)
        if self.corpus == "none" and "free" not in self.task_types:
            raise ValueError(
                'task_types must include "free" with corpus=none: '
                "multiple choice is made of a document"
            )
        find_corpus = plugins.load(plugins.CORPORA, "find")
        max_bytes = max(1, int(self.document_tokens * self.bytes_per_token))
        self.source = find_corpus(self.corpus, self.documents, max_bytes)
        self.solver = self.role(TEMPLATES[self.template], "reasoner")
        policy = "challenger" if self.challenger == "fixed" else "shared"
        self.select = self.role("format", policy=policy)
        self.ask_mcq = self.role("challenger_mcq", "challenger", policy=policy)
        self.ask_free = self.role("challenger_free", "challenger", policy=policy)
        self.ask_alone = self.role("challenger_alone", "challenger", policy=policy)
        # The tiny backbone knows only yes and no.
        self.booleans = BOOLEANS if self.prompt == "full" else ("yes", "no")

    # Algorithm 1.

    def episode(self, rng: Random) -> Episode:
        """Play lines 5 to 20 of Algorithm 1 for one document."""
        document = self.source.sample(rng) if self.source else None  # 5
        challenge = yield from self.challenge(document, rng)  # 6
        kept = subsample(challenge.attempts, self.group, rng)  # 7
        tasks = [attempt.task for attempt in kept if attempt.task is not None]  # 8
        answered = yield from self.answer(tasks)  # 9
        samples = self.challenger_samples(kept, answered)  # 10-13
        chosen = self.choose_task(answered, rng)  # 16
        if chosen is not None:
            samples += self.reasoner_samples(chosen)  # 17-20
        trace = EpisodeTrace(document, challenge, answered, chosen)
        return Outcome(samples, trace=trace)

    def challenge(self, document: str | None, rng: Random) -> Dialogue[Challenge]:
        """Choose a kind of task and make G attempts at a time until one is valid (line 6).

        Stops after N attempts.
        """
        kind, unreadable = yield from self.choose_kind(document, rng)
        turn = self.challenger_turn(document, kind)
        attempts: list[Attempt] = []
        any_valid = False
        while not any_valid and len(attempts) < self.attempts:
            count = min(self.group, self.attempts - len(attempts))
            replies = yield [turn] * count
            attempts += [self.read_attempt(reply, kind) for reply in replies]
            any_valid = any(attempt.task is not None for attempt in attempts)
        return Challenge(kind, unreadable, attempts)

    def choose_kind(
        self, document: str | None, rng: Random
    ) -> Dialogue[tuple[str, bool | None]]:
        """Choose MCQ or an answer type (Appendix 11).

        Returns the kind and whether the Challenger's choice was unreadable, in which case the kind
        is random. The second value is None if the Challenger is not asked; without a document the
        answer type is random, too.
        """
        if document is None:
            return rng.choice(ANSWER_TYPES), None
        if "free" not in self.task_types:
            return MCQ, None
        reply = yield self.select(document=document)
        kind = parsing.read_format(reply.text)
        unreadable = kind is None
        if kind is None:
            kind = MCQ if rng.random() < 0.5 else rng.choice(ANSWER_TYPES)
        if kind == MCQ and "mcq" not in self.task_types:
            # Documents that suit multiple choice hold names rather than numbers.
            kind = "String"
        return kind, unreadable

    def challenger_turn(self, document: str | None, kind: str) -> Turn:
        """Return the Challenger's request for a task of this kind."""
        if document is None:
            return self.ask_alone(answer_type=kind)
        if kind == MCQ:
            return self.ask_mcq(document=document)
        return self.ask_free(document=document, answer_type=kind)

    def read_attempt(self, reply: Reply, kind: str) -> Attempt:
        """Read a reply of the Challenger."""
        task = self.read_task(reply.text, kind)
        if isinstance(task, Question):
            return Attempt(reply, task)
        return Attempt(reply, None, fault=task)

    def read_task(self, text: str, kind: str) -> Question | str:
        """Read a task, or return the name of the rule that it breaks."""
        if kind == MCQ:
            return parsing.read_mcq(text)
        return parsing.read_free(text, kind, self.booleans)

    def answer(self, tasks: Sequence[Question]) -> Dialogue[list[AnsweredTask]]:
        """Ask the Reasoner each task G times, without the document (line 9).

        With `reuse`, equal tasks are asked once and share their answers.
        """
        distinct = list(dict.fromkeys(tasks)) if self.reuse else list(tasks)
        repeated = [task for task in distinct for _ in range(self.group)]
        replies = yield [self.solver(question=task.text) for task in repeated]
        pairs = []
        for task, reply in zip(repeated, replies, strict=True):
            pairs.append((task, boxed(reply.text)))
        answers = []
        for reply, correct in zip(replies, self.verify(pairs), strict=True):
            answers.append(Answer(reply, correct))
        answered = []
        for i, task in enumerate(distinct):
            start = i * self.group
            answered.append(AnsweredTask(task, answers[start : start + self.group]))
        if not self.reuse:
            return answered
        by_task = {one.task: one for one in answered}
        return [by_task[task] for task in tasks]

    def verify(self, pairs: Sequence[tuple[Question, str | None]]) -> list[bool | None]:
        """Return the verdict on each (task, answer) pair (section 2.5).

        Equal pairs are verified once. None: the verifier could not tell.
        """
        verifier_kinds = {MCQ: "choice", **VERIFIERS[self.verifier]}
        checks = []
        for task, answer in pairs:
            verifier_kind = verifier_kinds.get(task.kind, "exact")
            checks.append((verifier_kind, answer, task.gold))
        distinct = list(dict.fromkeys(checks))
        if self.verifier == "math":
            verdicts = verify.verify_many(distinct)
        else:
            verdicts = [verify.verify(*check) for check in distinct]
        correct_of = {}
        for check, verdict in zip(distinct, verdicts, strict=True):
            correct_of[check] = verdict.correct
        return [correct_of[check] for check in checks]

    def challenger_samples(
        self, kept: Sequence[Attempt], answered: Sequence[AnsweredTask]
    ) -> list[Sample]:
        """Reward every attempt by its task's pass rate (lines 10 to 13, Equation 1).

        `answered` holds the valid tasks among `kept`, in their order. A task without any verdict is
        left out rather than rewarded with 0.
        """
        if self.challenger != "trained":
            return []
        samples = []
        pass_rates = iter([task.pass_rate for task in answered])
        for attempt in kept:
            p = None  # an invalid task
            if attempt.task is not None:
                p = next(pass_rates)
                if p is None:
                    continue
            reward = rewards.challenger_reward(self.reward, p, self.penalty)
            samples.append(attempt.reply.earns(reward, attempt.reply.group_id))
        return samples

    def choose_task(
        self, answered: Sequence[AnsweredTask], rng: Random
    ) -> AnsweredTask | None:
        """Draw the task that trains the Reasoner (line 16); None if no task may."""
        candidates = []
        for candidate in answered:
            scored = candidate.pass_rate is not None
            if scored and not self.held_out(candidate.task):
                candidates.append(candidate)
        return rng.choice(candidates) if candidates else None

    def reasoner_samples(self, chosen: AnsweredTask) -> list[Sample]:
        """Reward the answers of line 9 with 1 if correct, else 0 (lines 17 to 20).

        An answer without a verdict is left out.
        """
        samples = []
        for answer in chosen.answers:
            if answer.correct is not None:
                reward = float(answer.correct)
                samples.append(answer.reply.earns(reward, answer.reply.group_id))
        return samples

    def held_out(self, task: Question) -> bool:
        """Return whether a task is a validation or test question.

        Such a task may measure a Challenger, but never trains a Reasoner.
        """
        for question in (task.text, stem(task)):
            # An ill-formed question is in no split. None, "cannot tell", does not rule it out.
            ill_formed = self.world.valid(question) is False
            if not ill_formed and self.world.held_out(question):
                return True
        return False

    # Around the episodes of a run.

    @property
    def frozen(self) -> tuple[str, ...]:
        """The Challenger's policy, if it is fixed."""
        return ("challenger",) if self.challenger == "fixed" else ()

    def before_run(self) -> None:
        """Make sure that the corpus is available, streaming it if it is on the hub.

        Raises ValueError if it is not.
        """
        if self.source is not None:
            len(self.source)  # counts the documents, which it must fetch first

    def after_step(self, step: int, keep: Callable[[str], None]) -> None:
        """Save the policies after the steps in `snapshots`."""
        if step in self.snapshots:
            keep(f"snapshots/{step}")

    def observe(self, outcome: Outcome, world: World) -> dict[str, Any]:
        """Return how asking and answering went, and the oracle's verdicts on the tasks."""
        metrics = episode_metrics(outcome.trace, world, self.read_answer)
        if len(set(self.task_types)) == 1:
            metrics["mcq"] = None  # there was nothing to choose
        return metrics


def subsample(attempts: Sequence[Attempt], size: int, rng: Random) -> list[Attempt]:
    """Draw `size` attempts that keep the ratio of valid to invalid ones (line 7 of Algorithm 1).

    At least one is valid if there is any. The attempts keep their order, and if there are fewer
    than `size`, all are returned.
    """
    if len(attempts) <= size:
        return list(attempts)
    valid = [i for i, attempt in enumerate(attempts) if attempt.task is not None]
    invalid = [i for i, attempt in enumerate(attempts) if attempt.task is None]
    valid_count = int(size * len(valid) / len(attempts) + 0.5)  # the ratio, half up
    # Too few invalid ones to fill up.
    valid_count = max(valid_count, size - len(invalid))
    if valid:
        valid_count = max(valid_count, 1)
    kept = rng.sample(valid, valid_count) + rng.sample(invalid, size - valid_count)
    return [attempts[i] for i in sorted(kept)]
