"""What is recorded about CoNL's conversations: correctness, rewards, and the paper's own measures.

The paper's measures are Pass@1 of the top-ranked agent, Pass@K and Rank-rho (Appendix F), and
corrections and harm (Table 4). The accuracy of the final rankings is ours.
"""

from collections.abc import Sequence
from random import Random
from typing import Any

from coevolve.methods.conl import rewards
from coevolve.methods.conl.records import ConversationTrace, Ranking, Rankings
from coevolve.methods.facts import mean_known
from coevolve.text.parse import answer_line
from coevolve.worlds import World

# Whether each agent's answer is correct; None: unscored.
Verdicts = Sequence[bool | None]
MEASURES = (
    "pass_1",
    "pass_k",
    "rank_rho",
    "wrong_before",
    "fixed",
    "correct_before",
    "harmed",
)


def rank_rho(scores: Sequence[float], correct: Sequence[bool]) -> float | None:
    """Return Spearman's correlation of final scores with correctness (Appendix F).

    None where it is undefined: all agents correct, all wrong, or all scores equal.
    """
    if len(set(correct)) < 2 or len(set(scores)) < 2:
        return None
    # Loaded only where it is needed, because it takes half a second.
    from scipy.stats import spearmanr

    return float(spearmanr(scores, correct).statistic)


def measures(
    scores: Sequence[float], correct_before: Verdicts, correct_after: Verdicts
) -> dict[str, float | None]:
    """Return the paper's measures of one conversation by name; all None if an answer is unscored.

    The verdicts are on the agents' initial and revised solutions. Corrections and harm (Table 4)
    are counts of agents: of those wrong before, how many were fixed, and of those correct before,
    how many were harmed.
    """
    changes = list(zip(correct_before, correct_after, strict=True))
    if None in correct_before or None in correct_after:
        return dict.fromkeys(MEASURES)
    correct = [bool(verdict) for verdict in correct_after]
    top_ranked = scores.index(max(scores))  # the first of equal scores
    return {
        "pass_1": float(correct[top_ranked]),
        "pass_k": float(any(correct)),
        "rank_rho": rank_rho(scores, correct),
        "wrong_before": float(correct_before.count(False)),
        "fixed": float(changes.count((False, True))),
        "correct_before": float(correct_before.count(True)),
        "harmed": float(changes.count((True, False))),
    }


def ranking_correct(rankings: Rankings, correct: Verdicts) -> float | None:
    """Return the share of votes for the correct one of a correct and a wrong solution, 0 to 1.

    A tie is half a vote each way, so that an author who ranks at random has 0.5. None without
    such a vote.
    """
    votes = 0.0
    votes_for_correct = 0.0
    for ranking in rankings:
        for comparison in ranking:
            verdicts = correct[comparison.winner], correct[comparison.loser]
            if verdicts == (True, False):
                votes_for_correct += comparison.weight
                votes += comparison.weight
            elif verdicts == (False, True):
                votes += comparison.weight
    return votes_for_correct / votes if votes else None


def episode_metrics(
    conversation: ConversationTrace,
    world: World,
    *,
    leave_one_out: bool,
    prior_variance: float,
) -> dict[str, Any]:
    """Return the facts of one conversation, see `Method.observe`.

    `leave_one_out` and `prior_variance` are the fields of CoNL that its rewards depend on.
    """
    question = conversation.question
    answers_before = [answer_line(reply.text) for reply in conversation.proposals]
    answers_after = [answer_line(text) for text in conversation.revised]
    correct_before = [world.is_correct(question, answer) for answer in answers_before]
    correct_after = [world.is_correct(question, answer) for answer in answers_after]
    return {
        "question": question,
        "answers_before": answers_before,
        "answers_after": answers_after,
        "scores_before": conversation.initial_scores,
        "scores_after": conversation.final_scores,
        **measures(conversation.final_scores, correct_before, correct_after),
        "correct_initial": mean_known(correct_before),
        "correct_final": mean_known(correct_after),
        "r_sol": mean_known(conversation.final_scores),
        **_consensus_metrics(conversation, leave_one_out),
        **_diagnostic_metrics(conversation, prior_variance),
        "critiques": mean_known(len(written) for written in conversation.critiques),
        "votes": mean_known(_votes(one) for one in conversation.final_rankings),
        "ranking_correct": ranking_correct(conversation.final_rankings, correct_after),
        "tokens_turn": _mean_tokens(conversation),
    }


def _consensus_metrics(
    conversation: ConversationTrace, leave_one_out: bool
) -> dict[str, float | None]:
    """Return the mean r_meta, and the fraction of agents that have one by their comparisons."""
    rankings = conversation.final_rankings
    r_meta = rewards.alignments(rankings, leave_one_out)
    decided = []
    for ranking, reward in zip(rankings, r_meta, strict=True):
        decided.append(bool(ranking) and reward is not None)
    return {"r_meta": mean_known(r_meta), "decided": mean_known(decided)}


def _diagnostic_metrics(
    conversation: ConversationTrace, prior_variance: float
) -> dict[str, float | None]:
    """Return the mean r_diag, and its null level: the mean if rankings were swapped at random."""
    initial_scores = conversation.initial_scores
    final_scores = conversation.final_scores
    swapped_scores = _swapped_scores(conversation, prior_variance)
    r_diag = []
    null_level = []
    for written in conversation.critiques:
        targets = [critique.target for critique in written]
        r_diag.append(rewards.diagnostic(targets, initial_scores, final_scores))
        null_level.append(rewards.expected_diagnostic(targets, *swapped_scores))
    return {"r_diag": mean_known(r_diag), "r_diag_null": mean_known(null_level)}


def _swapped_scores(
    conversation: ConversationTrace, prior_variance: float
) -> tuple[list[float], list[float]]:
    """Return both scores after each agent's two rankings are swapped with probability 1/2."""
    seed = (
        f"null {conversation.question} "
        f"{conversation.initial_scores} {conversation.final_scores}"
    )
    rng = Random(seed)
    first_rankings = []
    second_rankings = []
    for first, second in zip(
        conversation.initial_rankings, conversation.final_rankings, strict=True
    ):
        if rng.random() < 0.5:
            first, second = second, first
        first_rankings.append(first)
        second_rankings.append(second)
    return (
        rewards.agent_scores(first_rankings, prior_variance),
        rewards.agent_scores(second_rankings, prior_variance),
    )


def _votes(ranking: Ranking) -> float:
    """Return the number of compared pairs; the two halves of a tie make one."""
    return sum(comparison.weight for comparison in ranking)


def _mean_tokens(conversation: ConversationTrace) -> float | None:
    """Return the mean number of tokens of a reply."""
    token_counts: list[int] = []
    for replies in conversation.rounds:
        token_counts += [len(reply.completion_ids) for reply in replies]
    return mean_known(token_counts)
