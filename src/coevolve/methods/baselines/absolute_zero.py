"""AZR (Absolute Zero) as MAE's and SPICE's Table 1 use it: propose and solve tasks that an executor can verify.

Three modes as in the original: deduction (give the value), abduction (find the input), induction (find the program
behind examples). No judge, no questions in natural language. In the tiny world the tasks are its expressions, equations
and programs; in any other world they are Python programs, run in the sandbox.
"""

import tomllib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Literal

from pydantic import PositiveInt

from coevolve import plugins
from coevolve.methods.base import Method
from coevolve.methods.format_reward import format_reward
from coevolve.rollout.pools import Pool
from coevolve.text import prompts
from coevolve.text.parse import boxed, tag
from coevolve.types import Episode, Outcome, Turn
from coevolve.worlds import World

MODES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))  # families, first tasks
Paper = Literal["mae", "spice"]
STEPS: dict[Paper, int] = {"mae": 100, "spice": 640}  # MAE, section 5.1; SPICE, Table 5


class AZR(Method):
    """Self-play with a verifier in the judge's place; baselines per role and mode (Task-Relative REINFORCE++).

    The world is what is evaluated, and held out of the tasks.
    """

    seeded: ClassVar[bool] = False
    TRAINING: ClassVar[Mapping[str, Any]] = {"steps": 100}  # MAE, section 5.1

    paper: Paper = "mae"
    """The paper whose prompts are used: answers in tags (mae) or boxed (spice)."""

    attempts: PositiveInt = 5
    """Solver samples that estimate a proposal's learnability."""

    solves: PositiveInt = 4
    """Solver samples per episode that are trained on."""

    def define_roles(self) -> None:
        """Choose the language of the tasks, and make the Proposer and the Solver."""
        if self.world.name == "tiny":
            self.language = "tiny"  # of the tasks
            prompt_file = ("mae", "proposer_reference")
        else:
            self.language = "python"
            prompt_file = ("azr", "proposer")
        # The executor reads, runs and verifies tasks.
        self.executor: Any = plugins.load(plugins.EXECUTORS, self.language)
        self.solver = self.role("reasoner" if self.paper == "spice" else "solver", "solver")
        self.proposer = prompts.load_role(
            *prompt_file, self.prompt, name="proposer", folder=self.prompt_folder
        )

    @property
    def paper_name(self) -> str:  # type: ignore[override]
        """The paper that the user chose."""
        return self.paper

    @property
    def PAPER(self) -> Mapping[str, Any]:  # type: ignore[override]
        """Eight attempts and one solution are the official code, as SPICE's Table 5 and Appendix 8 describe it."""
        return {"paper": self.paper, "steps": STEPS[self.paper], "attempts": 8, "solves": 1}

    @cached_property
    def pools(self) -> dict[str, Pool]:
        """One buffer of verified tasks per mode."""
        return {mode: Pool(map(str.strip, table[self.language])) for mode, table in MODES.items()}

    def before_run(self) -> None:
        """Run a first task, so that a machine without a sandbox is refused before a model loads."""
        self.executor.read(self.pools["deduction"].items[0])

    def episode(self, rng: Random) -> Episode:
        """Propose a task like one of the buffer's, measure its learnability, then solve tasks of that mode."""
        mode = rng.choice(list(MODES))
        buffer = self.pools[mode].view()
        proposal = yield self.proposer(reference=buffer.sample(rng))
        question, rate = tag(proposal.text, "question"), None
        if question is not None and self.fits(question, mode):
            attempts = yield [self.ask(question)] * self.attempts
            rate = sum(self.verified(question, attempt.text) for attempt in attempts) / self.attempts
            if not self.world.held_out(question):
                buffer.add(question)
        asked = [buffer.sample(rng) for _ in range(self.solves)]
        replies = yield [self.ask(q) for q in asked]
        rights = [self.verified(q, reply.text) for q, reply in zip(asked, replies, strict=True)]
        rewards = [solver_reward(right, self.format(reply.text)) for reply, right in zip(replies, rights, strict=True)]
        samples = [proposal.earns(proposer_reward(rate, format_reward(proposal.text, "question")), f"propose {mode}")]
        samples += [reply.earns(reward, f"solve {mode}") for reply, reward in zip(replies, rewards, strict=True)]
        return Outcome(samples, {mode: buffer.added}, (mode, question, rate, rights))

    def read_answer(self, text: str) -> str | None:
        """Return what a reply answers, as the paper's prompt asks for it: in tags, or boxed."""
        return boxed(text) if self.paper == "spice" else tag(text, "answer")

    def fits(self, question: str, mode: str) -> bool:
        """Whether a text is a task of a mode."""
        task = self.executor.read(question)
        return task is not None and task.family in (mode, *MODES[mode]["families"])

    def ask(self, task: str) -> Turn:
        """Ask the Solver a task: it reads no more of it than the executor shows."""
        return self.solver(question=self.executor.read(task).question)

    def verified(self, question: str, text: str) -> bool:
        """Whether the executor accepts what a reply answers."""
        return bool(self.executor.is_correct(question, self.read_answer(text)))

    def format(self, text: str) -> float:
        """Return the format reward of an answer: of its tags, or 1 for one box that can be read."""
        return float(self.read_answer(text) is not None) if self.paper == "spice" else format_reward(text, "answer")

    def observe(self, outcome: Outcome, world: World) -> dict[str, Any]:
        """How proposing and solving went."""
        mode, question, rate, rights = outcome.trace
        shares = {"valid": float(rate is not None), "right": sum(rights) / len(rights)}
        return {**shares, "difficulty": None if rate is None else 1 - rate, "proposal": question, "mode": mode}


def proposer_reward(rate: float | None, format: float) -> float:
    """Learnability: 1 - solve rate, but nothing for tasks always or never solved; -0.5 invalid, -1 ill-formed."""
    if rate is None:
        return -1.0 if format < 1 else -0.5
    return 0.0 if rate in (0.0, 1.0) else 1 - rate


def solver_reward(right: bool, format: float) -> float:
    """1 for a verified answer, -0.5 for a wrong but well-formed one, -1 for one that does not parse."""
    return -1.0 if format < 1 else 1.0 if right else -0.5
