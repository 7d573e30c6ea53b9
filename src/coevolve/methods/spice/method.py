"""SPICE: a Challenger reads a document and asks, a Reasoner without the document answers (Algorithm 1).

One episode is one document: lines 5 to 20. Reads replies, never tokens; gold answers go to the verifier only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from coevolve import plugins
from coevolve.advantages.estimators import Estimator
from coevolve.methods.base import Method, paper_table
from coevolve.methods.facts import as_float, mean_known
from coevolve.methods.spice import parsing, rewards
from coevolve.methods.spice.parsing import ANSWER_TYPES, BOOLEANS, MCQ, Question, stem
from coevolve.text.parse import boxed
from coevolve.text.verify import verify, verify_many
from coevolve.types import Dialogue, Episode, Outcome, Reply, Turn
from coevolve.validation import Allowed, Operational
from coevolve.worlds import World

Verifier = Literal["math", "exact"]
# Section 2.5; "exact" is for worlds that write each answer in one way only.
VERIFIERS: dict[Verifier, dict[str, str]] = {
    "math": dict.fromkeys(("Integer", "Float", "Expression"), "math"),
    "exact": dict.fromkeys(("Integer", "Float"), "float"),
}
Template = Literal["chat", "conversation"]
# The Reasoner's prompt files (Figure 8).
TEMPLATES: dict[Template, str] = {"chat": "reasoner", "conversation": "reasoner_conversation"}
Attempt = tuple[Reply, Question | str]  # what was said, and the task or the name of its fault
Answer = tuple[Reply, bool | None]  # what was said, and the verdict (None: could not be scored)


@dataclass(frozen=True)
class Played:
    """One document, for `SPICE.observe`."""

    document: str | None
    kind: str  # of task: MCQ or an answer type
    unreadable: bool | None  # whether the choice of the kind could not be read; None: nobody was asked
    attempts: list[Attempt]
    tasks: list[Question]  # the valid ones among the attempts that were kept
    answers: list[list[Answer]]  # to each task
    rates: list[float | None]  # the pass rate of each task
    chosen: int | None  # the task that the Reasoner learns from


class SPICE(Method):
    """Self-play in corpus environments. The defaults are the paper's numbers; each ablation is an argument."""

    paper_name: ClassVar[str] = "spice"
    read_answer = staticmethod(boxed)
    gates: ClassVar[Mapping[str, str]] = {"multiple choice": "mcq", "rules of validity": "valid"}
    seeded: ClassVar[bool] = False

    TRAINING: ClassVar[Mapping[str, Any]] = paper_table("spice")

    PAPER: ClassVar[Mapping[str, Any]] = paper_table("spice", "printed")

    corpus: str | tuple[str, ...] | Path = "both"
    """math, general, both or none; a folder or file; owner/name of the hub."""

    documents: PositiveInt = 20_000
    """|D| of the tiny world and of data sets (section 3.1); a folder gives all it has."""

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
    """Steps after which the policies are kept (Figures 3, 5 and 6)."""

    estimator: Estimator = "group_mean"
    """Equations 3 and 4: DrGRPO."""

    def define_roles(self) -> None:
        """Find the corpus and make the Reasoner and the Challenger's prompts."""
        if isinstance(self.corpus, Path):
            self.corpus = str(self.corpus)
        limit = max(1, int(self.document_tokens * self.bytes_per_token))
        self.source = plugins.load(plugins.CORPORA, "find")(self.corpus, self.documents, limit)
        self.solver = self.role(TEMPLATES[self.template], "reasoner")
        policy = "challenger" if self.challenger == "fixed" else "shared"
        self.select = self.role("format", policy=policy)
        self.ask_mcq = self.role("challenger_mcq", "challenger", policy=policy)
        self.ask_free = self.role("challenger_free", "challenger", policy=policy)
        self.ask_alone = self.role("challenger_alone", "challenger", policy=policy)
        # The tiny backbone knows only yes and no.
        self.booleans = BOOLEANS if self.prompt == "full" else ("yes", "no")

    def episode(self, rng: Random) -> Episode:
        """Play lines 5 to 20 of Algorithm 1 for one document."""
        document = self.source.sample(rng) if self.source else None  # 5
        kind, unreadable, attempts = yield from self.challenge(document, rng)  # 6
        taken = subsample(attempts, self.group, rng)  # 7
        tasks = [task for _, task in taken if isinstance(task, Question)]  # 8
        answers = yield from self.answer(tasks)  # 9
        rates = [pass_rate(group) for group in answers]
        samples = self.challenger_samples(taken, rates)  # 10-13
        teaching = [i for i, rate in enumerate(rates) if rate is not None and not self.held_out(tasks[i])]
        chosen = rng.choice(teaching) if teaching else None  # 16; all invalid: no Reasoner group
        if chosen is not None:  # 17-20: the answers of line 9 are the Reasoner's group; right ones earn 1, wrong ones 0
            known = [(reply, right) for reply, right in answers[chosen] if right is not None]
            samples += [reply.earns(float(right), reply.group_id) for reply, right in known]
        return Outcome(samples, trace=Played(document, kind, unreadable, attempts, tasks, answers, rates, chosen))

    def challenger_samples(self, taken: Sequence[Attempt], rates: Sequence[float | None]) -> list[Any]:
        """Lines 10 to 13: pay every attempt by its task's pass rate; a task that nothing could score earns nothing."""
        if self.challenger != "trained":
            return []
        samples, left = [], iter(rates)
        for reply, task in taken:
            rate = next(left) if isinstance(task, Question) else None
            if rate is not None or not isinstance(task, Question):
                reward = rewards.challenger_reward(self.reward, rate, self.penalty)
                samples.append(reply.earns(reward, reply.group_id))
        return samples

    def choose_kind(self, document: str | None, rng: Random) -> Dialogue[tuple[str, bool | None]]:
        """Choose the kind of task, MCQ or an answer type (Appendix 11), and say whether the choice was unreadable.

        An unreadable choice is drawn. Without a document the answer type is random; nobody is asked (None).
        """
        if document is None:
            return rng.choice(ANSWER_TYPES), None
        if "free" not in self.task_types:
            return MCQ, None
        reply = yield self.select(document=document)
        chosen = parsing.read_format(reply.text)
        kind = chosen or (MCQ if rng.random() < 0.5 else rng.choice(ANSWER_TYPES))
        if kind == MCQ and "mcq" not in self.task_types:
            kind = "String"  # what suits multiple choice holds names, not numbers
        return kind, chosen is None

    def challenge(self, document: str | None, rng: Random) -> Dialogue[tuple[str, bool | None, list[Attempt]]]:
        """Line 6: choose a kind of task, then attempt G at a time until one is valid or N is reached."""
        kind, unreadable = yield from self.choose_kind(document, rng)
        turn = self.challenger_turn(document, kind)
        attempts: list[Attempt] = []
        while len(attempts) < self.attempts and not any(isinstance(task, Question) for _, task in attempts):
            replies = yield [turn] * min(self.group, self.attempts - len(attempts))
            attempts += [(reply, self.read_task(reply.text, kind)) for reply in replies]
        return kind, unreadable, attempts

    def challenger_turn(self, document: str | None, kind: str) -> Turn:
        """What the Challenger is asked."""
        if document is None:
            return self.ask_alone(answer_type=kind)
        if kind == MCQ:
            return self.ask_mcq(document=document)
        return self.ask_free(document=document, answer_type=kind)

    def read_task(self, text: str, kind: str) -> Question | str:
        """Read a task, or return the name of the rule that it breaks."""
        return parsing.read_mcq(text) if kind == MCQ else parsing.read_free(text, kind, self.booleans)

    def answer(self, tasks: Sequence[Question]) -> Dialogue[list[list[Answer]]]:
        """Line 9: ask the Reasoner each task G times, without the document; return the answers of each task.

        With `reuse` equal tasks are asked once and share their answers.
        """
        asked = list(dict.fromkeys(tasks)) if self.reuse else list(tasks)
        repeated = [task for task in asked for _ in range(self.group)]
        replies = yield [self.solver(question=task.text) for task in repeated]
        verdicts = self.verify([(task, boxed(reply.text)) for task, reply in zip(repeated, replies, strict=True)])
        scored = list(zip(replies, verdicts, strict=True))
        groups = [scored[i : i + self.group] for i in range(0, len(scored), self.group)]
        return [groups[asked.index(task)] for task in tasks] if self.reuse else groups

    def verify(self, pairs: Sequence[tuple[Question, str | None]]) -> list[bool | None]:
        """Verdicts on answers to tasks (section 2.5); equal pairs are verified once."""
        kinds = {MCQ: "choice", **VERIFIERS[self.verifier]}
        wanted = [(kinds.get(task.kind, "exact"), answer, task.gold) for task, answer in pairs]
        distinct = list(dict.fromkeys(wanted))
        verdicts = verify_many(distinct) if self.verifier == "math" else [verify(*item) for item in distinct]
        known = {item: verdict.correct for item, verdict in zip(distinct, verdicts, strict=True)}
        return [known[item] for item in wanted]

    def held_out(self, task: Question) -> bool:
        """Whether a task is a validation or test question: it may measure a Challenger, never train a Reasoner."""
        asked = {text for text in (task.text, stem(task)) if self.world.valid(text) is not False}  # None: nobody knows
        return any(map(self.world.held_out, asked))

    @property
    def frozen(self) -> tuple[str, ...]:
        """The policy that asks and is not trained."""
        return ("challenger",) if self.challenger == "fixed" else ()

    def before_run(self) -> None:
        """Make sure that the corpus is here, streaming it if it is on the hub; ValueError when it cannot be had."""
        len(self.source or ())

    def after_step(self, step: int, keep: Callable[[str], None]) -> None:
        """Keep the policies of the steps in `snapshots`."""
        if step in self.snapshots:
            keep(f"snapshots/{step}")

    def observe(self, outcome: Outcome, world: World) -> dict[str, Any]:
        """How asking and answering went, and what the oracle says about the tasks."""
        played: Played = outcome.trace
        tasks, attempts, document = played.tasks, played.attempts, played.document
        faults = [task for _, task in attempts if isinstance(task, str)]
        verdicts = [correct for group in played.answers for _, correct in group]
        facts: dict[str, Any] = {
            "format_unreadable": as_float(played.unreadable),
            "mcq": None if document is None else float(played.kind == MCQ),
            "attempts": len(attempts),
            "valid": 1 - len(faults) / len(attempts),
            **{f"fault/{name}": faults.count(name) / len(attempts) for name in parsing.FAULTS},
            "pass_rate": mean_known(played.rates),
            "unscored": mean_known([correct is None for correct in verdicts]),
            "distinct": len({*tasks}) / len(tasks) if tasks else None,
            "gold_right": mean_known([world.is_correct(task.text, task.gold) for task in tasks]),
            "level": mean_known([world.level(task.text) for task in tasks]),
            "grounded": mean_known([stem(task) in document for task in tasks]) if document else None,
            "document": document,
            "questions": [task.text for task in tasks],
            "golds": [task.gold for task in tasks],
        }
        if played.chosen is not None:
            chosen = tasks[played.chosen]
            truths = [world.is_correct(chosen.text, self.read_answer(r.text)) for r, _ in played.answers[played.chosen]]
            facts |= {"question": chosen.text, "gold": chosen.gold, "right": mean_known(truths)}
        return facts


def subsample(attempts: Sequence[Attempt], size: int, rng: Random) -> list[Attempt]:
    """Draw `size` attempts that keep the ratio of valid to invalid ones, with at least one valid if there is any.

    Line 7 of Algorithm 1; the order of the attempts is kept, and fewer than `size` are all taken.
    """
    if len(attempts) <= size:
        return list(attempts)
    valid = [i for i, (_, task) in enumerate(attempts) if isinstance(task, Question)]
    invalid = [i for i, (_, task) in enumerate(attempts) if not isinstance(task, Question)]
    wanted = max(int(size * len(valid) / len(attempts) + 0.5), size - len(invalid), min(1, len(valid)))
    kept = rng.sample(valid, wanted) + rng.sample(invalid, size - wanted)
    return [attempts[i] for i in sorted(kept)]


def pass_rate(answers: Sequence[Answer]) -> float | None:
    """The share of right answers among those that could be scored; None when none could."""
    return mean_known([correct for _, correct in answers])
