"""Inference set-ups as episodes that earn nothing: they say what was answered, and at which price.

Every set-up takes a `Room`: a method whose solver answers, a question, and the policies that take the seats in turn.
Later rounds speak evaluation/prompts, and read \\boxed{} as well.
"""

import re
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from coevolve.evaluation.conversation import SEATS, SHOWN_ROUNDS, Room
from coevolve.evaluation.top_ranked import top_ranked
from coevolve.methods.base import Method
from coevolve.rollout.engine import BatchedEngine, Engine
from coevolve.rollout.scheduler import play
from coevolve.text import blocks, prompts
from coevolve.types import Dialogue, Episode, Reply
from coevolve.validation import check_choice

if TYPE_CHECKING:
    from coevolve.models.policy import Policy

ACCEPTED = re.compile(r": right\W*$", re.IGNORECASE)
LIMITS = {"compact": 64, "plain": 64, "full": 4096}  # tokens a reply in `ask`; CoMAS, Table 2


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
    method: Method | None = None,
    prompt: prompts.Variant = "compact",
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
    from coevolve.methods.mae.method import MAE

    check_choice("setup", setup, SETUPS)
    if low := [name for name, number in numbers.items() if number < 1]:
        raise ValueError(f"{low[0]} must be at least 1, got {numbers[low[0]]}")
    method = method or MAE(prompt=prompt)
    most = max_tokens or method.answering.max_tokens or limit(method.prompt, numbers.get("seats", SEATS))
    questions = [question] if isinstance(question, str) else question
    rooms = [Room(method, one, policies or method.scored, TEMPERATURES[setup], most) for one in questions]
    engine = speaker if isinstance(speaker, Engine) else BatchedEngine(speaker.generate)
    facts = [outcome.facts for outcome in play([SETUPS[setup](room, **numbers) for room in rooms], engine, (seed,))]
    if cut := sum(not found["finished"] for found in facts):
        told = f"replies were cut off at max_tokens={most} in {cut} of {len(facts)} conversations (setup {setup!r})"
        warnings.warn(f"{told}: their answers may not be what the agents meant", stacklevel=2)
    return facts[0] if isinstance(question, str) else facts
