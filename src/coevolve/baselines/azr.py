"""AZR (Absolute Zero) as MAE's and SPICE's Table 1 use it: propose and solve tasks that an executor can verify.

Three modes as in the original: deduction (give the value of an expression), abduction (find the input of an
equation), induction (find the program behind examples). No judge, no questions in natural language.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import filterfalse
from random import Random
from typing import Annotated, Any, ClassVar

from pydantic import PositiveInt

from coevolve import prompts
from coevolve.method import Method
from coevolve.papers.format import format_reward
from coevolve.parse import boxed, tag
from coevolve.pools import Pool
from coevolve.types import Episode, Outcome
from coevolve.worlds import World

MODES = {"deduction": ("add", "sub", "mul", "prec", "div", "mod"), "abduction": ("eq",), "induction": ("code", "ops")}
STEPS = {"mae": 100, "spice": 640}  # MAE, section 5.1; SPICE, Table 5


@dataclass(kw_only=True)
class AZR(Method):
    """Self-play with a verifier in the judge's place; baselines per role and mode (Task-Relative REINFORCE++).

    The executor is the tiny world's; the world is what is evaluated, and held out of the tasks.
    """

    seeded: ClassVar[bool] = False
    TRAINING: ClassVar[Mapping[str, Any]] = {"steps": 100}  # MAE, section 5.1

    paper: Annotated[str, (*STEPS,)] = "mae"  # type: ignore[misc]  # answers in tags (mae) or boxed (spice)
    attempts: PositiveInt = 5  # solver samples behind a proposal's learnability
    solves: PositiveInt = 4  # solver samples trained per episode

    def __post_init__(self) -> None:
        from tinyworld import tasks

        super().__post_init__()
        self.executor: Any = tasks  # draws, reads and verifies tasks
        self.solver = self.role("reasoner" if self.paper == "spice" else "solver", "solver")
        folder = self.prompt_folder
        self.proposer = prompts.load("mae", "proposer_reference", self.prompt, name="proposer", folder=folder)

    @property
    def PAPER(self) -> Mapping[str, Any]:  # type: ignore[override]
        """Eight attempts and one solution are the official code, as SPICE's Table 5 and Appendix 8 describe it."""
        return {"paper": self.paper, "steps": STEPS[self.paper], "attempts": 8, "solves": 1}

    @cached_property
    def pools(self) -> dict[str, Pool]:
        """One buffer of verified tasks per mode, which begins with five easy ones."""
        easy = {mode: self.executor.easy(MODES[mode], 5, Random(f"azr {mode}")) for mode in MODES}
        return {mode: Pool(filterfalse(self.world.held_out, easy[mode])) for mode in MODES}

    def episode(self, rng: Random) -> Episode:
        """Propose a task like one of the buffer's, measure its learnability, then solve tasks of that mode."""
        mode = rng.choice(list(MODES))
        buffer = self.pools[mode].view()
        proposal = yield self.proposer(reference=buffer.sample(rng))
        question, rate = tag(proposal.text, "question"), None
        task = None if question is None else self.executor.read(question)
        if question is not None and task is not None and task.family in MODES[mode]:
            attempts = yield [self.solver(question=question)] * self.attempts
            rate = sum(self.verified(question, attempt.text) for attempt in attempts) / self.attempts
            if self.executor.split(question) == "train" and not self.world.held_out(question):
                buffer.add(question)
        asked = [buffer.sample(rng) for _ in range(self.solves)]
        replies = yield [self.solver(question=q) for q in asked]
        rights = [self.verified(q, reply.text) for q, reply in zip(asked, replies, strict=True)]
        rewards = [solver_reward(right, self.format(reply.text)) for reply, right in zip(replies, rights, strict=True)]
        reward = proposer_reward(rate, format_reward(proposal.text, "question"))
        samples = [proposal.earns(reward, f"propose {mode}")]
        samples += [reply.earns(reward, f"solve {mode}") for reply, reward in zip(replies, rewards, strict=True)]
        return Outcome(samples, {mode: buffer.added}, (mode, question, rate, rights))

    def read_answer(self, text: str) -> str | None:
        """Return what a reply answers, as the paper's prompt asks for it: in tags, or boxed."""
        return boxed(text) if self.paper == "spice" else tag(text, "answer")

    def verified(self, question: str, text: str) -> bool:
        """Whether the executor accepts what a reply answers."""
        return bool(self.executor.right(question, self.read_answer(text)))

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
