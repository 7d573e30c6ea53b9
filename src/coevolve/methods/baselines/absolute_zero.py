"""AZR (Absolute Zero), as in Table 1 of MAE and of SPICE: tasks that an executor can verify.

Three modes as in the original: deduction (give the value), abduction (find the input), induction
(find the program behind examples). There is no judge and no question in natural language. Tasks are
those of the tiny world, or else Python programs, which run in the sandbox.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Literal

from pydantic import PositiveInt

from coevolve import plugins
from coevolve.methods.base import Method
from coevolve.methods.facts import complement, mean_known
from coevolve.methods.format_reward import format_reward
from coevolve.rollout.pools import Pool
from coevolve.text import prompts
from coevolve.text.parse import boxed, tag
from coevolve.types import Dialogue, Episode, Outcome, Turn
from coevolve.worlds import World

# Each mode: the families of the tiny world that belong to it, and the first tasks of its buffer.
MODES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
Paper = Literal["mae", "spice"]
STEPS: dict[Paper, int] = {"mae": 100, "spice": 640}  # MAE, section 5; SPICE, Table 5


@dataclass(frozen=True)
class EpisodeTrace:
    """What an episode leaves behind, for `AZR.observe`."""

    mode: str
    question: str | None  # as proposed; None: the reply holds no question
    solve_rate: float | None  # of the proposed task; None: it is not valid
    verdicts: list[bool]  # of the solutions that are trained on


class AZR(Method):
    """Self-play with a verifier in place of a judge; one baseline per role and mode.

    That is Task-Relative REINFORCE++. The world is evaluated, and held out of the tasks.
    """

    needs_seed_questions: ClassVar[bool] = False
    PAPER_RUN_VALUES: ClassVar[Mapping[str, Any]] = {"steps": 100}  # MAE, section 5

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
        solver_prompt = "reasoner" if self.paper == "spice" else "solver"
        self.solver = self.role(solver_prompt, "solver")
        self.proposer = prompts.load_role(
            *prompt_file, self.prompt, name="proposer", folder=self.prompt_folder
        )

    @property
    def paper_name(self) -> str:  # type: ignore[override]
        """The paper that the user chose."""
        return self.paper

    @property
    def PAPER_METHOD_VALUES(self) -> Mapping[str, Any]:  # type: ignore[override]
        """The values of the official code (SPICE, Table 5 and Appendix 8)."""
        return {
            "paper": self.paper,
            "steps": STEPS[self.paper],
            "attempts": 8,
            "solves": 1,
        }

    @cached_property
    def pools(self) -> dict[str, Pool]:
        """One buffer of verified tasks per mode."""
        buffers = {}
        for mode, table in MODES.items():
            first_tasks = [task.strip() for task in table[self.language]]
            buffers[mode] = Pool(first_tasks)
        return buffers

    def before_run(self) -> None:
        """Run a first task, so that a machine without a sandbox is refused before a model loads."""
        first_task = self.pools["deduction"].items[0]
        self.executor.read(first_task)

    def episode(self, rng: Random) -> Episode:
        """Propose a task, measure its learnability, then solve tasks of the buffer."""
        mode = rng.choice(list(MODES))
        buffer = self.pools[mode].view()

        # Propose a task like one of the buffer's.
        proposal = yield self.proposer(reference=buffer.sample(rng))
        question = tag(proposal.text, "question")
        solve_rate = None
        if question is not None and self.fits(question, mode):
            solve_rate = yield from self.estimate_solve_rate(question)
            if not self.world.held_out(question):
                buffer.add(question)
        proposal_format = format_reward(proposal.text, "question")
        reward = proposer_reward(solve_rate, proposal_format)
        samples = [proposal.earns(reward, f"propose {mode}")]

        # Solve tasks of the same mode.
        tasks = [buffer.sample(rng) for _ in range(self.solves)]
        solutions = yield [self.ask(task) for task in tasks]
        verdicts = []
        for task, solution in zip(tasks, solutions, strict=True):
            is_correct = self.is_verified(task, solution.text)
            reward = solver_reward(is_correct, self.answer_format(solution.text))
            samples.append(solution.earns(reward, f"solve {mode}"))
            verdicts.append(is_correct)
        trace = EpisodeTrace(mode, question, solve_rate, verdicts)
        return Outcome(samples, {mode: buffer.added}, trace)

    def estimate_solve_rate(self, task: str) -> Dialogue[float]:
        """Return the fraction of `attempts` solutions of a task that are correct."""
        attempts = yield [self.ask(task)] * self.attempts
        verdicts = [self.is_verified(task, attempt.text) for attempt in attempts]
        return verdicts.count(True) / self.attempts

    def read_answer(self, text: str) -> str | None:
        """Return the answer in a reply, in the form of the paper's prompt: in tags, or boxed."""
        return boxed(text) if self.paper == "spice" else tag(text, "answer")

    def fits(self, question: str, mode: str) -> bool:
        """Whether a text is a task of a mode."""
        task = self.executor.read(question)
        return task is not None and task.family in (mode, *MODES[mode]["families"])

    def ask(self, task: str) -> Turn:
        """Return the turn in which the Solver reads a task, as far as the executor shows it."""
        return self.solver(question=self.executor.read(task).question)

    def is_verified(self, task: str, text: str) -> bool:
        """Whether the executor accepts the answer in a reply."""
        return bool(self.executor.is_correct(task, self.read_answer(text)))

    def answer_format(self, text: str) -> float:
        """Return the format reward of an answer: its tags', or 1.0 for a readable box."""
        if self.paper == "spice":
            return float(self.read_answer(text) is not None)
        return format_reward(text, "answer")

    def observe(self, outcome: Outcome, world: World) -> dict[str, Any]:
        """Return how proposing and solving went."""
        trace: EpisodeTrace = outcome.trace
        return {
            "valid": float(trace.solve_rate is not None),
            "correct": mean_known(trace.verdicts),
            "difficulty": complement(trace.solve_rate),
            "proposal": trace.question,
            "mode": trace.mode,
        }


def proposer_reward(solve_rate: float | None, format_score: float) -> float:
    """Return the learnability of a task: 1 - solve rate, but 0 if it is always or never solved.

    A solve rate of None stands for an invalid task: -0.5, or -1 if the proposal is ill-formed.
    """
    if solve_rate is None:
        return -1.0 if format_score < 1 else -0.5
    if solve_rate in (0.0, 1.0):
        return 0.0
    return 1 - solve_rate


def solver_reward(is_correct: bool, format_score: float) -> float:
    """Return 1 for a verified answer, -0.5 for an incorrect one, -1 for an ill-formed one."""
    if format_score < 1:
        return -1.0
    return 1.0 if is_correct else -0.5
