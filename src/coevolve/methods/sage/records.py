"""What an episode of SAGE leaves behind, for its metrics."""

from dataclasses import dataclass

from coevolve.types import Reply

Task = tuple[str | None, str | None, str | None]  # question, kind, verifier: a gold answer or tests


@dataclass(frozen=True)
class Challenge:
    """A proposed task and what the Critic, the verifier and the Solver's attempts say about it (lines 5 to 9)."""

    task: Task
    quality: float = 0.0  # s_q
    valid: bool = False  # whether the verifier can judge anything
    accepted: bool = False
    judged: tuple[Reply, ...] = ()  # what the Critic said
    attempts: tuple[Reply, ...] = ()
    difficulty: float | None = None  # r_d; None: no attempt could be scored


@dataclass(frozen=True)
class Plan:
    """What the Planner said about a question, and the Critic about that (lines 15 to 17)."""

    reply: Reply
    text: str | None  # None: it does not parse
    verdict: Reply | None  # what the Critic said of a plan that parses
    score: float  # s_p; 0.0 where it does not parse
    used: str | None  # what the Solver reads; None below the threshold


@dataclass(frozen=True)
class Played:
    """One pass of the loop, for `SAGE.observe`."""

    reference: str
    proposal: Reply
    challenge: Challenge
    drawn: list[tuple[str, str, str]]
    plans: list[Plan | None]  # None: a run without planning
    replies: list[Reply]
    correct: list[float | None]
    judged: list[Reply]
