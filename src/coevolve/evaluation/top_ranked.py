"""CoNL's conversation as an inference strategy."""

from coevolve.evaluation.conversation import DEFAULT_AGENTS, Conversation
from coevolve.text.parse import answer_line
from coevolve.types import Episode


def top_ranked(conversation: Conversation, agents: int = DEFAULT_AGENTS) -> Episode:
    """Play CoNL's four rounds and take the answer with the highest final score (appendix F).

    Ties go to the first agent. CoNL's own prompts are spoken and its answer line is read. The
    conversation gives only the policies, the temperature and the limit.
    """
    # Only runs that use this strategy need it.
    from coevolve.methods.conl.method import CoNL

    method = conversation.method
    conl = CoNL(
        agents=agents,
        w_consensus=0.0,  # nothing is rewarded, so any number of agents will do
        prompt=method.prompt,
        prompt_folder=method.prompt_folder,
    )
    trace = yield from conversation.run_inside(conl.converse(conversation.question))
    answers = [answer_line(text) for text in trace.revised]
    scores = trace.final_scores
    best_agent = scores.index(max(scores))
    return conversation.outcome(answers[best_agent], answers=answers, scores=scores)
