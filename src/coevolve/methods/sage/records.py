"""What an episode of SAGE leaves behind, for its rewards and metrics."""

from dataclasses import dataclass
from typing import NamedTuple

from coevolve.types import Reply


class Task(NamedTuple):
    """A question and what verifies its answers, as worlds, D and its checkpoints hold them."""

    question: str
    kind: str  # math or code
    verifier: str  # a gold answer, or the tests of a program


class ProposedTask(NamedTuple):
    """The task in a proposal; a field that does not parse is None."""

    question: str | None
    kind: str | None
    verifier: str | None

    @property
    def complete(self) -> Task | None:
        """The task if all of it parses, else None."""
        if self.question is None or self.kind is None or self.verifier is None:
            return None
        return Task(self.question, self.kind, self.verifier)


@dataclass(frozen=True)
class Challenge:
    """A proposed task, assessed by the Critic, the verifier and attempts (lines 5 to 9).

    The defaults are those of a task without a question.
    """

    task: ProposedTask
    quality: float = 0.0  # s_q
    valid: bool = False  # whether the verifier can judge anything
    accepted: bool = False  # by the verifier check and the quality gate
    judgement: Reply | None = None  # the Critic's
    attempts: tuple[Reply, ...] = ()
    difficulty: float | None = None  # r_d; None: no attempt could be scored


@dataclass(frozen=True)
class Plan:
    """A reply of the Planner and the Critic's judgement of it (lines 15 to 17)."""

    reply: Reply
    text: str | None  # None: the reply does not parse
    judgement: Reply | None  # None: a plan that does not parse is not judged
    score: float  # s_p; 0.0 for a plan that does not parse
    used: str | None  # what the Solver reads; None below the threshold


@dataclass(frozen=True)
class Solution:
    """A task of the dataset and the Solver's verified reply (lines 15 to 22)."""

    task: Task
    plan: Plan | None  # None: a run without planning
    reply: Reply
    correct: float | None  # s_gt; None: the verifier could not tell


@dataclass(frozen=True)
class EpisodeTrace:
    """One pass of the loop, for `SAGE.observe`."""

    reference: Task  # the task shown to the Challenger
    proposal: Reply
    challenge: Challenge
    solutions: list[Solution]

    @property
    def plans(self) -> list[Plan]:
        """The plans of the solutions; none in a run without planning."""
        plans = [solution.plan for solution in self.solutions]
        return [plan for plan in plans if plan is not None]

    @property
    def judgements(self) -> list[Reply]:
        """The Critic's judgements, of the challenge and of the plans."""
        judgements = [self.challenge.judgement]
        judgements += [plan.judgement for plan in self.plans]
        return [judgement for judgement in judgements if judgement is not None]
