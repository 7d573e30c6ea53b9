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
    """Return the quality V in (0, 1) of n agents by pairwise comparisons (section 3.2, Appendix H).

    P(a beats b) = exp(theta_a) / (exp(theta_a) + exp(theta_b)) and V = sigmoid(theta). The paper
    maximises the likelihood, which has no finite maximum when an agent never lost. A Gaussian prior
    N(0, prior_variance) on every theta makes the maximum finite and unique: without comparisons
    every V is 0.5. Comparisons of an agent with itself are ignored. Weights must be finite and not
    negative.
    """
    wins_AA = np.zeros((n, n))
    for comparison in comparisons:
        if comparison.winner != comparison.loser:
            wins_AA[comparison.winner, comparison.loser] += comparison.weight
    theta_A = _posterior_mode(wins_AA, prior_variance)
    qualities = 0.5 * (1 + np.tanh(theta_A / 2))
    return [float(quality) for quality in qualities]


def _posterior_mode(wins_AA: np.ndarray, prior_variance: float) -> np.ndarray:
    """Return the theta that maximises the posterior, where the gradient below is zero.

    log p(theta) = sum_ab wins_ab log P(a beats b) - sum_a theta_a^2 / (2 prior_variance) + const.
    `wins_AA` holds the wins of the row's agent over the column's.
    """
    # Loaded only where it is needed, because it takes most of a second.
    from scipy.optimize import root

    if len(wins_AA) == 0:
        return np.zeros(0)
    games_AA = wins_AA + wins_AA.T

    def win_probability(theta_A: np.ndarray) -> np.ndarray:
        P_AA: np.ndarray = np.exp(-np.logaddexp(0, theta_A - theta_A[:, None]))
        return P_AA

    def gradient(theta_A: np.ndarray) -> np.ndarray:
        """Return the gradient of -log p: theta_a / variance less the unexpected wins of a."""
        P_AA = win_probability(theta_A)
        unexpected_wins_AA = wins_AA * P_AA.T - wins_AA.T * P_AA
        slope_A: np.ndarray = theta_A / prior_variance
        descent_A: np.ndarray = slope_A - unexpected_wins_AA.sum(axis=1)
        return descent_A

    def hessian(theta_A: np.ndarray) -> np.ndarray:
        P_AA = win_probability(theta_A)
        curvature_AA = games_AA * P_AA * P_AA.T
        diagonal_AA: np.ndarray = np.diag(curvature_AA.sum(axis=1) + 1 / prior_variance)
        H_AA: np.ndarray = diagonal_AA - curvature_AA
        return H_AA

    # -log p is strictly convex, so that Levenberg-Marquardt cannot stop anywhere else.
    tolerances = {"xtol": 1e-12, "ftol": 0.0}
    start_A = np.zeros(len(wins_AA))
    solution = root(gradient, start_A, jac=hessian, method="lm", options=tolerances)
    mode_A: np.ndarray = solution.x
    return mode_A


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
