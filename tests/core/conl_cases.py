"""Scripted conversations of CoNL, and the texts that agents write in them."""

from collections.abc import Callable

from core.conftest import Sums, prompts, scripted, text

from coevolve.methods.conl.method import CoNL
from coevolve.types import Outcome, Turn

Q = "<question>train: 2+3</question>"


def make(**fields) -> CoNL:
    return CoNL(world=Sums(), **fields)


def run(
    say: Callable[[Turn, int], str], count: int = 1, **fields
) -> tuple[list[Outcome], list[Turn]]:
    """Play episodes. `say` gets a turn and the number of its agent, -1 for a compressor."""
    conl = make(**fields)

    def reply_to(turn: Turn) -> str:
        for agent, persona in enumerate(conl.personas):
            if persona in text(turn):
                return say(turn, agent)
        return say(turn, -1)

    return scripted(conl, reply_to, range(count))


def one(say: Callable[[Turn, int], str], **fields) -> Outcome:
    outcomes, _ = run(say, **fields)
    return outcomes[0]


def shown(*answers: object) -> str:
    """Show the agents' solutions as prompts do."""
    lines = []
    for agent, answer in enumerate(answers):
        lines.append(f"Agent {agent}<solution>ANSWER: {answer}</solution>")
    return "\n".join(lines)


def ranked(name: str, *lines: str) -> str:
    return "\n".join([f"<{name}>", *lines, f"</{name}>"])


def critique(target: int, said: str) -> str:
    return f'<critique target="Agent {target}">{said}</critique>'


def paid(outcome: Outcome, role: str, name: str) -> list[float | None]:
    return [sample.reward[name] for sample in outcome.samples if sample.role == role]


def asked_as(asked: list[Turn], role: str) -> list[str]:
    return prompts(turn for turn in asked if turn.role == role)
