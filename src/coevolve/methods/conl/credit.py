"""Credit by segment (section 3.3, Table 1): which part of a reply earns which reward of CoNL.

Segment names are the keys of a sample's rewards and spans; None masks a segment.
"""

from collections.abc import Sequence

from coevolve.methods.conl.parsing import span
from coevolve.methods.conl.records import AgentRewards, ConversationTrace, Critique
from coevolve.text.parse import tag
from coevolve.types import Reply, Sample


def assign_credit(
    conversation: ConversationTrace,
    agent: int,
    rewards: AgentRewards,
    reward_thought: bool = False,
) -> list[Sample]:
    """Return an agent's four replies with the rewards of their segments (Table 1).

    `reward_thought`: the text before a final ranking earns the ranking's reward as well.
    """
    critiques = conversation.critiques[agent]
    verdict = conversation.verdicts[agent]
    return [
        _credit_proposal(conversation.proposals[agent], rewards.solution),
        _credit_review(conversation.reviews[agent], critiques, rewards.diagnostic),
        _credit_revision(conversation.revisions[agent], rewards.solution),
        _credit_verdict(verdict, rewards.consensus, reward_thought),
    ]


def _credit_proposal(proposal: Reply, reward: float | None) -> Sample:
    """Reward the whole reply as the initial solution."""
    return proposal.earns({"initial_solution": reward}, proposal.group_id)


def _credit_review(
    review: Reply, critiques: Sequence[Critique], reward: float | None
) -> Sample:
    """Reward the critiques. The initial ranking is masked, so that no agent games V_init."""
    spans = {
        "initial_ranking": span(review.text, "initial_ranking"),
        "critique": tuple(critique.span for critique in critiques),
    }
    segment_rewards = {
        "initial_ranking": None,
        "critique": reward if critiques else None,
    }
    return review.earns(segment_rewards, review.group_id, spans)


def _credit_revision(revision: Reply, reward: float | None) -> Sample:
    """Reward the revised solution; an unreadable one earns nothing, as the initial one stands."""
    is_readable = tag(revision.text, "revised_solution") is not None
    spans = {"revised_solution": span(revision.text, "revised_solution")}
    segment_rewards = {"revised_solution": reward if is_readable else None}
    return revision.earns(segment_rewards, revision.group_id, spans)


def _credit_verdict(
    verdict: Reply, reward: float | None, reward_thought: bool
) -> Sample:
    """Reward the final ranking; nothing without the ranking's pair of tags."""
    ranking_spans = span(verdict.text, "final_ranking")
    if reward_thought:
        ranking_spans = tuple((0, end) for _, end in ranking_spans)
    segment_rewards = {"final_ranking": reward if ranking_spans else None}
    spans = {"final_ranking": ranking_spans}
    return verdict.earns(segment_rewards, verdict.group_id, spans)
