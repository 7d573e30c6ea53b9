"""Advantage estimators against numbers worked out by hand."""

import math

import pytest

from coevolve.advantages import ESTIMATORS, group_mean, reinforce_pp, reinforce_pp_by_role, task_relative
from coevolve.types import Reply, Turn


def sample(role, reward, tokens=1, group=None):
    ids = tuple(range(tokens))
    return Reply(Turn(role, ()), "", (0,), ids, (0.0,) * tokens).earns(reward, group)


def test_task_relative_standardises_each_role_on_its_own():
    samples = [sample("solver", 1.0, 2), sample("judge", 10.0, 1), sample("solver", 0.0, 3), sample("judge", 4.0, 0)]
    solver, judge, low, cut = task_relative(samples)
    assert solver == pytest.approx([0.5 / (0.5 + 1e-8)] * 2)
    assert low == pytest.approx([-0.5 / (0.5 + 1e-8)] * 3)
    assert judge == pytest.approx([3 / (3 + 1e-8)])
    assert cut == []


def test_task_relative_uses_the_population_deviation():
    values = task_relative([sample("solver", r) for r in (0.0, 0.0, 1.0)])
    deviation = math.sqrt(2) / 3
    assert [v[0] for v in values] == pytest.approx([-(1 / 3) / deviation] * 2 + [(2 / 3) / deviation], abs=1e-6)


@pytest.mark.parametrize("estimator", [task_relative, group_mean, reinforce_pp, reinforce_pp_by_role])
def test_equal_rewards_and_single_replies_give_exact_zeros(estimator):
    judge = 0.1 if estimator is reinforce_pp else 0.7  # which pools the roles of a policy
    samples = [sample("solver", 0.1, 2)] * 3 + [sample("judge", judge, 2), sample("solver", 0.1, 0)]
    assert estimator(samples) == [[0.0, 0.0]] * 4 + [[]]
    assert estimator([sample("solver", 0.1, 0)]) == [[]] and estimator([]) == []


def test_group_mean_subtracts_the_siblings_of_the_same_role():
    samples = [sample("reasoner", *each) for each in ((1.0, 2, "doc1"), (0.0, 1, "doc1"), (1.0, 1, "doc2"))]
    samples += [sample("challenger", reward, 1, "doc1") for reward in (0.5, 0.1)]
    samples += [sample("judge", reward) for reward in (3.0, 1.0)]
    flat = [0.5, 0.5, -0.5, 0.0, 0.2, -0.2, 1.0, -1.0]
    assert [value for values in group_mean(samples) for value in values] == pytest.approx(flat)


BY_SEGMENT = {"segment_centred", "gae", "rae"}  # these take rewards by segment


@pytest.mark.parametrize("name", sorted({*ESTIMATORS} - BY_SEGMENT))
@pytest.mark.parametrize("reward", [{"critique": 1.0}, math.nan, math.inf, None])
def test_a_reward_that_is_no_number_is_named(name, reward):
    with pytest.raises(ValueError, match="one finite number per reply, 'critic' earned"):
        ESTIMATORS[name]([sample("solver", 1.0), sample("critic", reward)])
