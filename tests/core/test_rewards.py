"""MAE's reward equations (sections 4.1 to 4.3), their ablations and the released code's variant, by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevolve.papers.format import format_reward
from coevolve.papers.mae import rewards as mae

UNIT = st.floats(0, 1)
FORMAT = st.sampled_from([None, 0.0, 0.5, 1.0])


@pytest.mark.parametrize("name", ["question", "answer"])
def test_format_reward_counts_pairs(name: str) -> None:
    pair = f"<{name}>5</{name}>"
    assert format_reward(f"before {pair} after", name) == 1.0
    assert format_reward(pair * 2, name) == 0.5
    assert format_reward(pair * 7, name) == 0.5
    assert format_reward("", name) == 0.0
    assert format_reward("5", name) == 0.0
    assert format_reward(f"{pair}<{name}>", name) == 0.0


def test_format_reward_with_unfilled_pairs() -> None:
    unfilled = "<question>[Your question goes here]</question>"
    assert format_reward(unfilled, "question") == 0.0
    assert format_reward(unfilled * 2, "question") == 0.0
    assert format_reward(unfilled + "<question>2 + 2?</question>", "question") == 0.5


def test_format_reward_of_a_score_wants_a_number() -> None:
    assert format_reward("<score>7</score>", "score") == 1.0
    assert format_reward("<score>11</score>", "score") == 1.0
    assert format_reward("<score>seven</score>", "score") == 0.0
    assert format_reward("<score>X</score>", "score") == 0.0
    assert format_reward("<score>X</score> <score>7</score>", "score") == 0.5
    assert format_reward("<answer>seven</answer>", "answer") == 1.0


def test_neutral() -> None:
    assert mae.neutral(None) == 0.5
    assert mae.neutral(0.0) == 0.0
    assert mae.neutral(0.25) == 0.25


def test_difficulty_is_one_minus_the_mean_of_readable_scores() -> None:
    assert mae.difficulty([1.0, 1.0, 0.5, 0.0, 0.0]) == 0.5
    assert mae.difficulty([0.75]) == 0.25
    assert mae.difficulty([1.0, None, 0.5, None, None]) == 0.25
    assert mae.difficulty([0.0, None]) == 1.0
    assert mae.difficulty([None] * 5) == 0.5
    assert mae.difficulty([]) == 0.5


def test_proposer_reward_is_a_third_of_each() -> None:
    assert mae.proposer_reward(0.9, 0.6, 1.0) == pytest.approx(2.5 / 3)
    assert mae.proposer_reward(0.0, 1.0, 0.5) == pytest.approx(0.5)
    assert mae.proposer_reward(1.0, 1.0, 1.0) == pytest.approx(1.0)
    assert mae.proposer_reward(0.0, 0.0, 0.0) == 0.0
    assert mae.proposer_reward(None, 0.25, 1.0) == pytest.approx(1.75 / 3)
    assert mae.proposer_reward(0.0, 0.0, 0.5) == pytest.approx(0.5 / 3)  # several pairs: only the format is paid


def test_proposer_reward_with_other_weights() -> None:
    assert mae.proposer_reward(0.5, 0.25, 1.0, weights=(0.5, 0.4, 0.1)) == pytest.approx(0.45)


def test_low_quality_keeps_its_difficulty_in_the_paper_but_not_in_the_released_code() -> None:
    assert mae.proposer_reward(0.6, 0.9, 1.0) == pytest.approx(2.5 / 3)
    assert mae.official_proposer_reward(0.6, 0.9, 1.0, parsed=True) == pytest.approx(1.6 / 3)
    assert mae.official_proposer_reward(0.7, 0.9, 1.0, parsed=True) == pytest.approx(2.6 / 3)
    assert mae.official_proposer_reward(6 / 9, 0.9, 1.0, parsed=True) == pytest.approx((6 / 9 + 1) / 3)
    assert mae.official_proposer_reward(None, 0.9, 1.0, parsed=True) == pytest.approx(0.5)
    assert mae.official_proposer_reward(0.6, 0.9, 1.0, parsed=True, threshold=0.5) == pytest.approx(2.5 / 3)


def test_released_code_pays_nothing_for_a_question_that_does_not_parse() -> None:
    assert mae.official_proposer_reward(0.9, 0.9, 0.5, parsed=False) == 0.0
    assert mae.official_proposer_reward(0.9, 0.9, None, parsed=False) == 0.0


def test_solver_reward_is_half_of_each() -> None:
    assert mae.solver_reward(0.8, 1.0) == pytest.approx(0.9)
    assert mae.solver_reward(0.8, 0.0) == pytest.approx(0.4)
    assert mae.solver_reward(0.0, 0.5) == pytest.approx(0.25)
    assert mae.solver_reward(None, 1.0) == pytest.approx(0.75)
    assert mae.solver_reward(0.5, 1.0, weights=(0.8, 0.2)) == pytest.approx(0.6)


def test_judge_reward_is_its_format() -> None:
    assert [mae.judge_reward(value) for value in (1.0, 0.5, 0.0)] == [1.0, 0.5, 0.0]


def test_without_format_reward_the_other_weights_take_its_share() -> None:
    assert mae.proposer_reward(0.9, 0.6, None) == pytest.approx(0.75)
    assert mae.proposer_reward(0.4, 0.8, None, weights=(0.6, 0.2, 0.2)) == pytest.approx(0.5)
    assert mae.official_proposer_reward(0.6, 0.9, None, parsed=True) == pytest.approx(0.3)
    assert mae.solver_reward(0.8, None) == pytest.approx(0.8)
    assert mae.judge_reward(None) == 0.0


def test_format_as_the_only_weight_leaves_nothing_when_ablated() -> None:
    assert mae.solver_reward(0.8, None, weights=(0.0, 1.0)) == 0.0
    assert mae.proposer_reward(0.8, 0.8, None, weights=(0.0, 0.0, 1.0)) == 0.0


@given(st.lists(st.none() | UNIT), st.none() | UNIT, FORMAT, st.booleans())
def test_rewards_are_total_and_stay_in_the_unit_interval(
    scores: list[float | None], quality: float | None, form: float | None, parsed: bool
) -> None:
    hard = mae.difficulty(scores)
    rewards = [
        hard,
        mae.proposer_reward(quality, hard, form),
        mae.official_proposer_reward(quality, hard, form, parsed=parsed),
        mae.solver_reward(quality, form),
        mae.judge_reward(form),
    ]
    assert all(-1e-9 <= reward <= 1 + 1e-9 for reward in rewards)
    assert rewards[2] <= rewards[1] + 1e-12
