"""AZR (Absolute Zero) as MAE's and SPICE's Table 1 use it: propose and solve tasks that an executor can verify.

Three modes as in the original: deduction (give the value of an expression), abduction (find the input of an
equation), induction (find the program behind examples). No judge, no questions in natural language.
"""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import filterfalse
from random import Random
from typing import Any, ClassVar

from coevolve import prompts
from coevolve.checks import among, at_least
from coevolve.papers.format import format_reward
from coevolve.parse import boxed, tag
from coevolve.pools import Pool
from coevolve.types import Episode, Outcome
from coevolve.worlds import World
from tinyworld import tasks as tiny
from tinyworld.oracle import TinyWorld

MODES = {
    "deduction": ("add", "sub", "mul", "prec", "div", "mod"),
    "abduction": ("eq",),
    "induction": ("code", "ops"),
}
STEPS = {"mae": 100, "spice": 640}  # MAE, section 5.1; SPICE, Table 5
MODE_OF = {family: mode for mode, families in MODES.items() for family in families}


@dataclass(kw_only=True)
class AZR:
    """Self-play with a verifier in the judge's place; baselines per role and mode (Task-Relative REINFORCE++)."""

    TRAINING: ClassVar[dict[str, Any]] = {"steps": 100}  # MAE, section 5.1

    paper: str = "mae"  # in whose table it stands: the solver's prompt, and answers in tags (mae) or boxed (spice)
    attempts: int = 5  # solver samples behind a proposal's learnability
    solves: int = 4  # solver samples trained per episode
    seeds: int = 16  # starting tasks, spread over the modes
    estimator: str = "task_relative"  # within each role and mode
    prompt: str = "compact"
    prompt_folder: str | None = None
    world: World = field(default_factory=TinyWorld, repr=False)  # evaluated and held out: its tasks are made

    def __post_init__(self) -> None:
        at_least(self, attempts=1, solves=1, seeds=1)
        among("paper", self.paper, STEPS)
        source = {"variant": self.prompt, "folder": self.prompt_folder}
        role = "reasoner" if self.paper == "spice" else "solver"
        self.solver = prompts.load(self.paper, role, name="solver", **source)
        self.proposer = prompts.load("mae", "proposer_reference", name="proposer", **source)
        # Eight attempts and one solution are the official code, as SPICE's Table 5 and Appendix 8 describe it.
        self.PAPER = {"paper": self.paper, "steps": STEPS[self.paper], "attempts": 8, "solves": 1}
        self.starts = {mode: self._seeds(mode) for mode in MODES}

    def _seeds(self, mode: str) -> list[str]:
        rng, found, wanted = Random(f"azr {mode}"), [], max(1, self.seeds // len(MODES))
        for _ in range(1000 * wanted):
            if len(found) == wanted:
                return found
            question = tiny.draw(rng, rng.choice(MODES[mode]), 1).question
            if tiny.split(question) == "train" and question not in found:
                found.append(question)
        raise ValueError(f"seeds must be at most {len(MODES) * len(found)}, got {self.seeds}: no more easy tasks")

    @cached_property
    def tasks(self) -> dict[str, Pool]:
        """One buffer of verified tasks per mode."""
        return {mode: Pool(filterfalse(self.world.held_out, its)) for mode, its in self.starts.items()}

    @property
    def pools(self) -> dict[str, Pool]:
        """The buffers, by the names that outcomes add under."""
        return self.tasks

    def episode(self, rng: Random) -> Episode:
        """Propose a task like one of the buffer's, measure its learnability, then solve tasks of that mode."""
        mode = rng.choice(list(MODES))
        buffer = self.tasks[mode].view()
        proposal = yield self.proposer(reference=buffer.sample(rng))
        question = tag(proposal.text, "question")
        task = tiny.read(question) if question else None
        valid = task is not None and MODE_OF.get(task.family) == mode
        rate = None
        if valid:
            attempts = yield [self.solver(question=question)] * self.attempts
            rate = sum(self._verified(question, a.text) for a in attempts) / self.attempts
            if not self._held_out(question):
                buffer.add(question)
        r_proposer = proposer_reward(rate, format_reward(proposal.text, "question"))
        asked = [buffer.sample(rng) for _ in range(self.solves)]
        replies = yield [self.solver(question=q) for q in asked]
        rights = [self._verified(q, reply.text) for q, reply in zip(asked, replies, strict=True)]
        samples = [proposal.earns(r_proposer, f"propose {mode}")]
        samples += [
            reply.earns(solver_reward(right, self._form(reply.text)), f"solve {mode}")
            for reply, right in zip(replies, rights, strict=True)
        ]
        facts = {
            "valid": float(valid),
            "right": sum(rights) / len(rights),
            "reward_proposer": r_proposer,
            "difficulty": None if rate is None else 1 - rate,
            "proposal": question,
            "mode": mode,
        }
        return Outcome(samples, facts, {mode: buffer.added})

    def _verified(self, question: str, text: str) -> bool:
        return tiny.right(question, self.read(text))

    def _held_out(self, question: str) -> bool:
        return tiny.split(question) != "train" or self.world.held_out(question)

    def read(self, text: str) -> str | None:
        """The answer in a reply, in the paper's form."""
        return boxed(text) if self.paper == "spice" else tag(text, "answer")

    def _form(self, text: str) -> float:
        """The format reward of an answer: of its tags, or 1 for one box that can be read."""
        return float(boxed(text) is not None) if self.paper == "spice" else format_reward(text, "answer")


def proposer_reward(rate: float | None, format: float) -> float:
    """Learnability: 1 - solve rate, but nothing for tasks always or never solved; -0.5 invalid, -1 ill-formed."""
    if rate is None:
        return -1.0 if format < 1 else -0.5
    return 0.0 if rate in (0.0, 1.0) else 1 - rate


def solver_reward(right: bool, format: float) -> float:
    """1 for a verified answer, -0.5 for a wrong but well-formed one, -1 for one that does not parse."""
    return -1.0 if format < 1 else 1.0 if right else -0.5
