"""Rewards of CoNL (section 3.2) as pure, total functions of comparisons and critique targets.

The paper does not number its equations; each function quotes its own. Texts are read in `parsing`.
"""

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np

from coevolve.methods.conl.records import Comparison, Ranking, Rankings


def agent_scores(rankings: Rankings, prior_variance: float) -> list[float]:
    """Return the agents' qualities V by the comparisons of all agents (lines 13 and 14)."""
    comparisons: Ranking = []
    for ranking in rankings:
        comparisons += ranking
    return bradley_terry(comparisons, len(rankings), prior_variance)


def bradley_terry(
    comparisons: Sequence[Comparison], n: int, prior_variance: float = 1.0
) -> list[float]:
    """Return the quality V of n agents in (0, 1) from pairwise comparisons (section 3.2, Appendix H).

    V = sigmoid(theta), where theta maximises the Bradley-Terry log-likelihood sum w log sigmoid(theta_winner -
    theta_loser) plus the log-density of a Gaussian prior N(0, prior_variance) on every theta. Maximum likelihood
    alone, as in the paper, is infinite for an agent that never lost; the prior makes the maximum finite and
    unique for every table: without any vote all are 0.5. An agent compared with itself says nothing. Agents are
    numbered from 0; weights are finite and not negative.
    """
    wins = np.zeros((n, n))
    for one in comparisons:
        if one.winner != one.loser:
            wins[one.winner, one.loser] += one.weight
    theta = _posterior_mode(wins, prior_variance)
    return [float(quality) for quality in 0.5 * (1 + np.tanh(theta / 2))]


def _posterior_mode(wins: np.ndarray, variance: float) -> np.ndarray:
    """Newton's method with step halving on the strictly convex negative log-posterior."""
    theta, games = np.zeros(len(wins)), wins + wins.T

    def height(at: np.ndarray) -> float:
        return float(
            (wins * np.logaddexp(0, at - at[:, None])).sum() + at @ at / (2 * variance)
        )

    for _ in range(200):
        chance = np.exp(
            -np.logaddexp(0, theta - theta[:, None])
        )  # of the row's agent beating the column's
        slope = theta / variance - (wins * chance.T - wins.T * chance).sum(1)
        bend = games * chance * chance.T
        step = np.linalg.solve(np.diag(bend.sum(1) + 1 / variance) - bend, slope)
        if not len(step) or abs(step).max() <= 1e-12:
            break
        here, size = height(theta), 1.0
        while size > 1e-12 and height(theta - size * step) > here - 1e-4 * size * (
            slope @ step
        ):
            size /= 2
        if size <= 1e-12:  # no lower point can be told apart from this one
            break
        theta = theta - size * step
    return theta


def diagnostic(
    targets: Collection[int],
    initial_scores: Sequence[float],
    final_scores: Sequence[float],
) -> float:
    """Return r_diag(i) = sum over k in T_i of max(0, V_final_k - V_init_k) (line 18).

    `targets` is T_i, the agents that agent i criticised.
    """
    return sum(max(0.0, final_scores[k] - initial_scores[k]) for k in targets)


def expected_diagnostic(
    targets: Collection[int],
    first_scores: Sequence[float],
    second_scores: Sequence[float],
) -> float:
    """Return the mean of r_diag over both orders of two rankings: sum over k of |V_k - V'_k| / 2.

    With scores of rankings that each agent swapped at random, it is the reward of pure chance.
    """
    return sum(abs(second_scores[k] - first_scores[k]) for k in targets) / 2


def majority_alignment(
    ranking: Ranking, rankings: Rankings, leave_one_out: bool = False
) -> float | None:
    """Return r_meta(i) = mean over (a, b) in R_i of I[Pref_i(a, b) = Maj(a, b)] (line 19).

    `rankings` holds those of all agents, i included. A tie states no preference, and an evenly
    split pair has no majority: both are left out of the mean. None if that leaves nothing; 0.0 if
    no comparison was readable at all. `leave_one_out` takes the majority of the other agents, so
    that a lone comparison no longer agrees with itself.
    """
    if not ranking:
        return 0.0
    margins = _margins(rankings)
    own_vote = 1 if leave_one_out else 0
    agreements = []
    for comparison in ranking:
        if comparison.is_tie:
            continue
        margin = margins[comparison.winner, comparison.loser] - own_vote
        if margin != 0:
            agreements.append(margin > 0)
    return sum(agreements) / len(agreements) if agreements else None


def _margins(rankings: Rankings) -> Counter[tuple[int, int]]:
    """Return {(a, b): preferences for a over b minus those for b over a}."""
    margins: Counter[tuple[int, int]] = Counter()
    for ranking in rankings:
        for comparison in ranking:
            if not comparison.is_tie:
                margins[comparison.winner, comparison.loser] += 1
                margins[comparison.loser, comparison.winner] -= 1
    return margins


def alignments(rankings: Rankings, leave_one_out: bool) -> list[float | None]:
    """Return r_meta of every agent."""
    return [majority_alignment(one, rankings, leave_one_out) for one in rankings]


def weighted(weight: float, reward: float | None) -> float | None:
    """Return weight times reward; a weight of 0 masks the segment, as does a reward of None."""
    if reward is None or not weight:
        return None
    return weight * reward
