"""Rewards of CoNL (section 3.2) as pure, total functions of votes and critique targets.

A vote is (winner, loser, how much of a win); a tie is half a win each way. Knows no text: who voted and who
criticised whom has been read before.
"""

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np

from coevolve.methods.conl.parsing import Comparison, Ranking


def bradley_terry(comparisons: Sequence[Comparison], n: int, prior_variance: float = 1.0) -> list[float]:
    """Return the quality V of n agents in (0, 1) from pairwise comparisons (section 3.2, Appendix H).

    V = sigmoid(theta), where theta maximises the Bradley-Terry log-likelihood sum w log sigmoid(theta_winner -
    theta_loser) plus the log-density of a Gaussian prior N(0, prior_variance) on every theta. Maximum likelihood
    alone, as in the paper, is infinite for an agent that never lost; the prior makes the maximum finite and
    unique for every table: without any vote all are 0.5. An agent compared with itself says nothing. Agents are
    numbered from 0; weights are finite and not negative.
    """
    wins = np.zeros((n, n))
    for winner, loser, weight in comparisons:
        wins[winner, loser] += weight * (winner != loser)
    theta = _posterior_mode(wins, prior_variance)
    return [float(quality) for quality in 0.5 * (1 + np.tanh(theta / 2))]


def _posterior_mode(wins: np.ndarray, variance: float) -> np.ndarray:
    """Newton's method with step halving on the strictly convex negative log-posterior."""
    theta, games = np.zeros(len(wins)), wins + wins.T

    def height(at: np.ndarray) -> float:
        return float((wins * np.logaddexp(0, at - at[:, None])).sum() + at @ at / (2 * variance))

    for _ in range(200):
        chance = np.exp(-np.logaddexp(0, theta - theta[:, None]))  # of the row's agent beating the column's
        slope = theta / variance - (wins * chance.T - wins.T * chance).sum(1)
        bend = games * chance * chance.T
        step = np.linalg.solve(np.diag(bend.sum(1) + 1 / variance) - bend, slope)
        if not len(step) or abs(step).max() <= 1e-12:
            break
        here, size = height(theta), 1.0
        while size > 1e-12 and height(theta - size * step) > here - 1e-4 * size * (slope @ step):
            size /= 2
        if size <= 1e-12:  # no lower point can be told apart from this one
            break
        theta = theta - size * step
    return theta


def diagnostic(targets: Collection[int], before: Sequence[float], after: Sequence[float]) -> float:
    """Return r_diag: how much the agents one criticised rose, sum over k of max(0, V_final_k - V_init_k)."""
    return sum(max(0.0, after[k] - before[k]) for k in targets)


def expected_diagnostic(targets: Collection[int], before: Sequence[float], after: Sequence[float]) -> float:
    """Return the mean of r_diag over this order of the two rankings and its reverse: half of sum |V_final - V_init|.

    Given scores of rankings that each agent swapped at random, it is what r_diag pays when nothing changed.
    """
    return sum(abs(after[k] - before[k]) for k in targets) / 2


def majority_alignment(mine: Ranking, everyone: Sequence[Ranking], leave_one_out: bool = False) -> float | None:
    """Return r_meta: the share of one's votes that the majority of `everyone` (oneself included) shares.

    Ties ('=') are no votes, and a pair on which the votes are split evenly has no majority: both leave the mean.
    None when that leaves nothing; 0.0 when no comparison was readable at all. `leave_one_out` takes the
    majority of the others, so that a lone vote no longer agrees with itself.
    """
    if not mine:
        return 0.0
    lead: Counter[tuple[int, int]] = Counter()
    for votes in everyone:
        for winner, loser, weight in votes:
            lead[winner, loser] += weight == 1
            lead[loser, winner] -= weight == 1
    own = [(winner, loser) for winner, loser, weight in mine if weight == 1]
    margins = [lead[pair] - leave_one_out for pair in own]
    decided = [margin > 0 for margin in margins if margin]
    return sum(decided) / len(decided) if decided else None
