"""The equations of MAE, SAGE, SPICE and CoMAS by hand, as pure functions of scores, and the corpus of scores."""

import math

from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from coevolve.methods.comas import rewards as comas
from coevolve.methods.format_reward import format_reward
from coevolve.methods.mae import rewards as mae
from coevolve.methods.sage import rewards as sage
from coevolve.methods.spice import rewards as spice


def test_format_rewards_of_repeated_tags() -> None:
    pair, unfilled = "<question>5</question>", "<question>[Your question goes here]</question>"
    paid = {pair * 2: 0.5, pair * 7: 0.5, unfilled: 0, unfilled * 2: 0, unfilled + pair: 0.5, f"{pair}<question>": 0}
    assert {said: format_reward(said, "question") for said in paid} == paid
    assert format_reward("<score>X</score><score>7</score>", "score") == 0.5


def test_mae_equations() -> None:
    assert [mae.neutral(score) for score in (None, 0.0, 0.25)] == [0.5, 0.0, 0.25]
    judged = [[1.0, 1.0, 0.5, 0.0, 0.0], [0.75], [1.0, None, 0.5, None], [0.0, None], [None, None], []]
    assert [mae.difficulty(scores) for scores in judged] == [0.5, 0.25, 0.25, 1.0, 0.5, 0.5]
    propose = mae.proposer_reward
    terms = [(0.9, 0.6, 1.0), (0.0, 1.0, 0.5), (1.0, 1.0, 1.0), (None, 0.25, 1.0), (0.0, 0.0, 0.5), (0.9, 0.6, None)]
    assert [propose(*term) for term in terms] == approx([2.5 / 3, 0.5, 1.0, 1.75 / 3, 0.5 / 3, 0.75])
    solve = mae.solver_reward
    terms = [(0.8, 1.0), (0.8, 0.0), (0.0, 0.5), (None, 1.0), (0.8, None)]
    assert [solve(*term) for term in terms] == approx([0.9, 0.4, 0.25, 0.75, 0.8])


def test_maes_released_code_gates_difficulty_by_quality_and_pays_nothing_unparsed() -> None:
    quality = {0.6: 1.6, 0.7: 2.6, 6 / 9: 6 / 9 + 1, None: 1.5}
    paid = {q: mae.official_proposer_reward(q, 0.9, 1.0, parsed=True) for q in quality}
    assert paid == {q: approx(total / 3) for q, total in quality.items()}
    assert mae.official_proposer_reward(0.6, 0.9, 1.0, parsed=True, threshold=0.5) == approx(2.5 / 3)
    assert mae.official_proposer_reward(0.6, 0.9, None, parsed=True) == approx(0.3)
    assert mae.official_proposer_reward(0.9, 0.9, 0.5, parsed=False) == 0.0


SUM = "<question>2+3</question><type>math</type><answer>5</answer>"
NORMS = {  # equation 2
    0.0: 0.0, 0.25: 0.25, 0.999999: 0.999999, 1.0: 0.0, 1.5: 0.5 / 9, 2.0: 1 / 9, 5.5: 0.5, 7.0: 6 / 9, 8.0: 7 / 9,
    10.0: 1.0, 10.000001: 0.5, 11.0: 0.5, -1.0: 0.5, -0.5: 0.5, None: 0.5,
    math.inf: 0.5, -math.inf: 0.5,
}  # fmt: skip


def test_sage_equation_2() -> None:
    assert {score: sage.norm(score) for score in NORMS} == approx(NORMS)
    printed = NORMS | {1.0: 1.0}  # the worst grade of the prompt's scale, which so passes both gates
    assert {score: sage.norm(score, literal=True) for score in NORMS} == approx(printed)


def test_sage_format_rewards_are_soft_over_the_required_tags() -> None:
    paid = {f"Here:\n{SUM}\nDone.": 1, "<question>2+3</question>": 1 / 3, "2+3 = 5": 0, "<think></think>": 0} | {
        "<question>2+3</question><type> code </type><answer>5</answer>": 1,  # which tag holds it is the caller's affair
        "<question>2+3</question><type>poem</type><answer>5</answer>": 2 / 3,
        "<question>2+3</question><type>math</type><answer></answer>": 2 / 3,
        "<question>[Your generated task goes here]</question><type>math</type><answer>5</answer>": 2 / 3,
        "<question><question>2+3</question><type>math</type><answer>5</answer>": 2 / 3,
        f"{SUM}<answer>6</answer>": 2.5 / 3, SUM * 2: 0.5, "": 0.5, "\n\t \u00a0": 0.5,
    }  # fmt: skip
    assert {said: sage.format_reward(said, ("question", "type", "answer")) for said in paid} == approx(paid)
    assert sage.format_reward(" ", ("score",), empty=0.0) == 0.0
    scores = {"<score>99</score>": 1, "<score>high</score>": 0, "7": 0, "<score>7</score><score>x</score>": 0.5}
    assert {said: sage.format_reward(said, ("score",)) for said in scores} == scores


def test_sage_equations_4_to_13() -> None:
    verified = [[1.0, 0.0, 1.0, 1.0, 0.0], [0.5, None, 1.0], [None, None], []]
    assert [sage.difficulty(values) for values in verified] == [approx(0.4), 0.25, None, None]  # 4
    assert sage.challenger_reward(0.9, 0.6, 1.0) == approx(2.5 / 3)  # 5
    assert sage.challenger_reward(0.6, None, 1.0) == approx(0.8)  # 6
    assert sage.planner_reward(7 / 9, 1.0, (0.5, 0.5)) == approx(7 / 18 + 1 / 2)  # 8
    assert sage.planner_reward(0.2, 1.0, (0.75, 0.25)) == approx(0.4)
    assert [sage.gated(s, 0.3) for s in (0.0, 0.299, 0.3, 0.31, 1.0)] == [0.0, 0.0, 0.3, 0.31, 1.0]  # 10
    terms = [(7 / 9, 1.0, 1.0), (0.0, 1.0, 0.5), (1.0, 0.0, 0.0), (None, 1.0, 0.5), (None, 0.0, 1.0)]
    paid = [sage.solver_reward(*term, (0.2, 0.6, 0.2)) for term in terms]
    assert paid == approx([0.2 * 7 / 9 + 0.8, 0.7, 0.2, 0.75, 0.5])  # 11
    assert sage.solver_reward(0.5, 1.0, 0.0, (0.5, 0.25, 0.25)) == approx(0.5)


def test_spice_rewards() -> None:
    quarter, never = math.exp(-0.1953125), math.exp(-3.125)  # (3/16 - 1/4)^2 / 0.02 and (1/4)^2 / 0.02
    # p = 3/8: variance 15/64, off by 1/64
    curve = {0.5: 1.0, 0.25: quarter, 0.75: quarter, 0.375: math.exp(-1 / 4096 / 0.02), 0.0: never, 1.0: never}
    assert {p: spice.gaussian(p) for p in curve} == approx(curve)
    assert spice.gaussian(0.5, optimum=0.16) == approx(math.exp(-(0.09**2) / 0.02))
    assert spice.gaussian(0.0, tau=0.1) == approx(math.exp(-0.3125))
    for hits in range(9):
        verdicts = [1] * hits + [0] * (8 - hits)
        variance = sum((v - hits / 8) ** 2 for v in verdicts) / 8  # and not over 7
        assert spice.gaussian(hits / 8) == approx(math.exp(-((variance - 0.25) ** 2) / 0.02))
    assert [spice.one_minus(p) for p in (0.0, 0.125, 0.5, 0.875, 1.0)] == [0.0, 0.875, 0.5, 0.125, 0.0]
    assert [spice.threshold(p) for p in (0.0, 0.125, 0.5, 0.875, 1.0)] == [0.0, 1.0, 1.0, 1.0, 0.0]
    assert [spice.uncertainty(p) for p in (0.0, 0.125, 0.5, 0.875, 1.0)] == [0.0, 0.25, 1.0, 0.25, 0.0]
    assert {spice.challenger_reward(kind, None) for kind in spice.CHALLENGER} == {-0.1}
    assert spice.challenger_reward("threshold", None, penalty=-1.0) == -1.0


def test_comas_equations_7_and_8_and_the_ablations() -> None:
    solve, evaluate = comas.solution_reward, comas.evaluation_reward  # 7
    scores = [[1], [2], [3], [3, 1, 2, 3], [3, None], [None, None]]
    assert [solve(s) for s in scores] == [0.0, 0.5, 1.0, (1 + 0 + 1 / 2 + 1) / 4, 1.0, None]
    assert [evaluate(s) for s in (1, 2, 3, None)] == [1.0, 0.5, 0.0, None]
    assert solve([3, None], neutral=True) == 0.75 and evaluate(None, neutral=True) == 0.5
    assert [comas.scoring_reward(score) for score in (1, 2, 3, None)] == [0.0, 0.0, 0.0, -1.0]  # 8
    verdicts = [True, False, True, None]
    assert [comas.agreement(verdicts, i) for i in range(4)] == [0.5, 0.0, 0.5, 0.0]
    assert comas.agreement([True, None], 0) is None and comas.agreement([False, False], 1) == 1.0
    counts = comas.confusion([1.0, 0.75, 0.5, 0.0, 1.0, None, 0.2], [True, False, True, False, None, True, True])
    assert counts == {"tp": 1, "fp": 1, "fn": 2, "tn": 1}


@given(st.lists(st.sampled_from([1, 2, 3, None]), max_size=5), st.lists(st.sampled_from([True, False, None])))
def test_comas_rewards_are_total_and_zero_sum(scores: list[int | None], verdicts: list[bool | None]) -> None:
    solved, evaluated = comas.solution_reward(scores), [comas.evaluation_reward(score) for score in scores]
    known = [reward for reward in evaluated if reward is not None]
    assert (solved is None) == (not known)
    assert solved is None or solved + sum(known) / len(known) == approx(1)
    agreed = [comas.agreement(verdicts, i) for i in range(len(verdicts))]
    assert all(value is None or 0 <= value <= 1 for value in agreed)
