"""Advantage estimators against numbers worked out by hand."""

import math

import pytest

from coevolve.advantages.estimators import (
    ESTIMATORS,
    group_mean,
    reinforce_pp,
    reinforce_pp_by_role,
    task_relative,
)
from coevolve.advantages.inputs import EstimatorInputs
from coevolve.types import Reply, Turn


def sample(role, reward, tokens=1, group=None, policy="shared"):
    """A reply of a role with a number of tokens and a reward."""
    ids = tuple(range(tokens))
    logprobs = (0.0,) * tokens
    turn = Turn(role, (), policy)
    reply = Reply(turn, "", (0,), ids, logprobs)
    return reply.earns(reward, group)


def estimate(estimator, *samples):
    """The advantages of samples, without log-ratios."""
    return estimator(EstimatorInputs(list(samples)))


def flat(rows):
    """The advantages of all tokens of all samples."""
    values = []
    for row in rows:
        values += row
    return values


def test_task_relative_standardises_each_role_by_itself():
    solver, judge, low, cut = estimate(
        task_relative,
        sample("solver", 1.0, 2),
        sample("judge", 10.0, 1),
        sample("solver", 0.0, 3),
        sample("judge", 4.0, 0),
    )
    solver_advantage = 0.5 / (0.5 + 1e-8)
    assert solver == pytest.approx([solver_advantage] * 2)
    assert low == pytest.approx([-solver_advantage] * 3)
    assert judge == pytest.approx([3 / (3 + 1e-8)])
    assert cut == []


@pytest.mark.parametrize(
    "estimator", [task_relative, group_mean, reinforce_pp, reinforce_pp_by_role]
)
def test_equal_rewards_and_single_replies_give_exact_zeros(estimator):
    # reinforce_pp pools the roles of a policy.
    judge_reward = 0.1 if estimator is reinforce_pp else 0.7
    solvers = [sample("solver", 0.1, 2)] * 3
    judge = sample("judge", judge_reward, 2)
    empty = sample("solver", 0.1, 0)
    expected = [[0.0, 0.0]] * 4 + [[]]
    assert estimate(estimator, *solvers, judge, empty) == expected
    assert estimate(estimator, empty) == [[]]
    assert estimate(estimator) == []


def test_group_mean_subtracts_the_siblings_of_the_same_role():
    rows = estimate(
        group_mean,
        sample("reasoner", 1.0, 2, "doc1"),
        sample("reasoner", 0.0, 1, "doc1"),
        sample("reasoner", 1.0, 1, "doc2"),
        sample("challenger", 0.5, 1, "doc1"),
        sample("challenger", 0.1, 1, "doc1"),
        sample("judge", 3.0),
        sample("judge", 1.0),
    )
    reasoners = [0.5, 0.5, -0.5, 0.0]
    challengers = [0.2, -0.2]
    judges = [1.0, -1.0]
    assert flat(rows) == pytest.approx(reasoners + challengers + judges)


def test_equations_9_and_10_by_hand():
    # Rewards 1 on two tokens and 0 on one; beta = 0.5. Log-ratios (0.2, 0.4) and (-0.6):
    # A = 1 - 0.5 (0.2 + 0.4) = 0.7, 1 - 0.5 * 0.4 = 0.8, and 0 + 0.5 * 0.6 = 0.3. Their mean is
    # 0.6; deviations 0.1, 0.2, -0.3; population variance (0.01 + 0.04 + 0.09) / 3 = 0.14 / 3.
    samples = [
        sample("solution", 1.0, 2),
        sample("scoring", 0.0),
    ]
    log_ratios = [
        [0.2, 0.4],
        [-0.6],
    ]
    rows = reinforce_pp(EstimatorInputs(samples, log_ratios, 0.5))
    deviation = math.sqrt(0.14 / 3)
    expected = [0.1 / deviation, 0.2 / deviation, -0.3 / deviation]
    assert flat(rows) == pytest.approx(expected)


def test_the_penalty_of_a_token_counts_every_token_after_it():
    # Equal rewards, beta 1, log-ratios 1, 2, 3: A_t = -(6, 5, 3), centred on -14/3.
    solution = sample("solution", 0.0, 3)
    log_ratios = [[1.0, 2.0, 3.0]]
    rows = reinforce_pp(EstimatorInputs([solution], log_ratios, 1.0))
    centred = [-4 / 3, -1 / 3, 5 / 3]
    variance = sum(value**2 for value in centred) / 3
    scale = math.sqrt(variance)
    assert rows[0] == pytest.approx([value / scale for value in centred])


def test_without_a_penalty_every_token_has_its_reward():
    # Rewards 1 (one token) and 0 (three): mean 1/4, variance 3/16.
    solution = sample("solution", 1.0)
    evaluation = sample("evaluation", 0.0, 3)
    rows = estimate(reinforce_pp, solution, evaluation)
    high = math.sqrt(3)
    low = -1 / math.sqrt(3)
    assert flat(rows) == pytest.approx([high, low, low, low])


def test_a_readable_scoring_has_a_standing_disadvantage_in_the_common_buffer_only():
    # Zero-sum pairs 1/0 and scorings that earn 0: mean 1/3, deviation sqrt(2)/3, so a scoring gets
    # -1/sqrt(2).
    batch = [
        sample("solution", 1.0),
        sample("evaluation", 0.0),
        sample("scoring", 0.0),
        sample("solution", 0.0),
        sample("evaluation", 1.0),
        sample("scoring", 0.0),
    ]
    common = flat(estimate(reinforce_pp, *batch))
    by_role = flat(estimate(reinforce_pp_by_role, *batch))
    disadvantage = -1 / math.sqrt(2)
    assert [common[2], common[5]] == pytest.approx([disadvantage] * 2)
    assert [by_role[2], by_role[5]] == [0.0, 0.0]
    assert by_role[:2] == pytest.approx([1, -1])


def test_agents_are_normalised_apart():
    first_agent = [
        sample("solution", 1.0, 2),
        sample("solution", 0.0),
    ]
    second_agent = [
        sample("solution", 9.0, policy="agent_2"),
        sample("solution", 5.0, policy="agent_2"),
    ]
    both = estimate(reinforce_pp, *first_agent, *second_agent)
    assert both[:2] == estimate(reinforce_pp, *first_agent)
    assert flat(both[2:]) == pytest.approx([1, -1])


def test_groups_are_normalised_apart():
    samples = [
        sample("solution", 1.0, 2),
        sample("solution", 0.0),
    ]
    other_group = sample("solution", 0.5, 2, group="dummy")
    rows = estimate(reinforce_pp, *samples, other_group)
    assert flat(rows)[3:] == [0.0, 0.0]


BY_SEGMENT = {"segment_centred", "gae", "rae"}  # these take rewards by segment
NOT_FINITE = [math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
@pytest.mark.parametrize("reward", NOT_FINITE, ids=repr)
def test_a_reward_that_is_not_finite_is_named(name, reward):
    samples = [
        sample("solver", 1.0),
        sample("critic", reward),
    ]
    message = "one finite number per reply, 'critic' earned"
    with pytest.raises(ValueError, match=message):
        ESTIMATORS[name](inputs_with_values(samples))


@pytest.mark.parametrize("name", sorted({*ESTIMATORS} - BY_SEGMENT))
def test_a_reward_by_segment_is_refused_where_replies_have_one(name):
    samples = [sample("critic", {"critique": 1.0})]
    message = (
        "a reward per segment needs estimator=segment_centred, gae or rae; 'critic'"
    )
    with pytest.raises(ValueError, match=message):
        ESTIMATORS[name](EstimatorInputs(samples))


@pytest.mark.parametrize("name", sorted(BY_SEGMENT))
@pytest.mark.parametrize("reward", [math.nan, -math.inf, "high", (1.0,)], ids=repr)
def test_a_segments_reward_that_is_no_number_is_named(name, reward):
    samples = [sample("critic", {"ranking": None, "critique": reward})]
    message = "one finite number or None per segment, 'critic' earned {'ranking': None"
    with pytest.raises(ValueError, match=message):
        ESTIMATORS[name](inputs_with_values(samples))


def inputs_with_values(samples):
    """The samples with a baseline of 0 before every token."""
    values = [[0.0] * len(row.reply.completion_ids) for row in samples]
    return EstimatorInputs(samples, values=values)
