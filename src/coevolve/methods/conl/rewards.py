"""Rewards of CoNL (section 3.2) as pure functions of comparisons and critique targets.

The paper does not number its equations; each function quotes its own. "Line n" is line n of the
paper's Algorithm 1. Texts are read in `parsing`. Arrays: A agents, rows before columns.
"""

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np

from coevolve.methods.conl.records import Comparison, Ranking, Rankings


def agent_scores(rankings: Rankings, prior_variance: float) -> list[float]:
    """Return the agents' qualities V by the comparisons of all agents (lines 13 and 14)."""
    comparisons: list[Comparison] = []
    for ranking in rankings:
        comparisons += ranking
    return bradley_terry(comparisons, len(rankings), prior_variance)


def bradley_terry(
    comparisons: Sequence[Comparison], n: int, prior_variance: float = 1.0
) -> list[float]:
    """Return the quality V in (0, 1) of n agents by pairwise comparisons (section 3.2, Appendix H).

    P(a beats b) = exp(theta_a) / (exp(theta_a) + exp(theta_b)) and V = sigmoid(theta). The paper
    maximises the likelihood, which has no finite maximum when an agent never lost or never won. A
    Gaussian prior N(0, prior_variance) on every theta makes the maximum finite and unique: without
    comparisons every V is 0.5. A tie comes as two comparisons of weight 0.5, one each way.
    Comparisons of an agent with itself are ignored. Weights must be finite and not negative.
    """
    wins_AA = np.zeros((n, n))
    for comparison in comparisons:
        if comparison.winner != comparison.loser:
            wins_AA[comparison.winner, comparison.loser] += comparison.weight
    theta_A = _posterior_mode(wins_AA, prior_variance)
    qualities = 0.5 * (1 + np.tanh(theta_A / 2))  # sigmoid(theta), without overflow
    return [float(quality) for quality in qualities]


def _posterior_mode(wins_AA: np.ndarray, prior_variance: float) -> np.ndarray:
    """Return the theta that maximises the posterior, where `gradient` is zero.

    log p(theta) = sum_ab wins_ab log P(a beats b) - sum_a theta_a^2 / (2 prior_variance) + const.
    `wins_AA` holds the wins of the row's agent over the column's.
    """
    # Loaded only where it is needed, because it takes most of a second.
    from scipy.optimize import root

    if len(wins_AA) == 0:
        return np.zeros(0)
    games_AA = wins_AA + wins_AA.T

    def win_probability(theta_A: np.ndarray) -> np.ndarray:
        """Return P_ab = P(a beats b) = sigmoid(theta_a - theta_b), without overflow."""
        P_AA: np.ndarray = np.exp(-np.logaddexp(0, theta_A - theta_A[:, None]))
        return P_AA

    def gradient(theta_A: np.ndarray) -> np.ndarray:
        """Return the gradient of -log p: theta_a / variance minus a's surplus of wins."""
        P_AA = win_probability(theta_A)
        # wins_ab - games_ab P_ab: the wins beyond those expected.
        surplus_wins_AA = wins_AA * P_AA.T - wins_AA.T * P_AA
        prior_gradient_A: np.ndarray = theta_A / prior_variance
        gradient_A: np.ndarray = prior_gradient_A - surplus_wins_AA.sum(axis=1)
        return gradient_A

    def hessian(theta_A: np.ndarray) -> np.ndarray:
        """Return the Hessian of -log p, which is positive definite because of the prior."""
        P_AA = win_probability(theta_A)
        curvature_AA = games_AA * P_AA * P_AA.T
        diagonal_AA: np.ndarray = np.diag(curvature_AA.sum(axis=1) + 1 / prior_variance)
        H_AA: np.ndarray = diagonal_AA - curvature_AA
        return H_AA

    # -log p is strictly convex: its gradient is zero at the minimum alone. Levenberg-Marquardt
    # reaches it for the weights that occur, 1 and 0.5.
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

    Not in the paper: the level that r_diag reaches by chance alone, if the scores come from
    rankings of which each agent swapped its initial and its final one at random.
    """
    return sum(abs(second_scores[k] - first_scores[k]) for k in targets) / 2


def majority_alignment(
    ranking: Ranking, rankings: Rankings, leave_one_out: bool = False
) -> float | None:
    """Return r_meta(i) = mean over (a, b) in R_i of I[Pref_i(a, b) = Maj(a, b)] (line 19).

    `rankings` holds those of all agents, i included. The paper's mean is over all of R_i; here a
    tie, which states no preference, and an evenly split pair, which has no majority, are left out.
    None if that leaves nothing; 0.0 if i's ranking has no readable comparison. `leave_one_out`
    takes the majority of the other agents, so that a lone comparison no longer agrees with itself.
    """
    if not ranking:
        return 0.0
    margins = _margins(rankings)
    # A ranking holds each pair once, so an agent's own vote counts 1.
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
    """Return r_meta of every agent; `leave_one_out` as in `majority_alignment`."""
    return [
        majority_alignment(ranking, rankings, leave_one_out) for ranking in rankings
    ]


def consensus_can_vary(agents: int, own_votes: bool, leave_one_out: bool) -> bool:
    """Whether r_meta depends on what an agent votes, if all agents rank all whom they may rank.

    A majority that counts an agent's own vote among at most two agrees with it or is split, so
    that r_meta is 1 or undefined. Left out of the majority, the vote needs one other to meet.
    """
    rates_all_pairs = own_votes or agents == 2
    voters_of_a_pair = agents if rates_all_pairs else agents - 2
    fewest_voters = 2 if leave_one_out else 3
    return voters_of_a_pair >= fewest_voters


def weighted(weight: float, reward: float | None) -> float | None:
    """Return weight times reward.

    None, which masks the segment of a reply that earns it, if the weight is 0 or the reward None.
    """
    if reward is None or not weight:
        return None
    return weight * reward
