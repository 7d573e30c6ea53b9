"""What an episode of SPICE leaves behind, for its rewards and metrics."""

from dataclasses import dataclass

from coevolve.methods.facts import mean_known
from coevolve.methods.spice.parsing import Question
from coevolve.types import Reply


@dataclass(frozen=True)
class Attempt:
    """A reply of the Challenger: a valid task, or the name of the rule that it breaks."""

    reply: Reply
    task: Question | None
    fault: str | None = None  # one of parsing.FAULTS


@dataclass(frozen=True)
class Challenge:
    """The Challenger's work on one document (line 6 of Algorithm 1)."""

    kind: str  # of task: MCQ or an answer type
    # Whether the choice of the kind was; None: no choice was asked for.
    unreadable: bool | None
    attempts: list[Attempt]


@dataclass(frozen=True)
class Answer:
    """A reply of the Reasoner and its verdict."""

    reply: Reply
    correct: bool | None  # None: no verifier could tell


@dataclass(frozen=True)
class AnsweredTask:
    """A valid task and the Reasoner's G answers to it (line 9)."""

    task: Question
    answers: list[Answer]

    @property
    def pass_rate(self) -> float | None:
        """The fraction of correct answers among those with a verdict; None without any."""
        return mean_known([answer.correct for answer in self.answers])


@dataclass(frozen=True)
class EpisodeTrace:
    """One document, for `SPICE.observe`."""

    document: str | None  # None: a run without a corpus
    challenge: Challenge
    answered: list[AnsweredTask]  # the valid tasks among the attempts kept by line 7
    chosen: AnsweredTask | None  # the task that trains the Reasoner (line 16)
