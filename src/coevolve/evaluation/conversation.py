"""One conversation at test time: whose solver, prompts and reading are used, who speaks, and what was said so far."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from coevolve.methods.base import Method
from coevolve.rollout.voting import majority
from coevolve.text import blocks, prompts
from coevolve.text.parse import boxed
from coevolve.types import Dialogue, Episode, Outcome, Reply, T, Turn

SHOWN_ROUNDS = 2  # how far back a discussion goes: CoMAS's horizon (Table 2)
SEATS = 4  # of a table, unless told otherwise (CoNL, section 4.1 and appendix E)


@dataclass(frozen=True)
class Room:
    """One conversation: whose solver, prompts and reading are used, who speaks, and what was said so far."""

    method: Method
    question: str
    policies: Sequence[str] = ("shared",)  # of the seats; with fewer policies than seats they come round again
    temperature: float | None = None
    max_tokens: int | None = None  # a reply; None: the solver's own limit, or else the engine's
    heard: list[Reply] = field(default_factory=list)

    def __post_init__(self) -> None:
        if len(fields := self.method.answering.fields) != 1:
            raise ValueError(f"solver must have one placeholder, for the question; got {sorted(fields)}")

    def solve(self, seat: int = 0) -> Turn:
        """Return the turn in which a seat solves the question with the solver's prompt."""
        solver = self.method.answering
        return self.seated(solver(**dict.fromkeys(solver.fields, self.question)), seat)

    def speak(self, seat: int, script: str, **fields: str) -> Turn:
        """Return the turn in which a seat speaks a prompt of evaluation/prompts."""
        role = prompts.load_role("strategies", script, self.method.prompt, folder=self.method.prompt_folder)
        return self.seated(role(question=self.question, **fields), seat)

    def seated(self, turn: Turn, seat: int) -> Turn:
        """Return a turn as the policy of a seat speaks it."""
        policy, limit = self.policies[seat % len(self.policies)], self.max_tokens or self.method.answering.max_tokens
        return replace(turn, policy=policy, temperature=self.temperature, max_tokens=limit)

    def hear(self, *turns: Turn) -> Dialogue[list[Reply]]:
        """Ask turns, all at once, and return and remember the replies."""
        said: list[Reply] = yield [*turns]
        self.heard.extend(said)
        return said

    def host(self, talk: Dialogue[T]) -> Dialogue[T]:
        """Play another dialogue, which yields lists of turns, in this room: turn i of every list is seat i's."""
        said: list[Reply] | None = None
        while True:
            try:
                asked: Any = talk.send(said)
            except StopIteration as stop:
                return cast(T, stop.value)
            said = yield from self.hear(*(self.seated(turn, seat) for seat, turn in enumerate(asked)))

    def answer(self, reply: Reply) -> str | None:
        """Return what a reply answers: in the solver's form, or boxed as evaluation/prompts ask for it."""
        answer = self.method.read_answer(reply.text)
        return boxed(reply.text) if answer is None else answer

    def shown(self, reply: Reply) -> str:
        """Return a solution as others read it: whole, but small models only know bare boxed answers."""
        answer = self.answer(reply)
        return reply.text if self.method.prompt == "full" or answer is None else f"\\boxed{{{answer}}}"

    def outcome(self, answer: str | None, **facts: object) -> Outcome:
        """End with an answer: the facts tell it, whether no reply was cut off, and the tokens read and written."""
        finished = all(reply.finished for reply in self.heard)
        return Outcome(
            facts={
                "answer": answer,
                "finished": finished,
                "tokens_in": sum(len(reply.prompt_ids) for reply in self.heard),
                "tokens_out": sum(len(reply.completion_ids) for reply in self.heard),
                **facts,
            }
        )

    def voted(self, answers: list[str | None]) -> Outcome:
        """End with the answer of the majority."""
        answer, votes = majority(answers)
        return self.outcome(answer, answers=answers, votes=votes)

    def summed(self, replies: Sequence[Reply]) -> Episode:
        """End with what a model writes that reads all solutions (MASLab)."""
        solutions = blocks.discussion([(self.shown(reply), ()) for reply in replies])
        (final,) = yield from self.hear(self.speak(0, "summary", discussion=solutions))
        return self.outcome(self.answer(final), answers=[self.answer(reply) for reply in replies])
