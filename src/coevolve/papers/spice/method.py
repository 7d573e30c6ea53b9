"""SPICE: a Challenger reads a document and asks, a Reasoner without the document answers (Algorithm 1).

One episode is one document: lines 5 to 20. Reads replies, never tokens; gold answers go to the verifier only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from random import Random
from typing import Any, ClassVar

from coevolve.checks import among, at_least
from coevolve.method import Method
from coevolve.papers.spice import rewards as rewards
from coevolve.papers.spice.reading import (
    ANSWER_TYPES,
    BOOLEANS,
    FAULTS,
    MCQ,
    Question,
    options,
    read_format,
    read_free,
    read_mcq,
)
from coevolve.parse import boxed
from coevolve.shares import mean
from coevolve.types import Episode, Outcome, Reply, Turn
from coevolve.verify import verify, verify_many
from coevolve.worlds import World
from published import corpus
from tinyworld.oracle import TinyWorld

FREE = "free"
TASK_TYPES = ("mcq", FREE)
CHALLENGERS = ("trained", "untrained", "fixed")
VERIFIERS = {  # section 2.5; "exact" is for worlds whose answers are written in one way only
    "math": dict.fromkeys(("Integer", "Float", "Expression"), "math"),
    "exact": dict.fromkeys(("Integer", "Float"), "float"),
}
TEMPLATES = {"chat": "reasoner", "conversation": "reasoner_conversation"}  # Figure 8
Attempt = tuple[Reply, Question | str]  # what was said, and the task or the name of its fault
Answer = tuple[Reply, bool | None]  # what was said, and the verdict (None: could not be scored)


@dataclass(kw_only=True)
class SPICE(Method):
    """Self-play in corpus environments. The defaults are the paper's numbers; each ablation is an argument."""

    PROMPTS: ClassVar[str] = "spice"

    TRAINING: ClassVar[dict[str, Any]] = {  # section 3.1 and Appendix 8; clip and length norm: Oat's DrGRPO
        "steps": 640,
        "batch_size": 128,
        "learning_rate": 1e-6,
        "temperature": 1.0,
        "loss": "ppo",
        "clip": (0.2, 0.2),
        "entropy_coef": 0.0,
        "length_norm": "constant",
    }

    PAPER: ClassVar[dict[str, Any]] = {  # section 3.1; our default is the tiny world's
        "corpus": ("nvidia/Nemotron-CC-Math-v1", "the documents behind NaturalReasoning"),
    }

    corpus: str | tuple[str, ...] = "both"  # math, general, both, none; a folder or file; owner/name of the hub
    documents: int = 20_000  # |D| of the tiny world and data sets (section 3.1); a folder gives all it has
    document_tokens: int = 5992  # longest segment of a document (section 3.1)
    bytes_per_token: float = 3.0  # how that limit is applied: English has about 4, LaTeX and code about 3
    task_types: tuple[str, ...] = TASK_TYPES  # leave one out: Table 3
    reward: str = "variance"  # or absolute_zero, threshold, rzero: Table 4
    penalty: float = rewards.PENALTY  # rho (section 3.1)
    challenger: str = "trained"  # untrained: earns nothing; fixed: a frozen copy of the start (Figure 4a)
    group: int = 8  # G: attempts kept per document, and answers per task (section 3.1)
    attempts: int = 1024  # N: most attempts at a document, drawn G at a time until one is valid (section 3.1)
    reuse: bool = False  # True: equal tasks of a document share their G answers
    verifier: str = "math"  # Math-Verify for numbers and expressions (section 2.5); or exact
    template: str = "chat"  # the Reasoner's prompt; conversation: Figure 8's form for models that continue texts
    snapshots: tuple[int, ...] = ()  # steps after which the policies are kept (Figures 3, 5 and 6)
    estimator: str = "group_mean"  # Equations 3 and 4: DrGRPO
    prompt: str = "compact"  # full for real models
    prompt_folder: str | None = None  # a folder with your own prompts of the same names
    world: World = field(default_factory=TinyWorld, repr=False)

    def __post_init__(self) -> None:
        self._check()
        if isinstance(self.corpus, PathLike):
            self.corpus = fspath(self.corpus)
        limit = max(1, int(self.document_tokens * self.bytes_per_token))
        self.source = corpus.find(self.corpus, self.documents, limit)
        self.solver = self._role(TEMPLATES[self.template], "reasoner")
        speaks = "challenger" if self.challenger == "fixed" else "shared"
        self.select = self._role("format", policy=speaks)
        self.ask = {
            form: self._role(name, "challenger", policy=speaks)
            for form, name in ((MCQ, "challenger_mcq"), (FREE, "challenger_free"), (None, "challenger_alone"))
        }
        self.booleans = ("yes", "no") if self.prompt == "compact" else BOOLEANS  # the tiny backbone's words

    def _check(self) -> None:
        among("reward", self.reward, rewards.CHALLENGER)
        among("challenger", self.challenger, CHALLENGERS)
        among("verifier", self.verifier, VERIFIERS)
        among("template", self.template, TEMPLATES)
        if not self.task_types or not {*self.task_types} <= {*TASK_TYPES}:
            raise ValueError(f"task_types must be some of {', '.join(TASK_TYPES)}, got {list(self.task_types)}")
        at_least(self, documents=1, document_tokens=1, group=1, attempts=1)
        if not self.bytes_per_token > 0:
            raise ValueError(f"bytes_per_token must be above 0, got {self.bytes_per_token}")
        if any(type(step) is not int or step < 1 for step in self.snapshots):
            raise ValueError(f"snapshots must be steps of at least 1, got {list(self.snapshots)}")

    read = staticmethod(boxed)

    def fetch(self) -> None:
        """Make sure that the corpus is here, streaming it if it is on the hub; ValueError when it cannot be had."""
        len(self.source or ())

    @property
    def policies(self) -> tuple[str, ...]:
        """One model in both roles, and the frozen Challenger where there is one."""
        return ("shared", *self.frozen)

    @property
    def frozen(self) -> tuple[str, ...]:
        """The policy that asks and is not trained."""
        return ("challenger",) if self.challenger == "fixed" else ()

    def measure(self) -> dict[str, float]:
        """Size of the corpus, and how many of its files and lines could not be read."""
        if self.source is None:
            return {}
        return {"corpus_documents": len(self.source), "corpus_unreadable": self.source.unreadable}

    def episode(self, rng: Random) -> Episode:
        """Play lines 5 to 20 of Algorithm 1 for one document."""
        document = self.source.sample(rng) if self.source else None  # 5
        attempts, facts = yield from self.challenge(document, rng)  # 6
        taken = subsample(attempts, self.group, rng)  # 7
        tasks = [task for _, task in taken if isinstance(task, Question)]  # 8
        answers = yield from self.answer(tasks)  # 9
        rates = [pass_rate(its) for its in answers]
        own = taken[0][0].turn.key[:-1]  # group: this document's, for each role its own
        samples, paid = [], iter(rates)
        for reply, task in taken:
            rate = next(paid) if isinstance(task, Question) else None
            if rate is not None or not isinstance(task, Question):  # a task that nothing could score earns nothing
                samples.append(reply.earns(rewards.challenger_reward(self.reward, rate, self.penalty), own))  # 10-13
        if self.challenger != "trained":
            samples = []
        open_ = [i for i, task in enumerate(tasks) if rates[i] is not None and not self._held_out(task)]
        chosen = rng.choice(open_) if open_ else None  # 16; all invalid: no Reasoner group
        if chosen is not None:  # 17-20: the answers of line 9 are the Reasoner's group
            samples += [
                reply.earns(rewards.reasoner_reward(correct), own)
                for reply, correct in answers[chosen]
                if correct is not None
            ]
        facts |= self._facts(document, attempts, tasks, answers, rates)
        if chosen is not None:
            facts |= {"question": tasks[chosen].text, "gold": tasks[chosen].gold, "right": rates[chosen]}
        return Outcome(samples, facts)

    def challenge(self, document: str | None, rng: Random) -> Episode:
        """Line 6: choose a form, then attempt tasks G at a time until one is valid or N is reached.

        Returns the attempts and the facts of the choice. Without a document the form is free and the answer type
        random.
        """
        form, kind, facts = yield from self._form(document, rng)
        if document is None:
            turn = self.ask[None](answer_type=kind)
        elif form == MCQ:
            turn = self.ask[MCQ](document=document)
        else:
            turn = self.ask[FREE](document=document, answer_type=kind)
        attempts: list[Attempt] = []
        while len(attempts) < self.attempts and not any(isinstance(task, Question) for _, task in attempts):
            replies = yield [turn] * min(self.group, self.attempts - len(attempts))
            attempts += [(reply, self._read(reply.text, form, kind)) for reply in replies]
        return attempts, facts

    def _form(self, document: str | None, rng: Random) -> Episode:
        """The form of the task, its answer type, and whether the choice was readable (Appendix 11)."""
        if document is None:
            return FREE, rng.choice(ANSWER_TYPES), {}
        if FREE not in self.task_types:
            return MCQ, None, {"mcq": 1.0}
        reply = yield self.select(document=document)
        chosen = read_format(reply.text)
        facts = {"format_unreadable": float(chosen is None)}
        if chosen is None:
            chosen = (MCQ, None) if rng.random() < 0.5 else (FREE, rng.choice(ANSWER_TYPES))
        form, kind = chosen if chosen[0] == FREE or "mcq" in self.task_types else (FREE, None)
        if form == FREE and kind is None:
            kind = "String"  # what suits multiple choice holds names rather than numbers
        return form, kind, facts | {"mcq": float(form == MCQ)}

    def _read(self, text: str, form: str, kind: str | None) -> Question | str:
        return read_mcq(text) if form == MCQ else read_free(text, kind, self.booleans)

    def answer(self, tasks: Sequence[Question]) -> Episode:
        """Line 9: ask the Reasoner each task G times, without the document; return the answers of each task.

        With `reuse` equal tasks are asked once and share their answers.
        """
        asked = list(dict.fromkeys(tasks)) if self.reuse else list(tasks)
        if not asked:  # an episode may not yield an empty list
            return []
        turns: list[Turn] = [self.solver(question=task.text) for task in asked for _ in range(self.group)]
        replies = yield turns
        golds = [task for task in asked for _ in range(self.group)]
        verdicts = self._verify([(task, boxed(reply.text)) for task, reply in zip(golds, replies, strict=True)])
        scored = list(zip(replies, verdicts, strict=True))
        groups = [scored[i : i + self.group] for i in range(0, len(scored), self.group)]
        return [groups[asked.index(task)] for task in tasks] if self.reuse else groups

    def _verify(self, pairs: Sequence[tuple[Question, str | None]]) -> list[bool | None]:
        kinds = {MCQ: "choice", **VERIFIERS[self.verifier]}
        items = list(dict.fromkeys((kinds.get(task.kind, "exact"), answer, task.gold) for task, answer in pairs))
        verdicts = verify_many(items) if self.verifier == "math" else [verify(*item) for item in items]
        known = {item: verdict.correct for item, verdict in zip(items, verdicts, strict=True)}
        return [known[kinds.get(task.kind, "exact"), answer, task.gold] for task, answer in pairs]

    def _held_out(self, task: Question) -> bool:
        """Whether a task is a validation or test question: it may measure a Challenger, never train a Reasoner."""
        stem = options(task.text)[0] if task.kind == MCQ else task.text
        asked = {text for text in (task.text, stem) if self.world.valid(text) is not False}  # None: nobody knows
        return any(map(self.world.held_out, asked))

    def _facts(
        self,
        document: str | None,
        attempts: Sequence[Attempt],
        tasks: Sequence[Question],
        answers: Sequence[Sequence[Answer]],
        rates: Sequence[float | None],
    ) -> dict[str, Any]:
        """What happened, and what the oracle of the tiny world says about it."""
        faults = [task for _, task in attempts if isinstance(task, str)]
        stems = [options(task.text)[0] if task.kind == MCQ else task.text for task in tasks]
        verdicts = [correct for its in answers for _, correct in its]
        facts: dict[str, Any] = {"attempts": len(attempts), "valid": 1 - len(faults) / len(attempts)}
        facts |= {f"fault/{name}": faults.count(name) / len(attempts) for name in FAULTS}
        facts |= {
            "pass_rate": mean(rates),
            "unscored": mean([correct is None for correct in verdicts]),
            "distinct": len({*tasks}) / len(tasks) if tasks else None,
            "gold_right": mean([self.world.right(task.text, task.gold) for task in tasks]),
            "level": mean([self.world.level(task.text) for task in tasks]),
            "grounded": mean([stem in document for stem in stems]) if document else None,
            "document": document,
            "questions": [task.text for task in tasks],
            "golds": [task.gold for task in tasks],
        }
        return facts


def subsample(attempts: Sequence[Attempt], size: int, rng: Random) -> list[Attempt]:
    """Draw `size` attempts that keep the ratio of valid to invalid ones, with at least one valid if there is any.

    Line 7 of Algorithm 1; the order of the attempts is kept, and fewer than `size` are all taken.
    """
    if len(attempts) <= size:
        return list(attempts)
    valid = [i for i, (_, task) in enumerate(attempts) if isinstance(task, Question)]
    invalid = [i for i, (_, task) in enumerate(attempts) if not isinstance(task, Question)]
    wanted = int(size * len(valid) / len(attempts) + 0.5)
    wanted = max(wanted, size - len(invalid), min(1, len(valid)))
    kept = rng.sample(valid, wanted) + rng.sample(invalid, size - wanted)
    return [attempts[i] for i in sorted(kept)]


def pass_rate(answers: Sequence[Answer]) -> float | None:
    """The share of right answers among those that could be scored; None when none could."""
    return mean([correct for _, correct in answers])
