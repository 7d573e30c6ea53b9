"""What is recorded about an episode of CoMAS: correctness, rewards of every agent, and costs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from coevolve.methods.comas import rewards
from coevolve.methods.comas.records import EpisodeTrace, RewardedReply, Round
from coevolve.methods.facts import mean_known
from coevolve.worlds import World

# Metric: the score, or without scoring the verdict, that it counts.
SCORE_METRICS = {"score_1": 1, "score_2": 2, "score_3": 3}
VERDICT_METRICS = {"judged_correct": True}
Metrics = dict[str, Any]
ReadAnswer = Callable[[str], str | None]


def episode_metrics(
    trace: EpisodeTrace,
    world: World,
    read_answer: ReadAnswer,
    agents: Sequence[str],
    score_metrics: Mapping[str, int],
) -> Metrics:
    """Return the facts of one episode, see `Method.observe`.

    `read_answer` is the method's; `agents` are the names of the policies; `score_metrics` is one of
    the two tables above.
    """
    truths = []
    for round_ in trace.rounds:
        answer = read_answer(round_.solution.reply.text)
        truths.append(world.is_correct(trace.question, answer))
    solution_rewards = [round_.solution.reward for round_ in trace.rounds]
    scores: list[int | None] = []
    game: list[RewardedReply] = []  # without the scorings
    for round_ in trace.rounds:
        scores += round_.scores
        game += round_.game
    return {
        "question": trace.question,
        "correct": mean_known(truths),
        "correct_first": mean_known(truths[: trace.discussions]),
        "correct_last": mean_known(truths[-trace.discussions :]),
        "normalised": mean_reward(game),
        "unreadable": mean_known(score is None for score in scores),
        **_costs(trace.rounds),
        **rewards.confusion(solution_rewards, truths),
        **_rewards_of_agents(game, agents),
        **_score_fractions(scores, score_metrics),
    }


def mean_reward(replies: Sequence[RewardedReply]) -> float | None:
    """Return the mean of the rewards that are not None; None without any."""
    return mean_known(one.reward for one in replies)


def _costs(rounds: Sequence[Round]) -> Metrics:
    """Return the number of replies and of the tokens that were read and written for them."""
    replies = []
    for round_ in rounds:
        replies += [one.reply for one in round_.replies]
    return {
        "interactions": len(replies),
        "tokens_in": sum(len(reply.prompt_ids) for reply in replies),
        "tokens_out": sum(len(reply.completion_ids) for reply in replies),
    }


def _rewards_of_agents(game: Sequence[RewardedReply], agents: Sequence[str]) -> Metrics:
    """Return the mean reward of each agent's solutions and evaluations."""
    metrics = {}
    for agent in agents:
        replies = [one for one in game if one.reply.turn.policy == agent]
        metrics[f"normalised/{agent}"] = mean_reward(replies)
    return metrics


def _score_fractions(
    scores: Sequence[int | None], score_metrics: Mapping[str, int]
) -> Metrics:
    """Return the fraction of the readable scores that each metric counts."""
    readable = [score for score in scores if score is not None]
    metrics = {}
    for name, value in score_metrics.items():
        metrics[name] = mean_known(score == value for score in readable)
    return metrics
