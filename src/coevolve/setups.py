"""Inference set-ups as episodes that earn nothing: they say what was answered, and at which price.

Every set-up takes a `Room`: a method whose solver answers, a question, and the policies that take the seats in turn.
Later rounds speak prompts/setups, and read \\boxed{} as well.
"""

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from coevolve import prompts
from coevolve.checks import among
from coevolve.driver import Batched, Engine, play
from coevolve.parse import answer_line, boxed
from coevolve.prompts import blocks
from coevolve.types import Dialogue, Episode, Outcome, Reply, T, Turn

if TYPE_CHECKING:
    from coevolve.method import Method
    from coevolve.policies.causal import Policy

ACCEPTED = re.compile(r": right\W*$", re.IGNORECASE)
SHOWN_ROUNDS = 2  # how far back a discussion goes: CoMAS's horizon (Table 2)
LIMITS = {"compact": 64, "plain": 64, "full": 4096}  # tokens a reply in `ask`; CoMAS, Table 2
SEATS = 4  # of a table, unless told otherwise (CoNL, section 4.1 and appendix E)


def majority(answers: Iterable[str | None]) -> tuple[str | None, int]:
    """Return the answer given most often and its votes; ties go to the one seen first, None does not vote."""
    votes = Counter(answer for answer in answers if answer is not None)
    return max(votes.items(), key=lambda item: item[1], default=(None, 0))


@dataclass(frozen=True)
class Room:
    """One conversation: whose solver, prompts and reading are used, who speaks, and what was said so far."""

    method: "Method"
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
        """Return the turn in which a seat speaks a prompt of prompts/setups."""
        role = prompts.load("setups", script, self.method.prompt, folder=self.method.prompt_folder)
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
        """Return what a reply answers: in the solver's form, or boxed as prompts/setups ask for it."""
        answer = self.method.read_answer(reply.text)
        return boxed(reply.text) if answer is None else answer

    def shown(self, reply: Reply) -> str:
        """Return a solution as others read it: whole, but small models only know bare boxed answers."""
        answer = self.answer(reply)
        return reply.text if self.method.prompt == "full" or answer is None else f"\\boxed{{{answer}}}"

    def outcome(self, answer: str | None, **facts: object) -> Outcome:
        """End with an answer: the facts tell it, whether no reply was cut off, and the tokens read and written."""
        finished = all(reply.finished for reply in self.heard)
        read, written = (sum(len(getattr(reply, ids)) for reply in self.heard) for ids in ("prompt_ids", "ids"))
        spent = {"finished": finished, "tokens_in": read, "tokens_out": written}
        return Outcome(facts={"answer": answer, **spent, **facts})

    def voted(self, answers: list[str | None]) -> Outcome:
        """End with the answer of the majority."""
        answer, votes = majority(answers)
        return self.outcome(answer, answers=answers, votes=votes)

    def summed(self, replies: Sequence[Reply]) -> Episode:
        """End with what a model writes that reads all solutions (MASLab)."""
        solutions = blocks.discussion([(self.shown(reply), ()) for reply in replies])
        (final,) = yield from self.hear(self.speak(0, "summary", discussion=solutions))
        return self.outcome(self.answer(final), answers=[self.answer(reply) for reply in replies])


def vanilla(room: Room) -> Episode:
    """Ask once."""
    (reply,) = yield from room.hear(room.solve())
    return room.outcome(room.method.read_answer(reply.text))


def consistency(room: Room, samples: int = 5) -> Episode:
    """Self-Consistency: sample several times and take the majority (CoNL, appendix E: 5 samples)."""
    replies = yield from room.hear(*map(room.solve, range(samples)))
    return room.voted([room.method.read_answer(reply.text) for reply in replies])


def consistency_summed(room: Room, samples: int = 5) -> Episode:
    """Self-Consistency as in the public code of MASLab, which CoMAS uses: a model reads the samples and answers."""
    replies = yield from room.hear(*map(room.solve, range(samples)))
    return (yield from room.summed(replies))


def debate(room: Room, seats: int = SEATS, rounds: int = 3) -> Episode:
    """Debate (CoNL, appendix E): everybody solves, then reads the others and solves again; the last round votes."""
    replies = yield from _argued(room, seats, rounds)
    return room.voted([room.answer(reply) for reply in replies])


def debate_summed(room: Room, seats: int = 3, rounds: int = 2) -> Episode:
    """Debate as in the public code of MASLab, which CoMAS uses: 3 agents, 2 rounds, and a model sums up."""
    return (yield from room.summed((yield from _argued(room, seats, rounds))))


def _argued(room: Room, seats: int, rounds: int) -> Dialogue[list[Reply]]:
    """Return everybody's last solution of a debate."""
    replies = yield from room.hear(*map(room.solve, range(seats)))
    for _ in range(rounds - 1):
        shown = [blocks.discussion([(room.shown(reply), ())]) for reply in replies]
        others = ["\n".join(shown[:seat] + shown[seat + 1 :]) for seat in range(seats)]
        turns = [room.speak(seat, "debate", own=shown[seat], others=others[seat]) for seat in range(seats)]
        replies = yield from room.hear(*turns)
    return replies


def self_refine(room: Room, iterations: int = 3) -> Episode:
    """Self-Refine: criticise one's own solution and write it anew (CoNL, appendix E: 3 iterations, the last counts)."""
    return (yield from _revise(room, iterations, "feedback", critic=0))


def autogen(room: Room, turns: int = 3) -> Episode:
    """AutoGen: an assistant, and a user's proxy (the second agent, if there is one) that ends it or asks for more.

    The assistant speaks at most 3 times, as in MASLab, which CoMAS uses (section 4.1); no code is executed.
    """
    return (yield from _revise(room, turns - 1, "proxy", critic=1, accepted=ACCEPTED))


def _revise(room: Room, revisions: int, script: str, critic: int, accepted: re.Pattern[str] | None = None) -> Episode:
    """Solve, then hear feedback and solve again, `revisions` times or until the feedback accepts the solution."""
    (reply,) = yield from room.hear(room.solve())
    answers = [room.answer(reply)]
    rounds: list[tuple[str, list[str]]] = []
    for _ in range(revisions):
        solution, before = room.shown(reply), blocks.discussion(rounds[-SHOWN_ROUNDS:])
        (feedback,) = yield from room.hear(room.speak(critic, script, solution=solution, discussion=before))
        if accepted and accepted.search(feedback.text):
            break
        rounds.append((solution, [feedback.text]))
        (reply,) = yield from room.hear(room.speak(0, "revision", discussion=blocks.discussion(rounds[-SHOWN_ROUNDS:])))
        answers.append(room.answer(reply))
    return room.outcome(answers[-1], answers=answers)


def top_ranked(room: Room, seats: int = SEATS) -> Episode:
    """CoNL's four rounds, then the answer of the agent with the highest final score (appendix F; ties: the first).

    Speaks CoNL's own prompts and reads their answer line; the solvers only lend their policies.
    """
    from coevolve.papers.conl.method import CoNL

    table = CoNL(agents=seats, prompt=room.method.prompt, prompt_folder=room.method.prompt_folder)
    talk = yield from room.host(table.converse(room.question))
    answers = [answer_line(text) for text in talk.revised]
    return room.outcome(answers[talk.after.index(max(talk.after))], answers=answers, scores=talk.after)


PLAYED = (vanilla, consistency, consistency_summed, autogen, debate, debate_summed, self_refine, top_ranked)
SETUPS: dict[str, Callable[..., Episode]] = {setup.__name__: setup for setup in PLAYED}
GREEDY = ("vanilla", "autogen", "self_refine")
# 0.7 where votes or personas need variety: CoMAS's evaluation temperature (Table 2).
TEMPERATURES = {name: 0.0 if name in GREEDY else 0.7 for name in SETUPS}


def limit(prompt: str = "compact", seats: int = SEATS) -> int:
    """Return the tokens a reply in `ask`: LIMITS, and with short prompts as much again for each seat above four.

    Their rankings name every other agent; with all of them cut off, the first agent would be ranked top.
    """
    return LIMITS[prompt] * (1 + max(0, seats - SEATS) if prompt != "full" else 1)


def ask(
    speaker: "Engine | Policy",
    question: str | Sequence[str],
    setup: str = "vanilla",
    *,
    policies: Sequence[str] = (),
    method: "Method | None" = None,
    prompt: str = "compact",
    max_tokens: int | None = None,
    seed: int = 0,
    **numbers: int,
) -> Any:
    """Answer one question, or a list of them, under a set-up; return the facts (a dict), or a list of them.

    `method` says who solves and how a reply is read (default: MAE with `prompt`, which is "full" for real models).
    The `policies` of an engine (default: those that the method scores) take the seats in turn. `numbers` are the
    set-up's own: samples, seats, rounds, iterations, turns. `max_tokens` (default: the solver's, else `limit`) is a
    reply's; the answer depends on all replies of a conversation, so one that was cut off makes the fact `finished`
    False, and there is a warning.
    """
    from coevolve.papers.mae.method import MAE

    among("setup", setup, SETUPS)
    if low := [name for name, number in numbers.items() if number < 1]:
        raise ValueError(f"{low[0]} must be at least 1, got {numbers[low[0]]}")
    method = method or MAE(prompt=prompt)
    most = max_tokens or method.answering.max_tokens or limit(method.prompt, numbers.get("seats", SEATS))
    questions = [question] if isinstance(question, str) else question
    rooms = [Room(method, one, policies or method.scored, TEMPERATURES[setup], most) for one in questions]
    engine = speaker if isinstance(speaker, Engine) else Batched(speaker.generate)
    facts = [outcome.facts for outcome in play([SETUPS[setup](room, **numbers) for room in rooms], engine, (seed,))]
    if cut := sum(not found["finished"] for found in facts):
        told = f"replies were cut off at max_tokens={most} in {cut} of {len(facts)} conversations (setup {setup!r})"
        warnings.warn(f"{told}: their answers may not be what the agents meant", stacklevel=2)
    return facts[0] if isinstance(question, str) else facts
