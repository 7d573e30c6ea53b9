"""CoNL's rewards (section 3.2, Appendix H), rankings and measures.

They are checked by hand, by brute force and on hostile text.
"""

import json
import math
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
from core.conftest import HOSTILE, Scripted
from hypothesis import given
from pytest import approx
from scipy.optimize import minimize

from coevolve.methods.conl.method import CoNL
from coevolve.methods.conl.metrics import measures, rank_rho, ranking_correct
from coevolve.methods.conl.parsing import critiques, ranking, span
from coevolve.methods.conl.records import Comparison
from coevolve.methods.conl.rewards import (
    bradley_terry,
    diagnostic,
    expected_diagnostic,
    majority_alignment,
)

HALF = 0.5
TIE = [Comparison(0, 1, HALF), Comparison(1, 0, HALF)]


def won(*pairs: tuple[int, int]) -> list[Comparison]:
    """Return comparisons of (winner, loser)."""
    return [Comparison(winner, loser) for winner, loser in pairs]


class TestBradleyTerry:
    """Section 3.2 and Appendix H, with a Gaussian prior."""

    def test_it_finds_what_brute_force_finds_on_300_tables(self) -> None:
        rng = np.random.default_rng(0)
        for _ in range(300):
            agents = int(rng.integers(1, 7))
            table = random_comparisons(rng, agents)
            expected = maximise_posterior(table, agents)
            assert bradley_terry(table, agents) == approx(expected, abs=2e-5)

    @pytest.mark.parametrize(("agents", "expected"), [(3, [HALF] * 3), (0, [])])
    def test_without_comparisons_all_are_equal(
        self, agents: int, expected: list[float]
    ) -> None:
        assert bradley_terry([], agents) == expected

    def test_one_win_by_hand(self) -> None:
        # theta = (t, -t) with t = sigmoid(-2 t).
        t = 0.337416
        assert t == approx(1 / (1 + math.exp(2 * t)), abs=1e-5)
        first = 1 / (1 + math.exp(-t))
        expected = [first, 1 - first, HALF]
        assert bradley_terry(won((0, 1)), 3) == approx(expected, abs=1e-5)

    def test_the_example_of_appendix_h(self) -> None:
        # The paper prints (0.75, 0.55, 0.30) without saying how.
        example = [
            Comparison(0, 1, weight=3),
            Comparison(1, 2, weight=2),
            Comparison(0, 2, weight=4),
        ]
        expected = [0.753, 0.473, 0.268]
        assert bradley_terry(example, 3) == approx(expected, abs=5e-4)

    def test_four_agents_that_rank_their_peers_in_the_same_order(self) -> None:
        table = []
        for judge in range(4):
            peers = [agent for agent in range(4) if agent != judge]
            table += won(*combinations(peers, 2))
        expected = [0.761, 0.592, 0.408, 0.239]
        assert bradley_terry(table, 4) == approx(expected, abs=5e-4)

    def test_a_cycle_makes_all_equal(self) -> None:
        cycle = won((0, 1), (1, 2), (2, 0))
        assert bradley_terry(cycle, 3) == approx([HALF] * 3)

    def test_a_tie_makes_both_equal(self) -> None:
        assert bradley_terry(TIE, 2) == approx([HALF] * 2)

    def test_islands_are_scored_alike(self) -> None:
        values = bradley_terry(won((0, 1), (2, 3)), 4)
        assert values == approx([values[0], 1 - values[0]] * 2)

    def test_a_million_wins_stay_finite_and_leave_others_alone(self) -> None:
        values = bradley_terry([Comparison(0, 1, 1e6)], 4)
        assert values[0] == approx(1 / (1 + math.exp(-6.01)), abs=1e-3)
        assert values[2:] == [HALF, HALF]

    def test_lopsided_weights_stay_finite(self) -> None:
        table = [Comparison(0, 1, 1e15), Comparison(1, 0, 1.0)]
        values = bradley_terry(table, 2)
        assert sum(values) == approx(1)
        assert 0 < values[1] < 1e-6

    def test_a_comparison_with_oneself_is_ignored(self) -> None:
        assert bradley_terry([Comparison(0, 0, 5.0)], 2) == [HALF, HALF]

    def test_a_wider_prior_moves_the_winner_further(self) -> None:
        table = won((0, 1))
        narrow, _ = bradley_terry(table, 2, 0.01)
        wide, _ = bradley_terry(table, 2, 100.0)
        assert 0.5 < narrow < 0.51
        assert 0.85 < wide < 1


def random_comparisons(rng: np.random.Generator, agents: int) -> list[Comparison]:
    """Draw 0 to 24 comparisons, with repeats, ties and agents that are never mentioned."""
    count = int(rng.integers(0, 25))
    pairs = rng.integers(0, agents, (count, 2)).tolist()
    table = []
    for winner, loser in pairs:
        if winner != loser:
            weight = float(rng.choice([HALF, 1.0, 1.0, 3.0]))
            table.append(Comparison(winner, loser, weight))
    ties = [one for one in table if one.weight == HALF]
    table += [Comparison(one.loser, one.winner, HALF) for one in ties]
    return table


def maximise_posterior(table: list[Comparison], agents: int) -> np.ndarray:
    """Maximise likelihood times prior with a general optimiser, from the printed formula."""

    def cost(theta: np.ndarray) -> float:
        total = sum(theta**2) / 2
        for one in table:
            lead = theta[one.winner] - theta[one.loser]
            total += one.weight * np.logaddexp(0, -lead)
        return total

    start = np.zeros(agents)
    best = minimize(cost, start, method="BFGS", options={"gtol": 1e-8})
    return 1 / (1 + np.exp(-best.x))


class TestDiagnostic:
    """The reward of critiques: how far those who were criticised rose."""

    BEFORE = [0.43, 0.65, 0.58, 0.38]
    AFTER = [0.71, 0.60, 0.58, 0.40]

    @pytest.mark.parametrize(
        ("targets", "reward"),
        [
            ((0,), 0.28),
            ((0, 1, 2, 3), 0.30),
            ((1,), 0),
            ((), 0),
        ],
    )
    def test_only_improvements_are_rewarded(
        self, targets: tuple[int, ...], reward: float
    ) -> None:
        assert diagnostic(targets, self.BEFORE, self.AFTER) == approx(reward)

    def test_appendix_k_multiplies_by_five(self) -> None:
        assert 5 * diagnostic([0], [0.43], [0.71]) == approx(1.40)

    def test_its_expectation_by_hand(self) -> None:
        expected = (0.28 + 0.05) / 2
        assert expected_diagnostic([0, 1], self.BEFORE, self.AFTER) == approx(expected)

    def test_its_expectation_is_the_mean_over_both_orders(self) -> None:
        targets = [0, 1, 3]
        forward = diagnostic(targets, self.BEFORE, self.AFTER)
        backward = diagnostic(targets, self.AFTER, self.BEFORE)
        expected = (forward + backward) / 2
        expectation = expected_diagnostic(targets, self.BEFORE, self.AFTER)
        assert expectation == approx(expected)


class TestMajorityAlignment:
    """The reward of rankings: agreement with the majority, pair by pair."""

    # 0 over 1 leads 2 : 1. The pair 2 and 3 is split evenly, so it leaves the mean.
    EVERYONE = [
        won((0, 1), (2, 3)),
        won((0, 1), (3, 2)),
        won((1, 0)),
    ]

    def test_agreement_is_counted_over_pairs_that_have_a_majority(self) -> None:
        rewards = [majority_alignment(one, self.EVERYONE) for one in self.EVERYONE]
        assert rewards == [1.0, 1.0, 0.0]

    def test_a_vote_can_make_its_own_majority(self) -> None:
        votes = won((0, 1), (3, 2), (1, 2))
        rankings = [*self.EVERYONE, won((1, 2))]
        assert majority_alignment(votes, rankings) == 1.0

    def test_a_split_pair_alone_leaves_nothing_to_compare_with(self) -> None:
        assert majority_alignment(won((2, 3)), self.EVERYONE) is None

    def test_nothing_readable_earns_nothing(self) -> None:
        assert majority_alignment([], self.EVERYONE) == 0.0

    def test_a_tie_states_no_preference(self) -> None:
        assert majority_alignment(TIE, self.EVERYONE) is None

    def test_a_tie_does_not_split_a_majority(self) -> None:
        vote = won((0, 1))
        assert majority_alignment(vote, [vote, TIE]) == 1.0

    def test_half_of_the_pairs_can_agree(self) -> None:
        rankings = [
            won((0, 1), (2, 1)),
            won((0, 1), (1, 2)),
            won((0, 1), (1, 2)),
        ]
        assert majority_alignment(rankings[0], rankings) == 0.5

    @pytest.mark.parametrize(("leave_one_out", "reward"), [(False, 1.0), (True, None)])
    def test_a_lone_vote_agrees_with_itself_unless_it_is_left_out(
        self, leave_one_out: bool, reward: float | None
    ) -> None:
        rankings = [
            won((0, 1)),
            won((2, 3)),
        ]
        alignment = majority_alignment(rankings[0], rankings, leave_one_out)
        assert alignment == reward

    def test_leaving_oneself_out_can_split_or_turn_the_majority(self) -> None:
        rankings = [
            won((0, 1)),
            won((1, 0)),
            won((0, 1)),
        ]
        rewards = [majority_alignment(one, rankings, True) for one in rankings]
        assert rewards == [None, 0.0, None]

    @pytest.mark.parametrize(("leave_one_out", "reward"), [(False, None), (True, 0.0)])
    def test_two_that_disagree_are_each_others_majority(
        self, leave_one_out: bool, reward: float | None
    ) -> None:
        rankings = [
            won((0, 1)),
            won((1, 0)),
        ]
        alignment = majority_alignment(rankings[0], rankings, leave_one_out)
        assert alignment == reward


class TestRanking:
    """Votes read from a <final_ranking>."""

    TEXT = "<final_ranking>Agent 1 > Agent 0\nAgent 0 > Agent 2</final_ranking>"

    def test_votes_about_oneself_are_left_out(self) -> None:
        assert ranking(self.TEXT, "final_ranking", 3, 1) == won((0, 2))

    def test_votes_about_oneself_count_when_asked_for(self) -> None:
        assert ranking(self.TEXT, "final_ranking", 3) == won((1, 0), (0, 2))

    @pytest.mark.parametrize("order", list(permutations(range(4))))
    def test_every_order_is_recovered(self, order: tuple[int, ...]) -> None:
        line = " > ".join(f"Agent {agent}" for agent in order)
        text = f"<final_ranking>{line}</final_ranking>"
        votes = ranking(text, "final_ranking", 4)
        values = bradley_terry(votes, 4)
        best_first = sorted(range(4), key=lambda agent: -values[agent])
        assert best_first == list(order)


PEERS = {0, 2, 3}  # of agent 1


@given(HOSTILE)
def test_no_text_makes_a_vote_unsound(text: str) -> None:
    votes = ranking(text, "final_ranking", 4, 1)
    preferences = set()
    for vote in votes:
        pair = {vote.winner, vote.loser}
        assert len(pair) == 2
        assert pair <= PEERS
        assert vote.weight in (HALF, 1.0)
        if vote.weight == 1.0:
            preferences.add(frozenset(pair))
    assert len(preferences) <= 3
    assert votes == [] or span(text, "final_ranking")


@given(HOSTILE)
def test_no_text_makes_a_critique_unsound(text: str) -> None:
    for critique in critiques(text, 4, 1):
        assert critique.target in PEERS
        start, end = critique.span
        opening = f'<critique target="Agent {critique.target}">'
        content = text[start:end].removeprefix(opening)
        assert content.removesuffix("</critique>").strip() == critique.text


@dataclass(frozen=True)
class Rho:
    """Final scores, which answers are correct, and Spearman's rho by hand."""

    scores: list[float]
    correct: list[bool]
    rho: float | None


RHO = [
    # Ranks 4 3 2 1 against ties 3.5 3.5 1.5 1.5 give 4 / sqrt(5 x 4) = 0.894.
    Rho(
        scores=[0.9, 0.8, 0.2, 0.1],
        correct=[True, True, False, False],
        rho=0.8944,
    ),
    Rho(
        scores=[0.1, 0.2, 0.8, 0.9],
        correct=[True, True, False, False],
        rho=-0.8944,
    ),
    Rho(
        scores=[0.9, 0.5, 0.1],
        correct=[True, False, False],
        rho=0.8660,
    ),
    Rho(
        scores=[0.9, 0.1, 0.9, 0.1],
        correct=[True, True, False, False],
        rho=0.0,
    ),
    Rho(
        scores=[0.6, 0.4],
        correct=[True, False],
        rho=1.0,
    ),
    Rho(
        scores=[0.6, 0.4],
        correct=[True, True],
        rho=None,
    ),
    Rho(
        scores=[0.6, 0.4],
        correct=[False, False],
        rho=None,
    ),
    Rho(
        scores=[0.5, 0.5],
        correct=[True, False],
        rho=None,
    ),
]


class TestMeasures:
    """Appendix F and Table 4."""

    @pytest.mark.parametrize("case", RHO)
    def test_rank_correlation_by_hand(self, case: Rho) -> None:
        rho = rank_rho(case.scores, case.correct)
        if case.rho is None:
            assert rho is None
        else:
            assert rho == approx(case.rho, abs=1e-4)

    def test_ties_are_broken_by_number(self) -> None:
        scores = [0.4, 0.7, 0.7, 0.2]
        correct_after = [True, False, True, False]
        correct_before = [False] * 4
        tied = measures(scores, correct_before, correct_after)
        assert tied["pass_1"] == 0.0
        assert tied["pass_k"] == 1.0

    def test_all_measures_of_one_conversation_by_hand(self) -> None:
        assert self.of_one_conversation() == {
            "pass_1": 1,
            "pass_k": 1,
            "rank_rho": approx(0.8660, abs=1e-4),
            "wrong_before": 1,
            "fixed": 1,
            "correct_before": 2,
            "harmed": 1,
        }

    def test_without_a_correct_answer_there_is_no_correlation(self) -> None:
        all_wrong = [False] * 3
        facts = measures([0.5] * 3, all_wrong, all_wrong)
        assert facts["pass_1"] == 0
        assert facts["rank_rho"] is None
        assert facts["wrong_before"] == 3
        assert facts["fixed"] == 0

    def test_unscored_is_not_wrong(self) -> None:
        unknown = measures(
            [0.7, 0.6, 0.3],
            [False, True, True],
            [True, None, False],
        )
        assert unknown == dict.fromkeys(self.of_one_conversation())

    def of_one_conversation(self) -> dict[str, Any]:
        return measures(
            [0.7, 0.6, 0.3],
            [False, True, True],
            [True, True, False],
        )


class TestExamine:
    """Conversations about test items."""

    @pytest.fixture
    def conl(self) -> CoNL:
        return CoNL(agents=2, leave_one_out=True)

    @pytest.fixture
    def rows(self, conl: CoNL) -> list[dict[str, Any]]:
        engine = Scripted(lambda turn: "ANSWER: 5")
        return conl.examine(engine, 2, (1,))

    def test_all_families_of_training_are_discussed(
        self, conl: CoNL, rows: list[dict[str, Any]]
    ) -> None:
        assert {row["family"] for row in rows} == set(conl.families)
        assert [row["item"] for row in rows] == list(range(24))

    def test_questions_of_training_are_not(
        self, conl: CoNL, rows: list[dict[str, Any]]
    ) -> None:
        questions = {row["question"] for row in rows}
        assert questions.isdisjoint(conl.questions)

    def test_rows_say_what_was_answered_and_survive_json(
        self, rows: list[dict[str, Any]]
    ) -> None:
        assert json.loads(json.dumps(rows)) == rows
        for row in rows:
            assert row["answers_after"] == ["5", "5"]
            assert row["scores_after"] == [HALF, HALF]


class TestRankingCorrect:
    """The share of votes for the correct one of a correct and a wrong solution."""

    CORRECT = [True, False, False]

    def test_ties_are_half_right_and_equal_solutions_do_not_count(self) -> None:
        right = [Comparison(0, 1), Comparison(1, 2)]
        tied = [Comparison(0, 2, 0.5), Comparison(2, 0, 0.5)]
        wrong = [Comparison(2, 0)]
        assert ranking_correct([right], self.CORRECT) == 1
        assert ranking_correct([tied], self.CORRECT) == approx(0.5)
        assert ranking_correct([right, tied, wrong], self.CORRECT) == approx(1.5 / 3)

    def test_without_a_pair_to_tell_apart_there_is_none(self) -> None:
        votes = [Comparison(0, 1)]
        assert ranking_correct([votes], [True, True, False]) is None
        assert ranking_correct([votes], [True, None, False]) is None
        assert ranking_correct([[]], self.CORRECT) is None
