"""CoNL's conversation as an inference strategy."""

from coevolve.evaluation.conversation import SEATS, Room
from coevolve.text.parse import answer_line
from coevolve.types import Episode


def top_ranked(room: Room, seats: int = SEATS) -> Episode:
    """CoNL's four rounds, then the answer of the agent with the highest final score (appendix F; ties: the first).

    Speaks CoNL's own prompts and reads their answer line; the solvers only lend their policies.
    """
    from coevolve.methods.conl.method import CoNL  # only runs that use this strategy need it

    table = CoNL(agents=seats, prompt=room.method.prompt, prompt_folder=room.method.prompt_folder)
    talk = yield from room.host(table.converse(room.question))
    answers = [answer_line(text) for text in talk.revised]
    scores = talk.final_scores
    return room.outcome(answers[scores.index(max(scores))], answers=answers, scores=scores)
