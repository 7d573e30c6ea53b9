"""CoNL's conversation as an inference strategy."""

from coevolve.evaluation.conversation import DEFAULT_AGENTS, Room
from coevolve.text.parse import answer_line
from coevolve.types import Episode


def top_ranked(room: Room, agents: int = DEFAULT_AGENTS) -> Episode:
    """Play CoNL's four rounds and take the answer with the highest final score (appendix F).

    Ties go to the first agent. CoNL's own prompts are spoken and its answer line is read; the room
    gives only the policies, the temperature and the limit.
    """
    # Only runs that use this strategy need it.
    from coevolve.methods.conl.method import CoNL

    method = room.method
    conl = CoNL(agents=agents, prompt=method.prompt, prompt_folder=method.prompt_folder)
    conversation = yield from room.run_inside(conl.converse(room.question))
    answers = [answer_line(text) for text in conversation.revised]
    scores = conversation.final_scores
    best_agent = scores.index(max(scores))
    return room.outcome(answers[best_agent], answers=answers, scores=scores)
