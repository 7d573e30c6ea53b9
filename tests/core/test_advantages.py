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
    ids = tuple(range(tokens))
    return Reply(Turn(role, (), policy), "", (0,), ids, (0.0,) * tokens).earns(reward, group)


def flat(rows):
    return [value for row in rows for value in row]


def test_task_relative_standardises_each_role_on_its_own():
    samples = [sample("solver", 1.0, 2), sample("judge", 10.0, 1), sample("solver", 0.0, 3), sample("judge", 4.0, 0)]
    solver, judge, low, cut = task_relative(EstimatorInputs(samples))
    assert solver == pytest.approx([0.5 / (0.5 + 1e-8)] * 2)
    assert low == pytest.approx([-0.5 / (0.5 + 1e-8)] * 3)
    assert judge == pytest.approx([3 / (3 + 1e-8)])
    assert cut == []


@pytest.mark.parametrize("estimator", [task_relative, group_mean, reinforce_pp, reinforce_pp_by_role])
def test_equal_rewards_and_single_replies_give_exact_zeros(estimator):
    judge = 0.1 if estimator is reinforce_pp else 0.7  # which pools the roles of a policy
    samples = [sample("solver", 0.1, 2)] * 3 + [sample("judge", judge, 2), sample("solver", 0.1, 0)]
    assert estimator(EstimatorInputs(samples)) == [[0.0, 0.0]] * 4 + [[]]
    assert estimator(EstimatorInputs([sample("solver", 0.1, 0)])) == [[]]
    assert estimator(EstimatorInputs([])) == []


def test_group_mean_subtracts_the_siblings_of_the_same_role():
    samples = [sample("reasoner", *each) for each in ((1.0, 2, "doc1"), (0.0, 1, "doc1"), (1.0, 1, "doc2"))]
    samples += [sample("challenger", reward, 1, "doc1") for reward in (0.5, 0.1)]
    samples += [sample("judge", reward) for reward in (3.0, 1.0)]
    assert flat(group_mean(EstimatorInputs(samples))) == pytest.approx([0.5, 0.5, -0.5, 0.0, 0.2, -0.2, 1.0, -1.0])


def test_equations_9_and_10_by_hand():
    # Rewards 1 on two tokens and 0 on one; beta = 0.5. Log-ratios (0.2, 0.4) and (-0.6):
    # A = 1 - 0.5 (0.2 + 0.4) = 0.7, 1 - 0.5 * 0.4 = 0.8, and 0 + 0.5 * 0.6 = 0.3. Their mean is 0.6;
    # deviations 0.1, 0.2, -0.3; population variance (0.01 + 0.04 + 0.09) / 3 = 0.14 / 3.
    pair, deviation = [sample("solution", 1.0, 2), sample("scoring", 0.0)], math.sqrt(0.14 / 3)
    found = reinforce_pp(EstimatorInputs(pair, [[0.2, 0.4], [-0.6]], 0.5))
    assert flat(found) == pytest.approx([0.1 / deviation, 0.2 / deviation, -0.3 / deviation])
    # The penalty of a token counts everything that follows it.
    # Equal rewards, beta 1, log-ratios 1, 2, 3: A_t = -(6, 5, 3), centred on -14/3.
    found = reinforce_pp(EstimatorInputs([sample("solution", 0.0, 3)], [[1.0, 2.0, 3.0]], 1.0))
    scale = math.sqrt(((-4 / 3) ** 2 + (-1 / 3) ** 2 + (5 / 3) ** 2) / 3)
    assert found[0] == pytest.approx([-4 / 3 / scale, -1 / 3 / scale, 5 / 3 / scale])
    # Without a penalty every token has its reward. Rewards 1 (one token) and 0 (three): mean 1/4, variance 3/16.
    found = reinforce_pp(EstimatorInputs([sample("solution", 1.0), sample("evaluation", 0.0, 3)]))
    assert flat(found) == pytest.approx([math.sqrt(3)] + [-1 / math.sqrt(3)] * 3)


def test_a_readable_scoring_has_a_standing_disadvantage_in_the_common_buffer_only():
    # Zero-sum pairs 1/0 and scorings that earn 0: mean 1/3, deviation sqrt(2)/3, so a scoring gets -1/sqrt(2).
    roles = ("solution", "evaluation", "scoring") * 2
    batch = [sample(role, reward) for role, reward in zip(roles, (1.0, 0.0, 0.0, 0.0, 1.0, 0.0), strict=True)]
    common, apart = flat(reinforce_pp(EstimatorInputs(batch))), flat(reinforce_pp_by_role(EstimatorInputs(batch)))
    assert [common[2], common[5]] == pytest.approx([-1 / math.sqrt(2)] * 2)
    assert [apart[2], apart[5]] == [0.0, 0.0] and apart[:2] == pytest.approx([1, -1])


def test_agents_and_groups_are_normalised_apart():
    one = [sample("solution", 1.0, 2), sample("solution", 0.0)]
    other = [sample("solution", reward, policy="agent_2") for reward in (9.0, 5.0)]
    both = reinforce_pp(EstimatorInputs([*one, *other]))
    assert both[:2] == reinforce_pp(EstimatorInputs(one)) and flat(both[2:]) == pytest.approx([1, -1])
    assert flat(reinforce_pp(EstimatorInputs([*one, sample("solution", 0.5, 2, group="dummy")])))[3:] == [0.0, 0.0]


BY_SEGMENT = {"segment_centred", "gae", "rae"}  # these take rewards by segment


@pytest.mark.parametrize("name", sorted({*ESTIMATORS} - BY_SEGMENT))
@pytest.mark.parametrize("reward", [{"critique": 1.0}, math.nan, math.inf, None])
def test_a_reward_that_is_no_number_is_named(name, reward):
    with pytest.raises(ValueError, match="one finite number per reply, 'critic' earned"):
        ESTIMATORS[name](EstimatorInputs([sample("solver", 1.0), sample("critic", reward)]))
