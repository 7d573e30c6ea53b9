"""CoNL's rewards (section 3.2, Appendix H), rankings and measures, by hand, by brute force and on hostile text."""

import json
import math
from dataclasses import astuple
from itertools import permutations

import numpy as np
from core.conftest import HOSTILE, Scripted
from hypothesis import given
from pytest import approx
from scipy.optimize import minimize

from coevolve.methods.conl.method import CoNL
from coevolve.methods.conl.metrics import measures, rank_rho
from coevolve.methods.conl.parsing import critiques, ranking, span
from coevolve.methods.conl.records import Comparison
from coevolve.methods.conl.rewards import (
    bradley_terry,
    diagnostic,
    expected_diagnostic,
    majority_alignment,
)


def won(*pairs: tuple[int, int]) -> list[Comparison]:
    return [Comparison(winner, loser) for winner, loser in pairs]


def brute_force(comparisons: list, n: int) -> np.ndarray:
    """Maximise likelihood times prior with a general-purpose optimiser, from the formula as printed."""

    def cost(theta: np.ndarray) -> float:
        lost = sum(
            weight * np.logaddexp(0, theta[loser] - theta[winner])
            for winner, loser, weight in map(astuple, comparisons)
        )
        return lost + sum(theta**2) / 2

    return 1 / (
        1
        + np.exp(-minimize(cost, np.zeros(n), method="BFGS", options={"gtol": 1e-8}).x)
    )


def test_bradley_terry_finds_what_brute_force_finds_on_300_tables() -> None:
    rng = np.random.default_rng(0)
    for _ in range(
        300
    ):  # 1 to 6 agents, 0 to 24 comparisons, with repeats, ties and agents that nobody mentions
        n = int(rng.integers(1, 7))
        pairs = rng.integers(0, n, (int(rng.integers(0, 25)), 2)).tolist()
        table = [
            (a, b, float(rng.choice([0.5, 1.0, 1.0, 3.0]))) for a, b in pairs if a != b
        ]
        table += [(b, a, weight) for a, b, weight in table if weight == 0.5]
        table = [Comparison(*row) for row in table]
        assert bradley_terry(table, n) == approx(brute_force(table, n), abs=2e-5)


def test_bradley_terry_by_hand() -> None:
    assert bradley_terry([], 3) == [0.5, 0.5, 0.5] and bradley_terry([], 0) == []
    t = 0.337416  # one win: theta = (t, -t) with t = sigmoid(-2 t)
    assert t == approx(1 / (1 + math.exp(2 * t)), abs=1e-5)
    first = 1 / (1 + math.exp(-t))
    assert bradley_terry(won((0, 1)), 3) == approx([first, 1 - first, 0.5], abs=1e-5)
    # the example of Appendix H; the paper prints (0.75, 0.55, 0.30) without saying how
    example = won(*[(0, 1)] * 3, *[(1, 2)] * 2, *[(0, 2)] * 4)
    assert bradley_terry(example, 3) == approx([0.753, 0.473, 0.268], abs=5e-4)
    peers = [
        (a, b)
        for judge in range(4)
        for a in range(4)
        for b in range(a + 1, 4)
        if judge not in (a, b)
    ]
    assert bradley_terry(won(*peers), 4) == approx(
        [0.761, 0.592, 0.408, 0.239], abs=5e-4
    )


def test_bradley_terry_is_finite_and_fair_where_maximum_likelihood_is_not() -> None:
    assert bradley_terry(won((0, 1), (1, 2), (2, 0)), 3) == approx([0.5] * 3), "a cycle"
    assert bradley_terry([Comparison(0, 1, 0.5), Comparison(1, 0, 0.5)], 2) == approx(
        [0.5, 0.5]
    ), "a tie"
    islands = bradley_terry(won((0, 1), (2, 3)), 4)
    assert islands == approx([islands[0], 1 - islands[0]] * 2)
    million = bradley_terry([Comparison(0, 1, 1e6)], 4)
    assert million[0] == approx(1 / (1 + math.exp(-6.01)), abs=1e-3) and million[
        2:
    ] == [0.5, 0.5]
    lopsided = bradley_terry([Comparison(0, 1, 1e15), Comparison(1, 0, 1.0)], 2)
    assert sum(lopsided) == approx(1) and 0 < lopsided[1] < 1e-6
    assert bradley_terry([Comparison(0, 0, 5.0)], 2) == [0.5, 0.5], (
        "compared with itself"
    )
    weak, strong = (
        bradley_terry(won((0, 1)), 2, variance)[0] for variance in (0.01, 100.0)
    )
    assert 0.5 < weak < 0.51 < 0.85 < strong < 1


def test_diagnostic_reward_pays_only_improvements_of_those_criticised() -> None:
    before, after = [0.43, 0.65, 0.58, 0.38], [0.71, 0.60, 0.58, 0.40]
    paid = {(0,): 0.28, (0, 1, 2, 3): 0.30, (1,): 0, (): 0}
    assert {targets: diagnostic(targets, before, after) for targets in paid} == approx(
        paid
    )
    assert 5 * diagnostic([0], [0.43], [0.71]) == approx(1.40), (
        "Appendix K multiplies by five"
    )
    assert expected_diagnostic([0, 1], before, after) == approx((0.28 + 0.05) / 2)
    both = diagnostic([0, 1, 3], before, after) + diagnostic([0, 1, 3], after, before)
    assert expected_diagnostic([0, 1, 3], before, after) == approx(both / 2)


def test_majority_alignment_by_hand() -> None:
    everyone = [won((0, 1), (2, 3)), won((0, 1), (3, 2)), won((1, 0))]
    # 0 over 1 leads 2 : 1; 2 against 3 is split evenly and leaves the mean
    assert [majority_alignment(votes, everyone) for votes in everyone] == [
        1.0,
        1.0,
        0.0,
    ]
    assert (
        majority_alignment(won((0, 1), (3, 2), (1, 2)), [*everyone, won((1, 2))]) == 1.0
    )
    assert majority_alignment(won((2, 3)), everyone) is None, (
        "only a split pair: nothing to compare with"
    )
    assert majority_alignment([], everyone) == 0.0, "nothing readable"
    tie = [Comparison(0, 1, 0.5), Comparison(1, 0, 0.5)]
    assert (
        majority_alignment(tie, everyone) is None
        and majority_alignment(won((0, 1)), [won((0, 1)), tie]) == 1.0
    )
    half = [won((0, 1), (2, 1)), won((0, 1), (1, 2)), won((0, 1), (1, 2))]
    assert majority_alignment(half[0], half) == 0.5
    lone, pair = [won((0, 1)), won((2, 3))], [won((0, 1)), won((1, 0)), won((0, 1))]
    assert [majority_alignment(lone[0], lone, leave) for leave in (False, True)] == [
        1.0,
        None,
    ]
    assert [majority_alignment(votes, pair, True) for votes in pair] == [
        None,
        0.0,
        None,
    ]
    assert [
        majority_alignment(pair[0], pair[:2], leave) for leave in (False, True)
    ] == [None, 0.0]


def test_rankings_without_and_with_ones_own_votes_and_in_every_order() -> None:
    text = "<final_ranking>Agent 1 > Agent 0\nAgent 0 > Agent 2</final_ranking>"
    assert ranking(text, "final_ranking", 3, 1) == [Comparison(0, 2, 1.0)], (
        "own votes count only when asked for"
    )
    assert ranking(text, "final_ranking", 3) == [
        Comparison(1, 0, 1.0),
        Comparison(0, 2, 1.0),
    ]
    for places in permutations(range(4)):
        line = " > ".join(f"Agent {i}" for i in places)
        votes = ranking(f"<final_ranking>{line}</final_ranking>", "final_ranking", 4)
        values = bradley_terry(votes, 4)
        assert sorted(range(4), key=lambda i: -values[i]) == list(places)


@given(HOSTILE)
def test_no_text_raises_and_every_value_is_sound(text: str) -> None:
    read = ranking(text, "final_ranking", 4, 1)
    assert all(
        a != b and {a, b} <= {0, 2, 3} and weight in (0.5, 1.0)
        for a, b, weight in map(astuple, read)
    )
    assert (
        len(
            {
                frozenset((vote.winner, vote.loser))
                for vote in read
                if vote.weight == 1.0
            }
        )
        <= 3
    )
    assert read == [] or span(text, "final_ranking")
    for critique in critiques(text, 4, 1):
        said = text[slice(*critique.span)].removeprefix(
            f'<critique target="Agent {critique.target}">'
        )
        assert (
            critique.target in (0, 2, 3)
            and said.removesuffix("</critique>").strip() == critique.text
        )


RHO = [  # by hand: ranks 4 3 2 1 against ties 3.5 3.5 1.5 1.5 give 4 / sqrt(5 x 4) = 0.894
    ([0.9, 0.8, 0.2, 0.1], [True, True, False, False], 0.8944), ([0.1, 0.2, 0.8, 0.9], [True, True, False, False], -0.8944),
    ([0.9, 0.5, 0.1], [True, False, False], 0.8660), ([0.9, 0.1, 0.9, 0.1], [True, True, False, False], 0.0),
    ([0.6, 0.4], [True, False], 1.0), ([0.6, 0.4], [True, True], None), ([0.6, 0.4], [False, False], None),
    ([0.5, 0.5], [True, False], None),
]  # fmt: skip


def test_measures_of_appendix_f_and_table_4_by_hand() -> None:
    tied = measures([0.4, 0.7, 0.7, 0.2], [False] * 4, [True, False, True, False])
    assert (tied["pass_1"], tied["pass_k"]) == (0.0, 1.0), "ties are broken by number"
    for scores, right, rho in RHO:
        assert rank_rho(scores, right) == (
            None if rho is None else approx(rho, abs=1e-4)
        )
    one = measures([0.7, 0.6, 0.3], [False, True, True], [True, True, False])
    counts = {"wrong_before": 1, "fixed": 1, "correct_before": 2, "harmed": 1}
    assert one == {
        "pass_1": 1,
        "pass_k": 1,
        "rank_rho": approx(0.8660, abs=1e-4),
        **counts,
    }
    two = measures([0.5, 0.5, 0.5], [False] * 3, [False] * 3)
    assert (two["pass_1"], two["rank_rho"], two["wrong_before"], two["fixed"]) == (
        0,
        None,
        3,
        0,
    )
    unknown = measures([0.7, 0.6, 0.3], [False, True, True], [True, None, False])
    assert unknown == dict.fromkeys(one), "unscored is not wrong"


def test_examine_discusses_test_items_of_the_families_trained_on() -> None:
    conl = CoNL(agents=2)
    rows = conl.examine(Scripted(lambda turn: "ANSWER: 5"), 2, (1,))
    assert len(rows) == 24 and {row["family"] for row in rows} == set(conl.families)
    assert [row["item"] for row in rows] == list(range(24)) and json.loads(
        json.dumps(rows)
    ) == rows
    assert all(
        row["answers_after"] == ["5", "5"] and row["scores_after"] == [0.5, 0.5]
        for row in rows
    )
    assert not {row["question"] for row in rows} & set(conl.questions)
