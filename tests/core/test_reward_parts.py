"""Rewards that are weighted sums of named parts: the sum, the metrics, the transcript."""

from dataclasses import replace
from random import Random

import pytest

from coevolve.methods.registry import get_method
from coevolve.runs import show
from coevolve.runs.record import describe, replies_of
from coevolve.training.controls import rewards
from coevolve.training.controls.dial import Dial
from coevolve.training.metrics import step_metrics
from coevolve.types import Outcome, Parts, Reply, RewardError

METHOD = get_method("mae")()
TURN = METHOD.solver(question="3*4")
REPLY = Reply(TURN, "12", completion_ids=(1, 2))


def test_the_reward_is_the_weighted_sum_without_missing_parts() -> None:
    parts = {"quality": 0.5, "format": 1.0, "length": None}
    sample = REPLY.earns_parts(parts, {"quality": 3.0, "length": 9.0})
    assert sample.reward == 2.5
    assert sample.parts == {"quality": 0.5, "format": 1.0}


def test_without_weights_every_part_counts_once() -> None:
    parts = {"a": 0.25, "b": -1.0}
    sample = REPLY.earns_parts(parts)
    assert sample.reward == -0.75


def test_a_weight_without_a_part_is_refused() -> None:
    with pytest.raises(ValueError, match="^weights must name parts .*a; got b$"):
        REPLY.earns_parts({"a": 1.0}, {"b": 1.0})


def test_a_hook_may_return_a_number_with_parts() -> None:
    parts = {"quality": 0.5, "format": 1.0}
    reward = Parts(parts, {"quality": 3.0})
    assert reward == 2.5
    sample = REPLY.earns(reward, "group")
    assert sample.parts == parts
    assert sample.group_id == "group"
    assert type(sample.reward) is float
    assert REPLY.earns(reward + 1).parts == {}


@pytest.mark.parametrize("reward", [None, "1", [1.0], 1j], ids=repr)
def test_a_reward_of_another_type_is_refused_at_once(reward: object) -> None:
    message = "^the advantage takes one finite number per reply, 'solver' earned "
    with pytest.raises(RewardError, match=message):
        REPLY.earns(reward)


def test_metrics_have_the_mean_of_each_part() -> None:
    outcomes = []
    for value in (0.0, 1.0):
        sample = REPLY.earns_parts({"a": value})
        outcomes.append(Outcome([sample]))
    metrics = step_metrics(outcomes, {}, METHOD)
    assert metrics["part/solver/a"] == 0.5
    assert metrics["reward/solver"] == 0.5


OTHER_REWARDS = {
    "random": lambda outcomes: rewards.random(outcomes, Random(0)),
    "shuffled": lambda outcomes: rewards.shuffled(outcomes, Random(0)),
    "format": lambda outcomes: rewards.by_form(outcomes, METHOD),
    "oracle": lambda outcomes: rewards.by_oracle(outcomes, Dial(METHOD.world), METHOD),
}


@pytest.mark.parametrize("control", OTHER_REWARDS)
def test_another_reward_in_its_place_has_no_parts(control: str) -> None:
    sample = REPLY.earns_parts({"a": 0.5, "b": -1.0})
    segmented = replace(sample, reward={"question": 1.0})
    (outcome,) = OTHER_REWARDS[control]([Outcome([sample, segmented])])
    assert [one.parts for one in outcome.samples] == [{}, {}]


def test_a_reward_that_the_oracle_leaves_keeps_its_parts() -> None:
    proposal = replace(REPLY, turn=METHOD.proposer()).earns_parts({"a": 0.5})
    (outcome,) = OTHER_REWARDS["oracle"]([Outcome([proposal])])
    assert outcome.samples == [proposal]


def test_transcripts_show_the_parts() -> None:
    sample = REPLY.earns_parts({"a": 0.5, "b": -1.0})
    assert show.rewards(sample) == "reward -0.5 (a +0.5, b -1)"
    outcome = Outcome([sample], replies=(REPLY,))
    row = describe(1, 0, outcome)
    _, samples = replies_of(row)
    assert samples[0].parts == sample.parts
