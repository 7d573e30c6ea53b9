"""Scripted conversations of CoNL, and the texts that agents write in them."""

from collections.abc import Callable, Iterable

from core.conftest import Sums, prompts, scripted, text

from coevolve.methods.conl.method import CoNL
from coevolve.types import Outcome, Turn

QUESTION = "<question>train: 2+3</question>"
CORRECT = "ANSWER: 5"
WRONG = "ANSWER: 6"
REVISED = f"<revised_solution>{CORRECT}</revised_solution>"
# Returns the reply to a turn of an agent; the agent's number is -1 in the memory buffer's turns.
ReplyTo = Callable[[Turn, int], str]


def make_conl(**fields) -> CoNL:
    """Make CoNL on a world with one question."""
    return CoNL(world=Sums(), **fields)


def play_conversations(
    reply_to: ReplyTo, count: int = 1, **fields
) -> tuple[list[Outcome], list[Turn]]:
    """Play conversations with the seeds from 0; return their outcomes and all turns."""
    conl = make_conl(**fields)

    def reply_by_persona(turn: Turn) -> str:
        for agent, persona in enumerate(conl.personas):
            if persona in text(turn):
                return reply_to(turn, agent)
        return reply_to(turn, -1)

    return scripted(conl, reply_by_persona, range(count))


def outcome_of(reply_to: ReplyTo, **fields) -> Outcome:
    """Play one conversation; return its outcome."""
    (outcome,), _ = play_conversations(reply_to, **fields)
    return outcome


def turns_of(reply_to: ReplyTo, **fields) -> list[Turn]:
    """Play one conversation; return its turns."""
    _, turns = play_conversations(reply_to, **fields)
    return turns


def by_role(replies: dict[str, str], otherwise: str) -> ReplyTo:
    """Return a speaker that replies by the role alone."""
    return lambda turn, agent: replies.get(turn.role, otherwise)


def solution_block(*answers: object) -> str:
    """Show the agents' solutions as prompts do."""
    lines = []
    for agent, answer in enumerate(answers):
        line = f"Agent {agent}<solution>ANSWER: {answer}</solution>"
        lines.append(line)
    return "\n".join(lines)


def ranking_text(name: str, *lines: str) -> str:
    """Write a ranking of one comparison a line in the pair of tags `name`."""
    content = "\n".join(lines)
    return f"<{name}>\n{content}\n</{name}>"


def critique_text(target: int, content: str) -> str:
    """Write a critique of an agent's solution."""
    return f'<critique target="Agent {target}">{content}</critique>'


def rewards_of(outcome: Outcome, role: str, segment: str) -> list[float | None]:
    """Return the rewards of a segment in all replies of a role."""
    samples = [sample for sample in outcome.samples if sample.role == role]
    return [sample.reward[segment] for sample in samples]


def prompts_of(turns: Iterable[Turn], role: str) -> list[str]:
    """Return the prompts of a role."""
    return prompts(turn for turn in turns if turn.role == role)
