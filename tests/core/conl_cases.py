"""Scripted conversations of CoNL, and the texts that agents write in them."""

from collections.abc import Callable

from core.conftest import Sums, prompts, scripted, text

from coevolve.methods.conl.method import CoNL
from coevolve.types import Outcome, Turn

Q = "<question>train: 2+3</question>"
Say = Callable[[Turn, int], str]


def make(**fields) -> CoNL:
    return CoNL(world=Sums(), **fields)


def run(
    say: Say,
    count: int = 1,
    **fields,
) -> tuple[list[Outcome], list[Turn]]:
    """Play episodes. `say` gets a turn and the number of its agent, -1 for a compressor."""
    conl = make(**fields)

    def reply_to(turn: Turn) -> str:
        for agent, persona in enumerate(conl.personas):
            if persona in text(turn):
                return say(turn, agent)
        return say(turn, -1)

    return scripted(conl, reply_to, range(count))


def one(say: Say, **fields) -> Outcome:
    """Play one episode."""
    outcomes, _ = run(say, **fields)
    (outcome,) = outcomes
    return outcome


def shown(*answers: object) -> str:
    """Show the agents' solutions as prompts do."""
    lines = []
    for agent, answer in enumerate(answers):
        line = f"Agent {agent}<solution>ANSWER: {answer}</solution>"
        lines.append(line)
    return "\n".join(lines)


def ranked(name: str, *lines: str) -> str:
    """Put comparisons into a tag."""
    content = "\n".join(lines)
    return f"<{name}>\n{content}\n</{name}>"


def critique(target: int, said: str) -> str:
    return f'<critique target="Agent {target}">{said}</critique>'


def paid(outcome: Outcome, role: str, name: str) -> list[float | None]:
    """Return the rewards of a segment of all replies of a role."""
    samples = [sample for sample in outcome.samples if sample.role == role]
    return [sample.reward[name] for sample in samples]


def asked_as(turns: list[Turn], role: str) -> list[str]:
    """Return the prompts of a role."""
    return prompts(turn for turn in turns if turn.role == role)
