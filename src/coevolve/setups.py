"""Inference set-ups as episodes that earn nothing: they say what was answered, and at which price.

Every set-up takes a `Room`: solver Roles, dealt to the seats in turn, a question, and how a reply is read. Later
rounds speak prompts/setups, and read \\boxed{} as well.
"""

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from coevolve import prompts
from coevolve.checks import among
from coevolve.driver import Batched, Engine, play, turns_of
from coevolve.parse import answer_line, boxed, tag
from coevolve.prompts import blocks
from coevolve.types import Dialogue, Episode, Outcome, Reply, Role, T, Turn

Read = Callable[[str], str | None]
ACCEPTED = re.compile(r": right\W*$", re.IGNORECASE)
SHOWN_ROUNDS = 2  # how far back a discussion goes: CoMAS's horizon (Table 2)
LIMITS = {"compact": 64, "full": 4096}  # tokens a reply in `ask`; CoMAS, Table 2
SEATS = 4  # of a table, unless told otherwise (CoNL, section 4.1 and appendix E)


def read_answer(text: str) -> str | None:
    """Return the content of the one <answer> pair, or None."""
    return tag(text, "answer")


def majority(answers: Iterable[str | None]) -> tuple[str | None, int]:
    """Return the answer given most often and its votes; ties go to the one seen first, None does not vote."""
    votes = Counter(answer for answer in answers if answer is not None)
    return max(votes.items(), key=lambda item: item[1], default=(None, 0))


@dataclass(frozen=True)
class Room:
    """One conversation: who sits at the table, what is asked, which prompts later rounds use, what was said so far."""

    agents: Sequence[Role]
    question: str
    read: Read = read_answer
    prompt: str = "compact"
    folder: str | None = None
    heard: list[Reply] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.agents:
            raise ValueError("agents must hold at least one solver, got none")
        for agent in self.agents:
            if len(agent.fields) != 1:
                raise ValueError(f"solver must have one placeholder, for the question; got {sorted(agent.fields)}")

    def agent(self, seat: int) -> Role:
        """Return the solver of a seat; with fewer agents than seats they come round again."""
        return self.agents[seat % len(self.agents)]

    def solve(self, seat: int = 0) -> Turn:
        """Return the turn in which a seat solves the question with its own prompt."""
        agent = self.agent(seat)
        (name,) = agent.fields
        return agent(**{name: self.question})

    def speak(self, seat: int, script: str, **fields: str) -> Turn:
        """Return the turn in which a seat speaks a prompt of prompts/setups."""
        role = prompts.load("setups", script, self.prompt, folder=self.folder)
        return self.seated(role(question=self.question, **fields), seat)

    def seated(self, turn: Turn, seat: int) -> Turn:
        """Return a turn as the policy of a seat speaks it, with the temperature and length that it solves with."""
        agent = self.agent(seat)
        return replace(turn, policy=agent.policy, temperature=agent.temperature, max_tokens=agent.max_tokens)

    def hear(self, *turns: Turn) -> Dialogue[list[Reply]]:
        """Ask turns, all at once, and return and remember the replies."""
        said: list[Reply] = yield [*turns]
        self.heard.extend(said)
        return said

    def host(self, talk: Dialogue[T]) -> Dialogue[T]:
        """Play another dialogue in this room: turn i of every wave is spoken by seat i."""
        said: list[Reply] | None = None
        while True:
            try:
                asked = turns_of(talk.send(said), "a conversation")
            except StopIteration as stop:
                result: T = stop.value
                return result
            said = yield from self.hear(*(self.seated(turn, seat) for seat, turn in enumerate(asked)))

    def answer(self, reply: Reply) -> str | None:
        """Return what a reply answers: in the solver's form, or boxed as prompts/setups ask for it."""
        answer = self.read(reply.text)
        return boxed(reply.text) if answer is None else answer

    def shown(self, reply: Reply) -> str:
        """Return a solution as others read it: whole, but the tiny backbone only knows bare boxed answers."""
        answer = self.answer(reply)
        return reply.text if self.prompt != "compact" or answer is None else f"\\boxed{{{answer}}}"

    def outcome(self, answer: str | None, **facts: object) -> Outcome:
        """End with an answer: the facts tell it, whether no reply was cut off, and the tokens read and written."""
        spent = {
            "finished": all(reply.finished for reply in self.heard),
            "tokens_in": sum(len(reply.prompt_ids) for reply in self.heard),
            "tokens_out": sum(len(reply.ids) for reply in self.heard),
        }
        return Outcome(facts={"answer": answer, **spent, **facts})

    def voted(self, answers: list[str | None]) -> Outcome:
        """End with the answer of the majority."""
        answer, votes = majority(answers)
        return self.outcome(answer, answers=answers, votes=votes)


def vanilla(room: Room) -> Episode:
    """Ask once."""
    (reply,) = yield from room.hear(room.solve())
    return room.outcome(room.read(reply.text))


def consistency(room: Room, samples: int = 5) -> Episode:
    """Self-Consistency: sample several times and take the majority (CoNL, appendix E: 5 samples)."""
    replies = yield from room.hear(*map(room.solve, range(samples)))
    return room.voted([room.read(reply.text) for reply in replies])


def debate(room: Room, seats: int = SEATS, rounds: int = 3) -> Episode:
    """Debate: everybody solves, then reads the others and solves again; majority of the last round.

    CoNL, appendix E: 4 agents, 3 rounds. (MASLab, which CoMAS uses: 3 agents, 2 rounds, a model sums up.)
    """
    replies = yield from room.hear(*map(room.solve, range(seats)))
    for _ in range(rounds - 1):
        shown = [blocks.discussion([(room.shown(reply), ())]) for reply in replies]
        turns = []
        for seat, own in enumerate(shown):
            others = "\n".join(shown[:seat] + shown[seat + 1 :])
            turns.append(room.speak(seat, "debate", own=own, others=others))
        replies = yield from room.hear(*turns)
    return room.voted([room.answer(reply) for reply in replies])


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

    table = CoNL(agents=seats, prompt=room.prompt, prompt_folder=room.folder)
    talk = yield from room.host(table.converse(room.question))
    answers = [answer_line(text) for text in talk.revised]
    return room.outcome(answers[talk.after.index(max(talk.after))], answers=answers, scores=talk.after)


SETUPS: dict[str, Callable[..., Episode]] = {
    play_out.__name__: play_out for play_out in (vanilla, consistency, autogen, debate, self_refine, top_ranked)
}
TEMPERATURES = {  # 0.7 where votes or personas need variety: CoMAS's evaluation temperature (Table 2)
    name: 0.7 if name in ("consistency", "debate", "top_ranked") else 0.0 for name in SETUPS
}


def find(name: str) -> Callable[..., Episode]:
    """Return a set-up by its name; ValueError for an unknown one."""
    among("setup", name, SETUPS)
    return SETUPS[name]


def limit(setup: str, prompt: str = "compact", seats: int = SEATS) -> int:
    """Return the tokens a reply in `ask`: LIMITS, and with compact `top_ranked` as much again for a seat above four.

    Its reviews and rankings name every other agent; with all of them cut off, the first agent would be ranked top.
    """
    more = max(0, seats - SEATS) if (setup, prompt) == ("top_ranked", "compact") else 0
    return LIMITS[prompt] * (1 + more)


class Speaker(Protocol):
    """A model that answers turns in batches: a Policy or a Team."""

    def generate(self, turns: list[Turn], temperature: float = 1.0, max_tokens: int = 64) -> list[Reply]:
        """Answer turns, in their order."""


def ask(
    speaker: Engine | Speaker,
    question: str | Sequence[str],
    setup: str = "vanilla",
    *,
    policies: Sequence[str] = (),
    solver: Role | None = None,
    read: Read = read_answer,
    prompt: str = "compact",
    folder: str | None = None,
    temperature: float | None = None,
    max_tokens: int | None = None,
    seed: int = 0,
    **numbers: int,
) -> Any:
    """Answer one question, or a list of them, under a set-up; return the facts (a dict), or a list of them.

    The `policies` of a Team take the seats in turn (default: the one of the solver). `solver` (default: MAE's) and
    `read` belong together; `prompt="full"` is for real models. `numbers` are the set-up's own: samples, seats, rounds,
    iterations, turns. `max_tokens` (default: the solver's, else `limit`) is a reply's; the answer depends on all
    replies of a conversation, so one that was cut off makes the fact `finished` False, and there is a warning.
    """
    engine = speaker if isinstance(speaker, Engine) else Batched(partial(speaker.generate, max_tokens=64))
    play_out = find(setup)
    for name, number in numbers.items():
        if number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    solver = solver or prompts.load("mae", "solver", prompt, folder=folder)
    heat = TEMPERATURES[setup] if temperature is None else temperature
    most = max_tokens or solver.max_tokens or limit(setup, prompt, numbers.get("seats", SEATS))
    solver = replace(solver, temperature=heat, max_tokens=most)
    solvers = [replace(solver, policy=name) for name in policies or (solver.policy,)]
    questions = [question] if isinstance(question, str) else question
    episodes = [play_out(Room(solvers, one, read, prompt, folder), **numbers) for one in questions]
    facts = [outcome.facts for outcome in play(episodes, engine, (seed,))]
    cut = sum(not found["finished"] for found in facts)
    if cut:
        warnings.warn(
            f"replies were cut off at max_tokens={most} in {cut} of {len(facts)} conversations (setup "
            f"{setup!r}): their answers may not be what the agents meant",
            stacklevel=2,
        )
    return facts[0] if isinstance(question, str) else facts
