"""Inference set-ups as protocols that earn nothing: they only say what was answered, and at which price.

A set-up makes an episode of (agents, question, read): agents are solver Roles, one per policy, dealt to the seats
in turn; `read` turns a reply into an answer or None. Later rounds speak prompts/setups, and read \\boxed{} as well.
"""

import re
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial, wraps
from typing import TYPE_CHECKING

from coevolve import prompts
from coevolve.checks import among
from coevolve.driver import Batched, Engine, play
from coevolve.parse import answer_line, boxed, tag
from coevolve.prompts import blocks
from coevolve.types import Episode, Outcome, Reply, Role, Turn

if TYPE_CHECKING:
    from coevolve.papers.conl.method import CoNL

Read = Callable[[str], str | None]
Talk = Generator[Turn | list[Turn], Reply | list[Reply], tuple[str | None, dict[str, object]]]
ACCEPTED = re.compile(r": right\W*$", re.IGNORECASE)
SHOWN_ROUNDS = 2  # how far back a discussion goes: CoMAS's horizon (Table 2)
TEMPERATURES = {  # where votes or personas need variety: CoMAS's evaluation temperature (Table 2)
    "vanilla": 0.0,
    "consistency": 0.7,
    "autogen": 0.0,
    "debate": 0.7,
    "self_refine": 0.0,
    "top_ranked": 0.7,
}
LIMITS = {"compact": 64, "full": 4096}  # tokens a reply in `ask`; CoMAS, Table 2
SEATS = 4  # of a table, unless told otherwise (CoNL, section 4.1 and appendix E)


def read_answer(text: str) -> str | None:
    """The content of the one answer pair."""
    return tag(text, "answer")


def majority(answers: Iterable[str | None]) -> tuple[str | None, int]:
    """The answer given most often and its votes; ties go to the one seen first, None does not vote."""
    votes = Counter(answer for answer in answers if answer is not None)
    return max(votes.items(), key=lambda item: item[1], default=(None, 0))


@dataclass(frozen=True)
class Room:
    """Who sits at the table, what is asked, and which prompts the later rounds use."""

    agents: Sequence[Role]
    question: str
    read: Read
    prompt: str = "compact"
    folder: str | None = None

    def __post_init__(self) -> None:
        if not self.agents:
            raise ValueError("agents must hold at least one solver, got none")
        for agent in self.agents:
            if len(agent.fields) != 1:
                raise ValueError(f"solver must have one placeholder, for the question; got {sorted(agent.fields)}")

    def agent(self, seat: int) -> Role:
        """The solver that sits there; with fewer agents than seats they come round again."""
        return self.agents[seat % len(self.agents)]

    def solve(self, seat: int = 0) -> Turn:
        """The seat's own solver prompt."""
        agent = self.agent(seat)
        (name,) = agent.fields
        return agent(**{name: self.question})

    def speak(self, seat: int, script: str, **fields: str) -> Turn:
        """A prompt of prompts/setups, spoken by the seat's policy as hot and as long as it solves."""
        return self.seated([_script(script, self.prompt, self.folder)(question=self.question, **fields)], seat)[0]

    def seated(self, turns: Sequence[Turn], first: int = 0) -> list[Turn]:
        """The turns of a wave as the policies from seat `first` on speak them, as hot and as long as they solve."""
        agents = [self.agent(first + i) for i in range(len(turns))]
        return [
            replace(turn, policy=agent.policy, temperature=agent.temperature, max_tokens=agent.max_tokens)
            for turn, agent in zip(turns, agents, strict=True)
        ]

    def answer(self, reply: Reply) -> str | None:
        """What a reply answers: in the solver's form, or boxed as prompts/setups ask for it."""
        answer = self.read(reply.text)
        return boxed(reply.text) if answer is None else answer

    def shown(self, reply: Reply) -> str:
        """How a solution is shown to others: whole, but the tiny backbone only knows bare boxed answers."""
        answer = self.answer(reply)
        return reply.text if self.prompt != "compact" or answer is None else f"\\boxed{{{answer}}}"


@lru_cache(maxsize=64)
def _script(name: str, variant: str, folder: str | None) -> Role:
    return prompts.load("setups", name, variant, folder=folder)


def _relayed(talk: Generator, asks: Callable = lambda asked: asked, hears: Callable = lambda said: None) -> Generator:
    """The same conversation with its turns as `asks` changes them; `hears` is told what was said to them."""
    said = None
    while True:
        try:
            asked = talk.send(said)
        except StopIteration as stop:
            return stop.value
        said = yield asks(asked)
        hears(said)


def _setup(talk: Callable[..., Talk]) -> Callable[..., Episode]:
    """Make a set-up of a conversation that returns its answer and further facts."""

    @wraps(talk)
    def episode(
        agents: Sequence[Role],
        question: str,
        read: Read = read_answer,
        *,
        prompt: str = "compact",
        folder: str | None = None,
        **numbers: int,
    ) -> Episode:
        for name, number in numbers.items():
            if number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}")
        heard: list[Reply] = []

        def hears(said: Reply | list[Reply]) -> None:
            heard.extend(said if isinstance(said, list) else [said])

        room = Room(agents, question, read, prompt, folder)
        answer, facts = yield from _relayed(talk(room, **numbers), hears=hears)
        spent = {
            "tokens_in": sum(len(reply.prompt_ids) for reply in heard),
            "tokens_out": sum(len(reply.ids) for reply in heard),
        }
        return Outcome([], {"answer": answer, "finished": all(r.finished for r in heard), **spent, **facts})

    return episode


def _voted(answers: list[str | None]) -> tuple[str | None, dict[str, object]]:
    answer, votes = majority(answers)
    return answer, {"answers": answers, "votes": votes}


@_setup
def vanilla(room: Room) -> Talk:
    """Ask once; the facts hold the answer (None: unreadable), the tokens spent, and whether no reply was cut off."""
    reply = yield room.solve()
    return room.read(reply.text), {}


@_setup
def consistency(room: Room, samples: int = 5) -> Talk:
    """Self-Consistency: sample several times and take the majority (CoNL, appendix E: 5 samples)."""
    replies = yield [room.solve(seat) for seat in range(samples)]
    return _voted([room.read(reply.text) for reply in replies])


@_setup
def debate(room: Room, seats: int = SEATS, rounds: int = 3) -> Talk:
    """Debate: everybody solves, then reads the others and solves again; majority of the last round.

    CoNL, appendix E: 4 agents, 3 rounds. (MASLab, which CoMAS uses: 3 agents, 2 rounds, a model sums up.)
    """
    replies = yield [room.solve(seat) for seat in range(seats)]
    for _ in range(rounds - 1):
        shown = [room.shown(reply) for reply in replies]
        replies = yield [
            room.speak(
                seat, "debate", own=_bare(shown[seat : seat + 1]), others=_bare(shown[:seat] + shown[seat + 1 :])
            )
            for seat in range(seats)
        ]
    return _voted([room.answer(reply) for reply in replies])


def _bare(solutions: Sequence[str]) -> str:
    return blocks.discussion((solution, ()) for solution in solutions)


def _revise(room: Room, script: str, seat: int, revisions: int, settled: re.Pattern[str] | None) -> Talk:
    """Solve, then hear feedback and solve again, `revisions` times or until the feedback settles it."""
    reply, rounds = (yield room.solve()), []
    answers = [room.answer(reply)]
    for _ in range(revisions):
        solution, before = room.shown(reply), blocks.discussion(rounds[-SHOWN_ROUNDS:])
        feedback = yield room.speak(seat, script, solution=solution, discussion=before)
        if settled and settled.search(feedback.text):
            break
        rounds.append((solution, [feedback.text]))
        reply = yield room.speak(0, "revision", discussion=blocks.discussion(rounds[-SHOWN_ROUNDS:]))
        answers.append(room.answer(reply))
    return answers[-1], {"answers": answers}


@_setup
def self_refine(room: Room, iterations: int = 3) -> Talk:
    """Self-Refine: criticise one's own solution and write it anew (CoNL, appendix E: 3 iterations, the last counts)."""
    return (yield from _revise(room, "feedback", 0, iterations, None))


@_setup
def autogen(room: Room, turns: int = 3) -> Talk:
    """AutoGen: an assistant, and a user's proxy (the second agent, if there is one) that ends it or asks for more.

    The assistant speaks at most 3 times, as in MASLab, which CoMAS uses (section 4.1); no code is executed.
    """
    return (yield from _revise(room, "proxy", 1, turns - 1, ACCEPTED))


@lru_cache(maxsize=8)
def _conversation(seats: int, variant: str, folder: str | None) -> "CoNL":
    from coevolve.papers.conl.method import CoNL

    return CoNL(agents=seats, prompt=variant, prompt_folder=folder)


@_setup
def top_ranked(room: Room, seats: int = SEATS) -> Talk:
    """CoNL's four rounds, then the answer of the agent with the highest final score (appendix F; ties: the first).

    Speaks CoNL's own prompts and reads their answer line; the solvers only lend their policies.
    """
    conversation = _conversation(seats, room.prompt, room.folder)
    talk = yield from _relayed(conversation.converse(room.question), room.seated)
    answers = [answer_line(text) for text in talk.revised]
    return answers[talk.after.index(max(talk.after))], {"answers": answers, "scores": talk.after}


SETUPS: dict[str, Callable[..., Episode]] = {
    "vanilla": vanilla,
    "consistency": consistency,
    "autogen": autogen,
    "debate": debate,
    "self_refine": self_refine,
    "top_ranked": top_ranked,
}


def find(name: str) -> Callable[..., Episode]:
    """A set-up by its name; ValueError for an unknown one."""
    among("setup", name, SETUPS)
    return SETUPS[name]


def limit(setup: str, prompt: str = "compact", seats: int = SEATS) -> int:
    """Tokens a reply in `ask`: LIMITS, and with compact `top_ranked` as much again for every seat above four.

    Its reviews and rankings name every other agent; with all of them cut off, the first agent would be ranked top.
    """
    more = max(0, seats - SEATS) if (setup, prompt) == ("top_ranked", "compact") else 0
    return LIMITS[prompt] * (1 + more)


def ask(
    policy: object,
    question: str | Sequence[str],
    setup: str = "vanilla",
    *,
    solver: Role | None = None,
    read: Read = read_answer,
    prompt: str = "compact",
    folder: str | None = None,
    temperature: float | None = None,
    max_tokens: int | None = None,
    seed: int = 0,
    **numbers: int,
) -> dict[str, object] | list[dict[str, object]]:
    """Answer one question, or a list of them, under a set-up; return its facts, or a list of them.

    `policy` is a Policy, any Engine, or a Team, whose trained policies sit in turn. `solver` (default: MAE's)
    and `read` belong together; `prompt="full"` is for real models. `numbers` are the set-up's own: samples, seats,
    rounds, iterations, turns. `max_tokens` (default: the solver's, else `limit`) is a reply's; the answer depends on
    all replies of a conversation, so one that was cut off makes its fact `finished` False, and there is a warning.
    """
    engine: Engine = policy if hasattr(policy, "submit") else Batched(partial(policy.generate, max_tokens=64))
    solver = solver or prompts.load("mae", "solver", prompt, folder=folder)
    play_out, heat = find(setup), TEMPERATURES[setup] if temperature is None else temperature
    most = max_tokens or solver.max_tokens or limit(setup, prompt, numbers.get("seats", SEATS))
    solver = replace(solver, temperature=heat, max_tokens=most)
    solvers = [replace(solver, policy=name) for name in getattr(policy, "trained", None) or [solver.policy]]
    asked = [question] if isinstance(question, str) else list(question)
    episodes = [play_out(solvers, one, read, prompt=prompt, folder=folder, **numbers) for one in asked]
    facts = [outcome.facts for outcome in play(episodes, engine, (seed,))]
    cut = sum(not its["finished"] for its in facts)
    if cut:
        warnings.warn(
            f"replies were cut off at max_tokens={most} in {cut} of {len(facts)} conversations (setup "
            f"{setup!r}): their answers may not be what the agents meant",
            stacklevel=2,
        )
    return facts[0] if isinstance(question, str) else facts
