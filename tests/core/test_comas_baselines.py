"""CoMAS's baselines by hand: TTRL's vote, MAPoRL's debate and discounted verdicts, SRLM's pairs and DPO steps."""

from functools import partial
from random import Random

import pytest
from core.conftest import Sums, boxes, by_hand, earned, prompts, scripted

from coevolve.engines.loading import load_policy
from coevolve.methods.baselines import ttrl_maporl
from coevolve.methods.baselines.trl_trainers import SRLM, RatedAnswer, preference
from coevolve.methods.baselines.ttrl_maporl import TTRL, MAPoRL
from coevolve.models.lora import attach
from coevolve.rollout.engine import BatchedEngine
from coevolve.rollout.scheduler import play
from coevolve.training import config
from coevolve.types import Reply


@pytest.mark.parametrize("method", [TTRL, MAPoRL, SRLM])
def test_all_train_with_reinforce_and_ask_for_boxes(method: type) -> None:
    baseline = method()
    assert (
        baseline.read_answer(r"\boxed{7}") == "7"
        and baseline.estimator == "reinforce_pp"
    )
    assert prompts([baseline.solver(question="q")]) == [
        "solve box<question>q</question>"
    ]


def test_ttrl_pays_the_first_samples_by_the_vote_of_all() -> None:
    fields = {"world": Sums(), "voting": ("sums",)}
    (outcome,), asked = scripted(
        TTRL(votes=5, samples=3, **fields), [*boxes(3, 2), "2", *boxes(3, 3)]
    )
    assert prompts(asked) == ["solve box<question>1+1</question>"] * 5
    assert [(s.reward, s.group_id) for s in outcome.samples] == [
        (1.0, None),
        (0.0, None),
        (0.0, None),
    ]
    assert (
        " ".join(outcome.facts)
        == "question right voted majority_right interactions tokens_out"
    )
    assert [*outcome.facts.values()] == ["1+1", pytest.approx(1 / 5), 1.0, 0.0, 5, 0]
    (outcome,), _ = scripted(TTRL(votes=2, samples=2, **fields), ["2", "2"])
    assert earned(outcome, "solver") == [0.0, 0.0], "no answer parses"


def test_ttrl_gives_dummy_rewards_where_there_is_no_vote() -> None:
    (outcome,), asked = scripted(
        TTRL(votes=5, samples=2, voting=(), world=Sums()), boxes(2, 3)
    )
    with pytest.raises(ValueError, match="^voting must be one of sums, got 'Math'"):
        TTRL(voting=("Math",), world=Sums()).before_run()
    assert len(asked) == 2, "no votes are bought"
    assert {(s.reward, s.group_id) for s in outcome.samples} == {(0.0, "dummy")}
    assert (outcome.facts["voted"], outcome.facts["majority_right"]) == (0.0, None)


def test_maporl_s_reward_by_hand() -> None:
    values = [
        [1.0, 0.0],
        [0.0, 0.0],
        [1.0, 0.0],
    ]  # verdicts of two agents in three rounds
    # Shared: 1, then means 0 and 1/2, with weights 1, 0.3, 0.09.
    assert ttrl_maporl.reward(values, 0, 0, 0.3, True) == pytest.approx(
        (1 + 0 + 0.09 * 0.5) / 1.39
    )
    assert ttrl_maporl.reward(values, 0, 1, 0.3, True) == pytest.approx(
        0.09 * 0.5 / 1.39
    )
    assert ttrl_maporl.reward(values, 1, 0, 0.3, False) == pytest.approx(0.3 * 1 / 1.3)
    assert (
        ttrl_maporl.reward(values, 2, 0, 0.3, True) == 1.0
        and ttrl_maporl.reward(values, 2, 1, 0.3, True) == 0.0
    )
    assert ttrl_maporl.reward(values, 0, 0, 0.0, True) == 1.0


def test_a_debate_by_hand() -> None:
    steps = by_hand(MAPoRL(turns=2, world=Sums()))
    head = "solve box<question>1+1</question>"
    assert prompts(steps.pending_turns) == [head] * 2 and [
        turn.policy for turn in steps.pending_turns
    ] == ["agent_1", "agent_2"]
    steps.answer([r"\boxed{2}", r"\boxed{3}</solution>"])
    first, second = (
        r"<solution>\boxed{2}</solution>",
        r"<solution>\boxed{3}&lt;/solution></solution>",
    )
    assert prompts(steps.pending_turns) == [
        f"{head}{first}\n{second}",
        f"{head}{second}\n{first}",
    ]
    steps.answer([r"\boxed{2}", "no idea"])
    outcome = steps.outcome
    assert earned(outcome, "solution") == pytest.approx(
        [(1 + 0.3 * 0.5) / 1.3, 0.3 * 0.5 / 1.3, 1.0, 0.0]
    )
    assert [sample.policy for sample in outcome.samples] == ["agent_1", "agent_2"] * 2
    assert (
        " ".join(outcome.facts)
        == "question right right_first right_last interactions tokens_out"
    )
    assert [*outcome.facts.values()] == ["1+1", 0.5, 0.5, 0.5, 4, 0]


def test_a_question_without_a_verifier_pays_nobody() -> None:
    (outcome,), _ = scripted(MAPoRL(world=Sums("open?")), lambda turn: r"\boxed{2}")
    assert outcome.samples == [] and [*outcome.facts.values()] == [
        "open?",
        None,
        None,
        None,
        6,
        0,
    ]


def test_the_best_is_preferred_to_the_worst() -> None:
    pairs = {((1.0, "a"), (3.0, "b"), (2.0, "c")): ("b", "a")}
    pairs |= {((3.0, "a"), (3.0, "b"), (1.0, "c"), (1.0, "d")): ("a", "c")}
    pairs |= dict.fromkeys(
        [((2.0, "a"), (2.0, "b")), ((3.0, "a"), (1.0, "a")), ((3.0, "a"),), ()]
    )  # no pair
    assert {
        rated: preference([RatedAnswer(*one) for one in rated]) for rated in pairs
    } == pairs


def test_srlm_averages_readable_judgements() -> None:
    scores = [
        "<score>3</score>",
        "?",
        "<score>3</score>",
        "<score>1</score>",
        "?",
        "3",
    ]  # 3, 2, unrated
    (outcome,), asked = scripted(
        SRLM(candidates=3, judgements=2, world=Sums()), [*boxes(2, 3, 4), *scores]
    )
    shown = [
        rf"score<question>1+1</question><solution>\boxed{{{n}}}</solution>"
        for n in (2, 2, 3, 3, 4, 4)
    ]
    assert prompts(asked[3:]) == shown and outcome.samples == []
    assert " ".join(outcome.facts) == "question paired pair chosen_right rejected_right"
    assert [*outcome.facts.values()] == [
        "1+1",
        1.0,
        (r"\boxed{2}", r"\boxed{3}"),
        1.0,
        0.0,
    ]


@pytest.mark.parametrize("adapted", [False, True])
def test_dpo_makes_the_chosen_answer_likelier(adapted: bool) -> None:
    policy = load_policy("tiny-small")
    if adapted:
        policy = attach(policy, ["shared"], (4, 8, 0.0), "tiny-small")["shared"]
    method = SRLM(questions=24, iterations=2, candidates=2, judgements=1, dpo_batch=8)
    chosen, rejected = (
        [{"role": "assistant", "content": answer}] for answer in boxes("yes", "no")
    )
    pair = {
        "prompt": list(method.solver(question="1+1").messages),
        "chosen": chosen,
        "rejected": rejected,
    }
    method.pairs = lambda policy, run, iteration: [pair] * 24
    before = margin(policy, method)
    run = config.build(
        "srlm", "smoke", out=".", overrides={"learning_rate": 2e-2 if adapted else 1e-3}
    )
    assert method.fit(policy, run) == 2 * 24 / 8
    assert margin(policy, method) > before + 1
    assert policy.generate([method.solver(question="1+1")], 0.0, 8)[0].text, (
        "the policy still speaks"
    )


def margin(policy: object, method: SRLM) -> float:
    """How much likelier "yes" is than "no"."""
    turn = method.solver(question="1+1")
    prompt = policy.render(turn.messages)
    said = [
        Reply(turn, "", prompt, policy.tokenizer(answer).input_ids)
        for answer in boxes("yes", "no")
    ]
    good, bad = (policy.logprobs([reply]).sum().item() for reply in said)
    return good - bad


def test_self_graded_pairs_of_the_tiny_backbone_are_mostly_right() -> None:
    policy, method = load_policy("tiny"), SRLM(questions=40)
    run = config.build("srlm", "quick", out=".")
    pairs = method.pairs(policy, run, 1)
    assert 10 < len(pairs) <= 40 and pairs == method.pairs(policy, run, 1)
    engine = BatchedEngine(partial(policy.generate, temperature=1.0, max_tokens=64))
    outcomes = play([method.observed(Random(i)) for i in range(40)], engine, (0, 1))
    paired = [outcome.facts for outcome in outcomes if outcome.facts["paired"]]
    chosen, rejected = (
        sum(facts[name] for facts in paired)
        for name in ("chosen_right", "rejected_right")
    )
    assert chosen / len(paired) > 0.6 > 0.2 > rejected / len(paired)
