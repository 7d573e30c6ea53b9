"""A conversation at test time: the question, the agents who answer it, and their replies."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from coevolve.methods.base import Method
from coevolve.rollout.voting import majority
from coevolve.text import blocks, prompts
from coevolve.text.parse import boxed
from coevolve.text.verify.exact import spelling
from coevolve.types import Dialogue, Episode, Outcome, Reply, T, Turn

SHOWN_ROUNDS = 2  # earlier rounds in a prompt: CoMAS's horizon (Table 2)
DEFAULT_AGENTS = 4  # CoNL, section 4.1 and appendix E


@dataclass(frozen=True)
class Conversation:
    """A question and the agents who answer it with the solver of a method.

    Raises ValueError if the solver's prompt has other than one placeholder.
    """

    method: Method
    question: str
    # Agent i speaks with policy i modulo their number.
    policies: Sequence[str] = ("shared",)
    temperature: float | None = None
    # Of a reply; None: the solver's own limit, or else the engine's.
    max_tokens: int | None = None
    replies: list[Reply] = field(default_factory=list)

    def __post_init__(self) -> None:
        placeholders = self.method.answering.fields
        if len(placeholders) != 1:
            raise ValueError(
                "solver must have one placeholder, for the question; "
                f"got {sorted(placeholders)}"
            )

    # Turns.

    def solve(self, agent: int = 0) -> Turn:
        """Return the turn in which an agent solves the question with the solver's prompt."""
        solver = self.method.answering
        (placeholder,) = solver.fields
        turn = solver(**{placeholder: self.question})
        return self.spoken_by(agent, turn)

    def prompted(self, agent: int, prompt: str, **fields: str) -> Turn:
        """Return the turn in which an agent answers a prompt of evaluation/prompts."""
        role = prompts.load_role(
            "strategies",
            prompt,
            self.method.prompt,
            folder=self.method.prompt_folder,
        )
        turn = role(question=self.question, **fields)
        return self.spoken_by(agent, turn)

    def spoken_by(self, agent: int, turn: Turn) -> Turn:
        """Return a turn with an agent's policy and the conversation's temperature and limit."""
        return replace(
            turn,
            policy=self.policies[agent % len(self.policies)],
            temperature=self.temperature,
            max_tokens=self.max_tokens or self.method.answering.max_tokens,
        )

    # Dialogues.

    def ask(self, *turns: Turn) -> Dialogue[list[Reply]]:
        """Ask turns, all at once; return the replies and remember them."""
        replies: list[Reply] = yield [*turns]
        self.replies.extend(replies)
        return replies

    def run_inside(self, dialogue: Dialogue[T]) -> Dialogue[T]:
        """Run another dialogue as part of this conversation and return its result.

        The dialogue yields lists of turns. Agent i's policy speaks turn i of each list. In a round
        these are the agents' own turns; texts to compress are those of any agents.
        """
        replies: list[Reply] | None = None
        while True:
            try:
                requests: Any = dialogue.send(replies)
            except StopIteration as stop:
                return cast(T, stop.value)
            turns = [self.spoken_by(i, turn) for i, turn in enumerate(requests)]
            replies = yield from self.ask(*turns)

    # What replies say.

    def read_answer(self, reply: Reply) -> str | None:
        """Return a reply's answer in the solver's form, or else boxed (evaluation/prompts)."""
        answer = self.method.read_answer(reply.text)
        return boxed(reply.text) if answer is None else answer

    def shown(self, reply: Reply) -> str:
        """Return a solution as other agents read it: whole with full prompts.

        Smaller models have only been trained on bare boxed answers.
        """
        answer = self.read_answer(reply)
        if self.method.prompt == "full" or answer is None:
            return reply.text
        return f"\\boxed{{{answer}}}"

    # The end.

    def outcome(self, answer: str | None, **facts: object) -> Outcome:
        """Return an outcome without samples whose facts are the answer, its cost, and `facts`.

        `finished` is whether no reply was cut off; `tokens_in` and `tokens_out` count the tokens
        of all prompts and all completions.
        """
        tokens_in = sum(len(reply.prompt_ids) for reply in self.replies)
        tokens_out = sum(len(reply.completion_ids) for reply in self.replies)
        summary = {
            "answer": answer,
            "finished": all(reply.finished for reply in self.replies),
            "tokens_in": tokens_in,
            "tokens_out": tokens_out,
        }
        return Outcome(facts={**summary, **facts})

    def end_by_vote(self, answers: list[str | None]) -> Outcome:
        """Return the outcome with the answer of the majority."""
        answer, votes = majority(answers, spelling)
        return self.outcome(answer, answers=answers, votes=votes)

    def end_by_summary(self, replies: Sequence[Reply]) -> Episode:
        """Let the first agent read all solutions and write the final one (MASLab)."""
        solutions = blocks.discussion((self.shown(reply), ()) for reply in replies)
        summary = self.prompted(0, "summary", discussion=solutions)
        (final,) = yield from self.ask(summary)
        answers = [self.read_answer(reply) for reply in replies]
        return self.outcome(self.read_answer(final), answers=answers)
